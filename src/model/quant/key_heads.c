/* key_heads.c - reorders matrices whose rows a checkpoint groups by head: by key head in the gated delta rule
 * (Qwen3-Next), by KV head in attention (GPT-NeoX, Falcon, GPT-BigCode). Other checkpoints have the order
 * that is made here.
 *
 * n value heads belong to a key head. In one stored matrix each key head has key_dim outputs of q and of k,
 * and n value_dim of v and of z. In another it has n outputs of b and of a. Afterwards q, k and v of all
 * heads are one matrix, and z, b and a one matrix each. In attention each KV head has its queries, key and
 * value in one matrix; afterwards q, k and v are one matrix each. No number changes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "model/loaders.h"

enum { MOST_SERIES = 3 };

/* Outputs first .. first + n - 1 of each head: a key head of the delta rule, or a KV head of attention. */
typedef struct {
  int first, n;
} Series;

/* A Linear's outputs in a stored matrix: one series after another, each taken from all heads. Head h begins
 * at output h * step. */
typedef struct {
  int from; /* the linear layer (LAYER_Q ..) that has the whole stored matrix until it is reordered */
  int n_heads, step;
  int n_series; /* 0: the Linear has no outputs by head */
  Series series[MOST_SERIES];
} HeadOutputs;

static HeadOutputs head_outputs(const ModelConfig *config, int layer, int which) {
  const LayerConfig own = config_layer(config, layer);
  const DeltaConfig *c = &config->delta;
  if (own.kind == LAYER_ATTENTION) {
    const int dim = own.head_dim, queries = own.n_heads / own.n_kv_heads * dim, step = queries + 2 * dim;
    switch (which) {
    case LAYER_Q: return (HeadOutputs){LAYER_Q, own.n_kv_heads, step, 1, {{0, queries}}};
    case LAYER_K: return (HeadOutputs){LAYER_Q, own.n_kv_heads, step, 1, {{queries, dim}}};
    case LAYER_V: return (HeadOutputs){LAYER_Q, own.n_kv_heads, step, 1, {{queries + dim, dim}}};
    }
  } else if (own.kind == LAYER_DELTA) {
    const int from = LAYER_DELTA_QKV, heads = c->n_key_heads, keys = c->key_dim, n = c->n_value_heads / heads,
              values = n * c->value_dim, step = 2 * keys + 2 * values;
    switch (which) {
    case LAYER_DELTA_QKV:
      return (HeadOutputs){from, heads, step, 3, {{0, keys}, {keys, keys}, {2 * keys, values}}};
    case LAYER_DELTA_Z: return (HeadOutputs){from, heads, step, 1, {{2 * keys + values, values}}};
    case LAYER_DELTA_B: return (HeadOutputs){LAYER_DELTA_B, heads, 2 * n, 1, {{0, n}}};
    case LAYER_DELTA_A: return (HeadOutputs){LAYER_DELTA_B, heads, 2 * n, 1, {{n, n}}};
    }
  }
  return (HeadOutputs){0};
}

/* True if the Linear has a whole stored matrix until that is reordered. */
static bool is_whole(const ModelConfig *config, int layer, int which) {
  const HeadOutputs outputs = head_outputs(config, layer, which);
  return outputs.n_series > 0 && outputs.from == which;
}

typedef struct {
  Model *model;
  const Linear *from;
  HeadOutputs outputs;
  int n_threads;
  Error *err;
} Gathering;

/* --- stored outputs */

static int count_outputs(const Gathering *g) {
  int n = 0;
  for (int i = 0; i < g->outputs.n_series; i++) n += g->outputs.n_heads * g->outputs.series[i].n;
  return n;
}

/* True if every head's series of outputs begin and end at multiples of `unit`. */
static bool runs_are_multiples(const Gathering *g, int unit) {
  bool fit = g->outputs.step % unit == 0;
  for (int i = 0; i < g->outputs.n_series; i++)
    fit = fit && g->outputs.series[i].first % unit == 0 && g->outputs.series[i].n % unit == 0;
  return fit;
}

/* Copies the numbers of one head's outputs from a row of `from` to their places in a row of `to`. A number
 * has `size` bytes and belongs to `unit` outputs. */
static void copy_head(const Gathering *g, int head, const unsigned char *from, int unit, size_t size,
                      unsigned char *to) {
  for (int i = 0; i < g->outputs.n_series; i++) {
    const int n = g->outputs.series[i].n / unit,
              first = (head * g->outputs.step + g->outputs.series[i].first) / unit;
    memcpy(to + (size_t)(head * n) * size, from + (size_t)first * size, (size_t)n * size);
    to += (size_t)(g->outputs.n_heads * n) * size;
  }
}

/* Returns new memory with n rows of `from`, where they are from_row bytes apart. copy_head() has reordered
 * the numbers of all heads in each row. NULL after a failure, which g->err reports. */
static void *make_rows(const Gathering *g, const void *from, size_t n, size_t from_row, int unit,
                       size_t size) {
  const size_t row = (size_t)(count_outputs(g) / unit) * size;
  unsigned char *to = model_make_memory(g->model, n, row, g->from, g->err);
  if (!to) return NULL;
#pragma omp parallel for collapse(2) num_threads(g->n_threads)
  for (size_t i = 0; i < n; i++)
    for (int head = 0; head < g->outputs.n_heads; head++)
      copy_head(g, head, (const unsigned char *)from + i * from_row, unit, size, to + i * row);
  return to;
}

static void *make_row(const Gathering *g, const void *from, int unit, size_t size) {
  return make_rows(g, from, 1, 0, unit, size);
}

/* --- matrices whose rows are inputs */

/* For series that do not fill whole words, such as two outputs of b for each key head. The matrix is small
 * and becomes fp32. */
static Status gather_as_floats(const Gathering *g, Linear *to) {
  const Linear *from = g->from;
  const size_t n_in = (size_t)from->n_in;
  float *weight = model_make_memory(g->model, (size_t)to->n_out * n_in, sizeof *weight, from, g->err);
  if (!weight) return STATUS_FAILED;
  float *row = weight;
  for (int i = 0; i < g->outputs.n_series; i++)
    for (int head = 0; head < g->outputs.n_heads; head++)
      for (int k = 0; k < g->outputs.series[i].n; k++, row += n_in)
        linear_read(from, head * g->outputs.step + g->outputs.series[i].first + k, 0, from->n_in, row);
  *to = (Linear){.kind = LINEAR_DENSE,
                 .n_in = from->n_in,
                 .n_out = to->n_out,
                 .weight = weight,
                 .dtype = DTYPE_F32,
                 .order = from->order,
                 .name = from->name};
  return STATUS_OK;
}

static Status gather_groups(const Gathering *g, Linear *to) {
  if (!runs_are_multiples(g, 8)) return gather_as_floats(g, to);
  to->skip = 0;
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) {
    const LinearArray from = linear_array(g->from, which);
    const void *rows = make_rows(g, *from.data, from.n_rows, from.step, 8, (size_t)from.bits);
    if (!rows) return STATUS_FAILED;
    *linear_array(to, which).data = rows;
  }
  return STATUS_OK;
}

/* --- matrices whose rows are outputs */

/* FP8: blocks of outputs share a scale. The reordered outputs still share scales if all are one block, or if
 * blocks divide the series of each head. Otherwise every output gets a scale of its own. */
static Status gather_blocks(const Gathering *g, Linear *to) {
  const Linear *from = g->from;
  const size_t n_groups = (size_t)((from->n_in - 1) / from->group + 1), row = n_groups * sizeof(float);
  to->block_first = 0;
  if (from->block_first + from->n_out <= from->block) { /* one block */
    to->block = to->n_out;
    return STATUS_OK;
  }
  if (from->block_first == 0 && runs_are_multiples(g, from->block)) {
    to->scales = make_row(g, from->scales, from->block, row);
    return to->scales ? STATUS_OK : STATUS_FAILED;
  }
  unsigned char *scales = malloc((size_t)from->n_out * row);
  if (!scales) return error_set(g->err, STATUS_FAILED, "out of memory: scales of %s", from->name);
  for (int o = 0; o < from->n_out; o++)
    memcpy(scales + (size_t)o * row,
           (const unsigned char *)from->scales + (size_t)((from->block_first + o) / from->block) * row, row);
  to->block = 1;
  to->scales = make_row(g, scales, 1, row);
  free(scales);
  return to->scales ? STATUS_OK : STATUS_FAILED;
}

static Status gather_outputs(const Gathering *g, Linear *to) {
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) {
    const LinearArray from = linear_array(g->from, which);
    if (from.n_rows == 0) continue;
    if (which == LINEAR_SCALES && to->kind == LINEAR_FP8) return gather_blocks(g, to);
    const void *rows = make_row(g, *from.data, 1, from.row);
    if (!rows) return STATUS_FAILED;
    *linear_array(to, which).data = rows;
  }
  return STATUS_OK;
}

/* --- a layer */

static Status gather(const Gathering *g, Linear *to) {
  const Linear *from = g->from;
  *to = *from;
  to->n_out = count_outputs(g);
  TRY(linear_is_by_inputs(from) ? gather_groups(g, to) : gather_outputs(g, to));
  if (!from->bias.data) return STATUS_OK;
  to->bias =
      (Vector){make_row(g, from->bias.data, 1, dtype_bytes(from->bias.dtype)), from->bias.dtype, to->n_out};
  return to->bias.data ? STATUS_OK : STATUS_FAILED;
}

/* Frees weights that repack.c has made, or drops the whole pages of mapped weights. */
static void drop(Model *model, const Linear *l) {
  ModelFiles *files = model->files;
  const void *weight = *linear_array(l, LINEAR_WEIGHTS).data;
  for (size_t i = 0; i < files->n_made; i++)
    if (files->made[i] == weight) {
      free(files->made[i]);
      files->made[i] = files->made[--files->n_made];
      return;
    }
  file_drop_pages(weight, linear_array_bytes(l, LINEAR_WEIGHTS));
}

static Status order_layer(Model *model, int index, int n_threads, Error *err) {
  ModelLayer *layer = &model->layers[index];
  const ModelLayer stored = *layer;
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    const HeadOutputs outputs = head_outputs(&model->config, index, which);
    const Gathering g = {model, &stored.linear[outputs.from], outputs, n_threads, err};
    if (outputs.n_series > 0) TRY(gather(&g, &layer->linear[which]));
  }
  for (int which = 0; which < N_LAYER_LINEARS; which++)
    if (is_whole(&model->config, index, which)) drop(model, &stored.linear[which]);
  return STATUS_OK;
}

/* True if the layer is of a kind whose matrices alternate by head: `attention` or `delta`. */
static bool is_by_heads(const ModelConfig *config, int layer, StoredByHeads kinds) {
  const LayerKind kind = config_layer(config, layer).kind;
  return kind == LAYER_ATTENTION ? kinds.attention : kind == LAYER_DELTA && kinds.delta;
}

static StoredByHeads stored_by_heads(const ModelConfig *config) {
  return (StoredByHeads){.attention = config->fused == FUSES_QKV_HEADS,
                         .delta = config->delta.form == DELTA_INTERLEAVED};
}

Status key_heads_order(Model *model, int n_threads, Error *err) {
  ModelConfig *config = &model->config;
  model->by_heads = stored_by_heads(config);
  for (int i = 0; i < config->n_layers; i++)
    if (is_by_heads(config, i, model->by_heads)) TRY(order_layer(model, i, n_threads, err));
  if (model->by_heads.delta) config->delta.form = DELTA_AS_ONE;
  if (model->by_heads.attention) config->fused = FUSES_QKV;
  return STATUS_OK;
}

bool model_is_by_heads(const Model *model, int layer, int which) {
  return is_by_heads(&model->config, layer, model->by_heads) &&
         head_outputs(&model->config, layer, which).n_series > 0;
}

int model_stored_output(const Model *model, int layer, int which, int o) {
  const HeadOutputs h = head_outputs(&model->config, layer, which);
  int i = 0;
  while (o >= h.n_heads * h.series[i].n) o -= h.n_heads * h.series[i++].n;
  return o / h.series[i].n * h.step + h.series[i].first + o % h.series[i].n;
}

void key_heads_count(Model *model) {
  const StoredByHeads kinds = stored_by_heads(&model->config);
  for (int i = 0; i < model->config.n_layers; i++)
    for (int which = 0; is_by_heads(&model->config, i, kinds) && which < N_LAYER_LINEARS; which++) {
      const Linear *stored = &model->layers[i].linear[which];
      if (!is_whole(&model->config, i, which) || (!stored->qweight && !stored->weight))
        continue; /* repack.c will make weights that are not there yet, and drop() frees them */
      const size_t bytes = linear_array_bytes(stored, LINEAR_WEIGHTS);
      model->made_bytes += bytes;
      model->replaced_bytes += bytes;
    }
}
