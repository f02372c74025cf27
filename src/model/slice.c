/* slice.c - see slice.h. Always true: a part shares every byte of weights with the whole model, except the
 * taps of delta layers, since a part's channels are not contiguous in the whole model. */
#include "model/slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/layers.h"
#include "model/loaders.h"
#include "model/program.h"

enum {
  HEAD_UNIT = 16,  /* rows of lm_head are divided in multiples of this, a tile of a GPU's matmul */
  OUTPUT_UNIT = 8, /* other outputs in multiples of this, a slab of a GPU's layout (linear/layout.cuh) */
};

/* --- shares */

/* The heads, hidden units, inputs or outputs [first, first + n), which one part has. */
typedef struct {
  int first, n;
} Share;

/* The share of `count` hidden units that part `index` of n has, in multiples of `unit`; the last multiple may
 * be incomplete. Shares differ by one multiple at most. No share is larger than the first. */
static Share share_columns(int count, int unit, int index, int n) {
  const int units = (count - 1) / unit + 1, first = (units * index + n - 1) / n * unit,
            end = (units * (index + 1) + n - 1) / n * unit;
  return (Share){first, (end < count ? end : count) - first};
}

/* The share of n_heads heads that part `index` of n has. With fewer heads than parts, several parts have the
 * same head. */
static Share share_heads(int n_heads, int index, int n) {
  return (Share){(int)((int64_t)n_heads * index / n), n_heads < n ? n_heads > 0 : n_heads / n};
}

static bool heads_divide(int n_heads, int n) {
  return n_heads % n == 0 || n % n_heads == 0;
}

/* True if a layer's inputs can be divided anywhere: all are in one group, or in none. False for FP4: its
 * group size (16 or 32) says which format the scales have, and so must not change. */
static bool is_one_group(const Linear *l) {
  return l->kind != LINEAR_FP4 && (l->group == 0 || l->group >= l->n_in);
}

/* Inputs are divided in multiples of this: whole groups, and whole slabs of outputs of the layer that makes
 * the inputs. */
static int input_unit(const Linear *l) {
  int unit = is_one_group(l) ? OUTPUT_UNIT : l->group;
  while (unit % OUTPUT_UNIT != 0) unit *= 2;
  return unit;
}

static int common_multiple(int a, int b) {
  int all = a;
  while (all % b != 0) all += a;
  return all;
}

/* Multiples in which the hidden units of an MLP, a shared expert and an expert are divided, in all layers.
 * Only the last share may be no multiple. */
typedef struct {
  int mlp, shared, expert;
} Units;

static Units find_units(const Model *model) {
  Units units = {OUTPUT_UNIT, OUTPUT_UNIT, OUTPUT_UNIT};
  for (int i = 0; i < model->config.n_layers; i++) {
    const ModelLayer *l = &model->layers[i];
    const LayerConfig own = config_layer(&model->config, i);
    int *unit = own.n_experts > 0 ? &units.shared : &units.mlp;
    if (own.intermediate > 0) *unit = common_multiple(*unit, input_unit(&l->down));
    if (own.n_experts > 0) units.expert = common_multiple(units.expert, input_unit(&l->experts[0].down));
  }
  return units;
}

static int mlp_unit(Units units, LayerConfig layer) {
  return layer.n_experts > 0 ? units.shared : units.mlp;
}

/* --- what can be divided */

/* The reason why a model cannot be divided, or "". */
typedef struct {
  char text[160];
} Obstacle;

/* Looks for a property by which a linear layer's inputs cannot be divided at all; true if there is one. */
static bool has_whole_inputs(const Linear *l, Obstacle *why) {
  if (l->order)
    snprintf(why->text, sizeof why->text, "%s has its inputs in the order of activations", l->name);
  else if (l->kind == LINEAR_INT8)
    snprintf(why->text, sizeof why->text, "%s rounds its inputs to int8 with one scale for all of them",
             l->name);
  return *why->text != 0;
}

/* Looks for an obstacle in the hidden units of an MLP that ends with `down`. With dense weights the last
 * share need not be a multiple of 8. In experts it must be: a GPU interleaves their gate and up in eights. */
static void divide_columns(bool expert, const Linear *down, int unit, int n, Obstacle *why) {
  const bool eights = down->n_in % OUTPUT_UNIT == 0 || (down->kind == LINEAR_DENSE && !expert);
  if (has_whole_inputs(down, why)) return;
  if (!eights || (down->n_in - 1) / unit + 1 < n)
    snprintf(why->text, sizeof why->text, "an %s has %d hidden units, which are divided by %s of %d",
             expert ? "expert" : "MLP", down->n_in, is_one_group(down) ? "slabs" : "groups", unit);
}

/* Looks for an obstacle in o, whose inputs are divided into equal parts. */
static void divide_inputs(const Linear *l, int n, Obstacle *why) {
  const int inputs = l->n_in / n;
  if (has_whole_inputs(l, why)) return;
  if (l->kind != LINEAR_DENSE && inputs % input_unit(l) != 0)
    snprintf(why->text, sizeof why->text, "%s has %d inputs in groups of %d", l->name, l->n_in, l->group);
}

/* Looks for an obstacle in a linear layer whose outputs are heads. */
static void divide_heads(const Linear *l, int n_heads, int n, Obstacle *why) {
  const int outputs = l->n_out / n_heads * share_heads(n_heads, 0, n).n;
  if (l->kind != LINEAR_DENSE && outputs % OUTPUT_UNIT != 0)
    snprintf(why->text, sizeof why->text, "%s has %d outputs, of which %d are for a GPU, expected eights",
             l->name, l->n_out, outputs);
}

/* Looks for an obstacle in a layer's numbers of heads, or of a convolution's channels. */
static void divide_counts(const ModelConfig *c, LayerConfig own, int n, Obstacle *why) {
  const DeltaConfig *d = &c->delta;
  const bool kv = !heads_divide(own.n_kv_heads, n);
  const int heads = kv ? own.n_kv_heads : own.n_heads;
  if (own.kind == LAYER_ATTENTION && (kv || heads % n != 0))
    snprintf(why->text, sizeof why->text, "it has %d %shead%s", heads, kv ? "KV " : "",
             heads == 1 ? "" : "s");
  if (own.kind == LAYER_DELTA && (d->n_key_heads % n != 0 || d->n_value_heads % n != 0))
    snprintf(why->text, sizeof why->text, "the delta rule has %d heads of keys and %d of values",
             d->n_key_heads, d->n_value_heads);
  if (own.kind == LAYER_CONV && c->conv.channels % (n * OUTPUT_UNIT) != 0)
    snprintf(why->text, sizeof why->text, "the convolution has %d channels, which are divided by eights",
             c->conv.channels);
}

/* Looks for an obstacle in the outputs of a linear layer. */
static void divide_outputs(const ModelConfig *c, LayerConfig own, const Linear *l, Division division, int n,
                           Obstacle *why) {
  const DeltaConfig *d = &c->delta;
  if (division == DIVIDE_QUERY_HEADS) divide_heads(l, own.n_heads, n, why);
  if (division == DIVIDE_KV_HEADS) divide_heads(l, own.n_kv_heads, n, why);
  if (division == DIVIDE_VALUE_HEADS) divide_heads(l, d->n_value_heads, n, why);
  if (division == DIVIDE_KEY_RUNS && l->kind != LINEAR_DENSE &&
      d->n_key_heads / n * d->key_dim % OUTPUT_UNIT != 0)
    snprintf(why->text, sizeof why->text, "%s has heads of %d outputs, expected eights", l->name, d->key_dim);
}

/* Looks for an obstacle in the layer's part before the MLP. */
static void divide_mixer(const ModelConfig *c, LayerConfig own, const ModelLayer *l, int n, Obstacle *why) {
  divide_counts(c, own, n, why);
  for (int which = 0; which < N_LAYER_LINEARS && !*why->text; which++)
    if (l->linear[which].n_out > 0)
      divide_outputs(c, own, &l->linear[which], layer_linear_division(which), n, why);
  if (!*why->text) divide_inputs(&l->o, n, why);
  /* A GPU refuses heads whose outputs together are no multiple of 8 (cuda/one/supported.c has the row). */
  if (!*why->text && own.kind == LAYER_ATTENTION && l->o.n_in / n % OUTPUT_UNIT != 0)
    snprintf(why->text, sizeof why->text, "%s has %d inputs, which are divided by eights", l->o.name,
             l->o.n_in);
}

/* Looks for an obstacle to sharing the model among n GPUs. */
static Obstacle find_obstacle(const Model *model, int n) {
  const ModelConfig *c = &model->config;
  const Units units = find_units(model);
  Obstacle why = {""};
  if (c->vocab_size < n * HEAD_UNIT)
    snprintf(why.text, sizeof why.text, "it has only %d tokens", c->vocab_size);
  for (int i = 0; i < c->n_layers && !*why.text; i++) {
    const LayerConfig own = config_layer(c, i);
    const ModelLayer *l = &model->layers[i];
    divide_mixer(c, own, l, n, &why);
    if (!*why.text && own.intermediate > 0) divide_columns(false, &l->down, mlp_unit(units, own), n, &why);
    if (!*why.text && own.n_experts > 0) divide_columns(true, &l->experts[0].down, units.expert, n, &why);
  }
  return why;
}

/* The numbers of GPUs that would work, in words, e.g. "2, 4 or 8"; "" if none would. */
static Obstacle possible_splits(const Model *model) {
  Obstacle list = {""};
  int found[MAX_SPLIT] = {0}, n_found = 0;
  for (int n = 2; n <= MAX_SPLIT; n++)
    if (!*find_obstacle(model, n).text) found[n_found++] = n;
  for (int i = 0, used = 0; i < n_found; i++)
    used += snprintf(list.text + used, sizeof list.text - (size_t)used, "%s%d",
                     i == 0             ? ""
                     : i == n_found - 1 ? " or "
                                        : ", ",
                     found[i]);
  return list;
}

Status model_check_split(const Model *model, int n, Error *err) {
  char part[FORM_WORDS];
  if (n <= 1) return STATUS_OK;
  TRY(form_refusal(FORM_SHARED, &model->config, part, err));
  if (*part)
    return error_set(err, STATUS_MODEL, "--split %d: %s has %s, which several GPUs do not share yet", n,
                     model->config.architecture, part);
  const Obstacle why = find_obstacle(model, n);
  if (!*why.text) return STATUS_OK;
  const Obstacle other = possible_splits(model);
  return error_set(err, STATUS_MODEL, "--split %d does not divide this model: %s; %s%s", n, why.text,
                   *other.text ? "it would work with " : "no number of GPUs works", other.text);
}

/* --- sizes */

/* The part's number of hidden units; a count of 0, which stands for the model's own, stays 0. */
static int hidden_units(int count, int unit, int index, int n) {
  return count > 0 ? share_columns(count, unit, index, n).n : 0;
}

Status config_part(const Model *model, int index, int n, ModelConfig *part, Error *err) {
  const ModelConfig *whole = &model->config;
  const Units units = find_units(model);
  *part = *whole;
  part->split = n;
  part->n_heads /= n;
  part->n_kv_heads = share_heads(whole->n_kv_heads, index, n).n;
  part->intermediate = hidden_units(whole->intermediate, units.mlp, index, n);
  part->experts.width = hidden_units(whole->experts.width, units.expert, index, n);
  part->experts.shared_width = hidden_units(whole->experts.shared_width, units.shared, index, n);
  part->delta.n_key_heads /= n;
  part->delta.n_value_heads /= n;
  part->conv.channels /= n;
  part->layers = NULL;
  if (!whole->layers) return STATUS_OK;
  TRY(NEW(part->layers, (size_t)whole->n_layers, "layers", err));
  for (int i = 0; i < whole->n_layers; i++) {
    const LayerConfig *own = &whole->layers[i];
    part->layers[i] = *own;
    part->layers[i].n_heads /= n;
    part->layers[i].n_kv_heads = share_heads(own->n_kv_heads, index, n).n;
    part->layers[i].intermediate = hidden_units(own->intermediate, units.mlp, index, n);
  }
  return STATUS_OK;
}

void config_part_release(ModelConfig *part) {
  free(part->layers);
  part->layers = NULL;
}

int model_part_head(int vocab_size, int index, int n) {
  return index == n ? vocab_size : (int)((int64_t)(vocab_size / HEAD_UNIT) * index / n) * HEAD_UNIT;
}

int model_part_kv_head(int n_kv_heads, int index, int n) {
  return share_heads(n_kv_heads, index, n).first;
}

/* --- weights */

/* The part to be made: number `index` of n of the model `whole`. */
typedef struct {
  const Model *whole;
  int index, n;
  Units units;
} Cut;

static Status cut_outputs(Linear *l, Share share, Error *err) {
  const Vector bias = l->bias;
  if (l->n_out == 0) return STATUS_OK;
  l->bias.data = NULL;
  TRY(linear_cut(l, share.first, share.n, l->name, err));
  l->bias = (Vector){moved(bias.data, (size_t)share.first * dtype_bytes(bias.dtype)), bias.dtype, share.n};
  return STATUS_OK;
}

/* Reduces a layer whose outputs are n_heads heads to the share `heads` of them. */
static Status cut_heads(Linear *l, int n_heads, Share heads, Error *err) {
  const int outputs = n_heads > 0 ? l->n_out / n_heads : 0;
  return cut_outputs(l, (Share){heads.first * outputs, heads.n * outputs}, err);
}

static void cut_vector(Vector *v, Share share) {
  v->data = moved(v->data, (size_t)share.first * dtype_bytes(v->dtype));
  v->n = share.n;
}

/* Reduces a layer to a share of its inputs; only the first part keeps the bias. */
static void cut_inputs(Linear *l, Share share) {
  const bool one_group = is_one_group(l);
  const size_t first = (size_t)share.first, first_group = one_group ? 0 : first / (size_t)l->group;
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) {
    const LinearArray a = linear_array(l, which);
    const size_t at = which == LINEAR_WEIGHTS ? first : first_group;
    *a.data = moved(*a.data, linear_is_by_inputs(l) ? at * a.step : at * (size_t)a.bits / 8);
  }
  if (!linear_is_by_inputs(l)) {
    const int rows = 1 + l->row_skip;
    l->input_skip += rows * (l->n_in - share.n);
    if (!one_group) l->scale_skip += rows * ((l->n_in - 1) / l->group - (share.n - 1) / l->group);
  }
  if (l->group > share.n) l->group = share.n;
  l->n_in = share.n;
  if (share.first > 0) l->bias.data = NULL;
}

/* Leaves in `l` the outputs runs[0], and in more[] its outputs runs[1] and runs[2]. */
static Status cut_runs(Linear *l, const Share runs[3], Linear more[2], Error *err) {
  for (int i = 1; i < 3; i++) {
    more[i - 1] = *l;
    TRY(cut_outputs(&more[i - 1], runs[i], err));
  }
  return cut_outputs(l, runs[0], err);
}

static Share heads_from(int first, Share heads, int dim) {
  return (Share){first + heads.first * dim, heads.n * dim};
}

/* Copies the taps of the channels in `runs` to `taps`, and makes conv point there. A dummy's taps cannot be
 * read: only conv->n is set. */
static void cut_taps(Vector *conv, const Share runs[3], int n_taps, bool dummy, char *taps) {
  const size_t row = (size_t)n_taps * dtype_bytes(conv->dtype);
  conv->n = 0;
  for (int i = 0; i < 3; i++) {
    if (!dummy)
      memcpy(taps + (size_t)conv->n * dtype_bytes(conv->dtype),
             (const char *)conv->data + (size_t)runs[i].first * row, (size_t)runs[i].n * row);
    conv->n += runs[i].n * n_taps;
  }
  if (!dummy) conv->data = taps;
}

/* The shares of a layer that one part has. */
typedef struct {
  Share queries, keys, values; /* of query heads, KV heads, value heads of the delta rule */
  Share runs[3];               /* channels of a convolution */
  Share units, expert_units;   /* hidden units of the MLP, of an expert */
} LayerShare;

static LayerShare share_layer(const Cut *cut, LayerConfig own) {
  const ModelConfig *c = &cut->whole->config;
  const DeltaConfig *d = &c->delta;
  const int keys = d->n_key_heads * d->key_dim, n = c->conv.channels / cut->n, first = cut->index * n;
  const Share of_keys = share_heads(d->n_key_heads, cut->index, cut->n),
              of_values = share_heads(d->n_value_heads, cut->index, cut->n);
  LayerShare share = {.queries = share_heads(own.n_heads, cut->index, cut->n),
                      .keys = share_heads(own.n_kv_heads, cut->index, cut->n),
                      .values = of_values,
                      .runs = {heads_from(0, of_keys, d->key_dim), heads_from(keys, of_keys, d->key_dim),
                               heads_from(2 * keys, of_values, d->value_dim)}};
  for (int i = 0; own.kind == LAYER_CONV && i < 3; i++)
    share.runs[i] = (Share){i * c->conv.channels + first, n};
  if (own.intermediate > 0)
    share.units = share_columns(own.intermediate, mlp_unit(cut->units, own), cut->index, cut->n);
  if (own.n_experts > 0)
    share.expert_units = share_columns(c->experts.width, cut->units.expert, cut->index, cut->n);
  return share;
}

static Status cut_linear(const Cut *cut, LayerConfig own, const LayerShare *share, ModelLayer *layer,
                         int which, Error *err) {
  Linear *l = layer_linear(layer, which);
  const int inputs = l->n_in / cut->n;
  const Share units = which < N_LAYER_LINEARS ? share->units : share->expert_units;
  if (l->n_out == 0) return STATUS_OK;
  switch (layer_linear_division(which)) {
  case DIVIDE_QUERY_HEADS: return cut_heads(l, own.n_heads, share->queries, err);
  case DIVIDE_KV_HEADS: return cut_heads(l, own.n_kv_heads, share->keys, err);
  case DIVIDE_VALUE_HEADS: return cut_heads(l, cut->whole->config.delta.n_value_heads, share->values, err);
  case DIVIDE_KEY_RUNS:
  case DIVIDE_CHANNEL_RUNS: return cut_runs(l, share->runs, layer->more, err);
  case DIVIDE_UNITS: return cut_outputs(l, units, err);
  case DIVIDE_MIXER_INPUTS: cut_inputs(l, (Share){cut->index * inputs, inputs}); break;
  case DIVIDE_UNIT_INPUTS: cut_inputs(l, units); break;
  case DIVIDE_WHOLE: break;
  }
  return STATUS_OK;
}

/* Cuts a layer's vectors to the part's share; taps: memory for the taps of a layer with the delta rule. */
static void cut_vectors(const Cut *cut, const LayerShare *share, ModelLayer *layer, char *taps) {
  const ModelConfig *c = &cut->whole->config;
  for (int which = 0; which < N_LAYER_VECTORS; which++) {
    Vector *v = &layer->vector[which];
    if (!v->data) continue;
    switch (layer_vector_division(which)) {
    case DIVIDE_QUERY_HEADS: cut_vector(v, share->queries); break;
    case DIVIDE_VALUE_HEADS: cut_vector(v, share->values); break;
    case DIVIDE_KEY_RUNS: cut_taps(v, share->runs, c->delta.conv, cut->whole->dummy, taps); break;
    case DIVIDE_CHANNEL_RUNS: {
      const int each = v->n / c->conv.channels; /* numbers of a channel: the taps, or 1 for a bias */
      cut_vector(v, (Share){share->runs[0].first * each, share->runs[0].n * each});
      break;
    }
    default: break;
    }
  }
}

/* experts: memory for this layer's experts; taps: as for cut_vectors(). */
static Status cut_layer(const Cut *cut, int layer, ModelLayer *l, Expert *experts, char *taps, Error *err) {
  const ModelConfig *c = &cut->whole->config;
  const LayerConfig own = config_layer(c, layer);
  const LayerShare share = share_layer(cut, own);
  if (own.n_experts > 0) l->experts = memcpy(experts, l->experts, (size_t)own.n_experts * sizeof *experts);
  for (int which = 0; which < layer_linear_count(c, layer); which++)
    TRY(cut_linear(cut, own, &share, l, which, err));
  cut_vectors(cut, &share, l, taps);
  return STATUS_OK;
}

/* A part, and the memory that it does not share with the whole model. */
typedef struct {
  Model model;
  Expert *experts; /* experts of all layers; NULL: the part has none */
  char *taps;      /* taps of all layers of the delta rule; NULL: the part has none */
} Part;

/* Upper bound of the bytes of a layer's taps. */
static size_t taps_bytes(const DeltaConfig *part) {
  return (size_t)delta_channels(part) * (size_t)part->conv * sizeof(float);
}

static Status cut_layers(const Cut *cut, Part *part, Error *err) {
  const ModelConfig *c = &cut->whole->config;
  const size_t taps = taps_bytes(&part->model.config.delta),
               n_delta = (size_t)config_count_layers(c, LAYER_DELTA, c->n_layers);
  size_t n_experts = 0, next = 0;
  for (int i = 0; i < c->n_layers; i++) n_experts += (size_t)config_layer(c, i).n_experts;
  TRY(NEW(part->model.layers, (size_t)c->n_layers, "layers", err));
  if (n_experts > 0) TRY(NEW(part->experts, n_experts, "experts", err));
  if (n_delta > 0 && !(part->taps = mem_alloc(n_delta, taps, "convolutions", err))) return STATUS_FAILED;
  for (int i = 0; i < c->n_layers; i++) {
    const size_t before = (size_t)config_count_layers(c, LAYER_DELTA, i);
    part->model.layers[i] = cut->whole->layers[i];
    TRY(cut_layer(cut, i, &part->model.layers[i], part->experts ? part->experts + next : NULL,
                  part->taps ? part->taps + before * taps : NULL, err));
    next += (size_t)config_layer(c, i).n_experts;
  }
  return STATUS_OK;
}

static Status cut_model(const Cut *cut, Part *part, Error *err) {
  const Model *whole = cut->whole;
  Model *m = &part->model;
  const size_t n = (size_t)cut->n;
  const int vocab = whole->config.vocab_size, first = model_part_head(vocab, cut->index, cut->n);
  TRY(config_part(whole, cut->index, cut->n, &m->config, err));
  m->weight_bytes = whole->weight_bytes / n;
  m->made_bytes = whole->made_bytes / n;
  m->replaced_bytes = whole->replaced_bytes / n;
  TRY(cut_layers(cut, part, err));
  return cut_outputs(&m->head, (Share){first, model_part_head(vocab, cut->index + 1, cut->n) - first}, err);
}

Status model_part(const Model *whole, int index, int n, Model **out, Error *err) {
  const Cut cut = {whole, index, n, find_units(whole)};
  *out = NULL;
  Part *part;
  TRY(NEW(part, 1, "a model's part", err));
  OWNED(part_release) Model *model = &part->model;
  *model = *whole;
  model->layers = NULL;
  model->config.layers = NULL;
  TRY(cut_model(&cut, part, err));
  *out = TAKE(model);
  return STATUS_OK;
}

void model_part_free(Model *model) {
  if (!model) return;
  Part *part = (Part *)model; /* a Part begins with its Model */
  config_part_release(&model->config);
  free(part->experts);
  free(part->taps);
  free(model->layers);
  free(part);
}
