/* slice.c - see slice.h. Always true: a part shares every byte of weights with the whole model. */
#include "model/slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/layers.h"
#include "model/loaders.h"

enum { HEAD_UNIT = 16 }; /* rows of lm_head are divided by whole tiles of a GPU */

/* --- what can be divided */

/* A part of the model that hinders every division, or NULL. */
static const char *undivided_part(const ModelConfig *c) {
  const struct {
    bool there;
    const char *words;
  } parts[] = {
      {c->experts.n_experts > 0, "experts"},
      {config_has_states(c), "layers with a recurrent state"},
      {c->qk_norm == QK_NORM_WHOLE, "a norm over all heads of q and of k"},
      {c->per_layer_width > 0, "inputs of each layer"},
      {c->draft.kind != DRAFT_NONE, "the layers of a drafter"},
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].there) return parts[i].words;
  return NULL;
}

/* The reason why a model cannot be divided, or "". */
typedef struct {
  char text[160];
} Obstacle;

static void divide_inputs(const Linear *l, int n, Obstacle *why) {
  const int inputs = l->n_in / n;
  const bool one_group = l->group >= l->n_in;
  if (l->kind == LINEAR_INT8)
    snprintf(why->text, sizeof why->text, "%s rounds its inputs to int8 with one scale for all of them",
             l->name);
  else if (l->kind != LINEAR_DENSE && ((!one_group && inputs % l->group != 0) || inputs % 8 != 0))
    snprintf(why->text, sizeof why->text, "%s has %d inputs in groups of %d", l->name, l->n_in, l->group);
}

static void divide_outputs(const Linear *l, int n, Obstacle *why) {
  if (l->n_out > 0 && (l->n_out % n != 0 || l->n_out / n % 8 != 0))
    snprintf(why->text, sizeof why->text, "%s has %d outputs, which are divided by eights", l->name,
             l->n_out);
}

/* Looks for a reason why n GPUs cannot share the model. */
static Obstacle find_obstacle(const Model *model, int n) {
  const ModelConfig *c = &model->config;
  Obstacle why = {""};
  if (c->vocab_size < n * HEAD_UNIT)
    snprintf(why.text, sizeof why.text, "it has only %d tokens", c->vocab_size);
  for (int i = 0; i < c->n_layers && !*why.text; i++) {
    const LayerConfig own = config_layer(c, i);
    const ModelLayer *l = &model->layers[i];
    const Linear *columns[] = {&l->q, &l->k, &l->v, &l->attn_gate, &l->gate, &l->up};
    if (own.n_kv_heads % n != 0) {
      snprintf(why.text, sizeof why.text, "it has %d KV head%s", own.n_kv_heads,
               own.n_kv_heads == 1 ? "" : "s");
    } else if (own.intermediate % n != 0) {
      snprintf(why.text, sizeof why.text, "its MLP has %d hidden units", own.intermediate);
    } else {
      for (size_t k = 0; k < sizeof columns / sizeof *columns && !*why.text; k++)
        divide_outputs(columns[k], n, &why);
      if (!*why.text) divide_inputs(&l->o, n, &why);
      if (!*why.text) divide_inputs(&l->down, n, &why);
    }
  }
  return why;
}

/* "2, 4 or 8 would work", or that none does. */
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
  if (n <= 1) return STATUS_OK;
  const char *part = undivided_part(&model->config);
  if (part)
    return error_set(err, STATUS_MODEL, "--split %d: %s has %s, which several GPUs do not share yet", n,
                     model->config.architecture, part);
  const Obstacle why = find_obstacle(model, n);
  if (!*why.text) return STATUS_OK;
  const Obstacle other = possible_splits(model);
  return error_set(err, STATUS_MODEL, "--split %d does not divide this model: %s; %s%s", n, why.text,
                   *other.text ? "it would work with " : "no number of GPUs works", other.text);
}

/* --- sizes */

Status config_part(const ModelConfig *whole, int n, ModelConfig *part, Error *err) {
  *part = *whole;
  part->split = n;
  part->n_heads /= n;
  part->n_kv_heads /= n;
  part->intermediate /= n;
  part->layers = NULL;
  if (!whole->layers) return STATUS_OK;
  part->layers = mem_alloc((size_t)whole->n_layers, sizeof *part->layers, "layers", err);
  if (!part->layers) return STATUS_FAILED;
  for (int i = 0; i < whole->n_layers; i++) {
    part->layers[i] = whole->layers[i];
    part->layers[i].n_kv_heads /= n;
    part->layers[i].intermediate /= n;
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

/* --- weights */

static Status cut_outputs(Linear *l, int first, int n_out, Error *err) {
  const Vector bias = l->bias;
  if (l->n_out == 0) return STATUS_OK;
  l->bias.data = NULL;
  TRY(linear_cut(l, first, n_out, l->name, err));
  l->bias = (Vector){moved(bias.data, (size_t)first * dtype_bytes(bias.dtype)), bias.dtype, n_out};
  return STATUS_OK;
}

/* Reduces a layer to inputs `index` * n_in / n and so on. */
static void cut_inputs(Linear *l, int index, int n) {
  const int n_in = l->n_in / n;
  const bool one_group = l->group >= l->n_in;
  const size_t first = (size_t)index * (size_t)n_in;
  const size_t first_group = one_group || l->group == 0 ? 0 : first / (size_t)l->group;
  const size_t width = (size_t)l->n_out + (size_t)l->skip;
  switch (l->kind) {
  case LINEAR_AWQ:
  case LINEAR_GROUPED: {
    const bool awq = l->kind == LINEAR_AWQ;
    l->qweight = moved(l->qweight, first * width * (size_t)l->bits / 8);
    l->qzeros = moved(l->qzeros, first_group * width / (awq ? 2 : 1));
    l->scales = moved(l->scales, first_group * width * (awq ? 2 : 4));
    break;
  }
  case LINEAR_FP8:
    l->weight = moved(l->weight, first);
    if (!one_group) {
      l->scales = moved(l->scales, first_group * 4);
      l->scale_skip = (l->n_in - n_in) / l->group;
    }
    break;
  case LINEAR_FP4:
    l->weight = moved(l->weight, first / 2);
    l->scales = moved(l->scales, first_group);
    break;
  default: l->weight = moved(l->weight, first * dtype_bytes(l->dtype));
  }
  const bool by_outputs = l->kind != LINEAR_AWQ && l->kind != LINEAR_GROUPED;
  if (by_outputs) l->row_skip = n * (1 + l->row_skip) - 1;
  if (one_group) l->group = n_in;
  l->n_in = n_in;
  if (index > 0) l->bias.data = NULL;
}

static Status cut_layer(ModelLayer *l, int index, int n, Error *err) {
  Linear *const columns[] = {&l->q, &l->k, &l->v, &l->attn_gate, &l->gate, &l->up};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    const int n_out = columns[i]->n_out / n;
    TRY(cut_outputs(columns[i], index * n_out, n_out, err));
  }
  cut_inputs(&l->o, index, n);
  cut_inputs(&l->down, index, n);
  l->sinks.n /= n;
  l->sinks.data = moved(l->sinks.data, (size_t)index * (size_t)l->sinks.n * dtype_bytes(l->sinks.dtype));
  return STATUS_OK;
}

static Status cut_model(const Model *whole, int index, int n, Model *part, Error *err) {
  const int n_layers = whole->config.n_layers, vocab = whole->config.vocab_size;
  const int first = model_part_head(vocab, index, n);
  TRY(config_part(&whole->config, n, &part->config, err));
  part->layers = mem_alloc((size_t)n_layers, sizeof *part->layers, "layers", err);
  if (!part->layers) return STATUS_FAILED;
  part->weight_bytes = whole->weight_bytes / (size_t)n;
  part->made_bytes = whole->made_bytes / (size_t)n;
  part->replaced_bytes = whole->replaced_bytes / (size_t)n;
  for (int i = 0; i < n_layers; i++) {
    part->layers[i] = whole->layers[i];
    TRY(cut_layer(&part->layers[i], index, n, err));
  }
  return cut_outputs(&part->head, first, model_part_head(vocab, index + 1, n) - first, err);
}

Status model_part(const Model *whole, int index, int n, Model **out, Error *err) {
  *out = NULL;
  Model *part = mem_alloc(1, sizeof *part, "a model's part", err);
  if (!part) return STATUS_FAILED;
  *part = *whole;
  part->layers = NULL;
  part->config.layers = NULL;
  const Status status = cut_model(whole, index, n, part, err);
  if (status)
    model_part_free(part);
  else
    *out = part;
  return status;
}

void model_part_free(Model *part) {
  if (!part) return;
  config_part_release(&part->config);
  free(part->layers);
  free(part);
}
