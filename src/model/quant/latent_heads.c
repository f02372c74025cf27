/* latent_heads.c - the parts of kv_b_proj that belong to one head of latent attention.
 *
 * A head has nope_dim outputs for its key and value_dim for its value (LatentConfig). value_heads[h] is a
 * view of the head's value outputs; key_heads[h] is a copy of its key outputs, transposed, since attention
 * multiplies queries by it. The copy is dense: in the type of a dense kv_b_proj, else in fp16, which rounds
 * a weight of 2^-14 or more by at most 2^-11 of its size. Where kv_b_proj rounds its inputs to int8, the copy
 * does not.
 *
 *     kv_b_proj        | key of head 0 | value of head 0 | key of head 1 | ...     outputs, of kv_rank inputs
 *     key_heads[0]     kv_rank outputs of nope_dim inputs
 *     value_heads[0]   value_dim outputs of kv_rank inputs */
#include "base/half.h"
#include "model/loaders.h"

static Dtype key_type(const Linear *kv_b) {
  return kv_b->kind == LINEAR_DENSE ? kv_b->dtype : DTYPE_F16;
}

static size_t key_bytes(const ModelConfig *config, const Linear *kv_b) {
  const LatentConfig *latent = &config->latent;
  return (size_t)latent->kv_rank * (size_t)latent->nope_dim * dtype_bytes(key_type(kv_b));
}

static bool has_latent(const Model *model, int layer) {
  return model->config.latent.kv_rank > 0 && config_layer(&model->config, layer).kind == LAYER_ATTENTION;
}

size_t latent_heads_bytes(const Model *model, int layer) {
  const ModelConfig *config = &model->config;
  if (!has_latent(model, layer)) return 0;
  return (size_t)config->n_heads * key_bytes(config, &model->layers[layer].kv_b);
}

Status latent_heads_open(Model *model, Error *err) {
  const size_t n = (size_t)model->config.n_heads;
  for (int i = 0; i < model->config.n_layers; i++) {
    ModelLayer *layer = &model->layers[i];
    if (!has_latent(model, i)) continue;
    Linear *heads = model_make_memory(model, 2 * n, sizeof *heads, &layer->kv_b, err);
    if (!heads) return STATUS_FAILED;
    layer->key_heads = heads;
    layer->value_heads = heads + n;
  }
  return STATUS_OK;
}

/* Sets key_heads and value_heads by kv_b; keys: the memory of all heads' transposed key parts, or NULL. */
Status latent_heads_place(const Model *model, int index, const void *keys, Error *err) {
  const ModelConfig *config = &model->config;
  const LatentConfig *latent = &config->latent;
  const ModelLayer *layer = &model->layers[index];
  const Linear *kv_b = &layer->kv_b;
  for (int h = 0; h < config->n_heads; h++) {
    const int first = h * (latent->nope_dim + latent->value_dim) + latent->nope_dim;
    layer->key_heads[h] = (Linear){.kind = LINEAR_DENSE,
                                   .n_in = latent->nope_dim,
                                   .n_out = latent->kv_rank,
                                   .dtype = key_type(kv_b),
                                   .weight = moved(keys, (size_t)h * key_bytes(config, kv_b)),
                                   .name = kv_b->name};
    layer->value_heads[h] = *kv_b;
    layer->value_heads[h].bias = (Vector){0};
    TRY(linear_cut(&layer->value_heads[h], first, latent->value_dim, model->files->path, err));
  }
  return STATUS_OK;
}

Status latent_heads_shape(Model *model, Error *err) {
  for (int i = 0; i < model->config.n_layers; i++) {
    if (!has_latent(model, i)) continue;
    model->made_bytes += latent_heads_bytes(model, i);
    TRY(latent_heads_place(model, i, NULL, err));
  }
  return STATUS_OK;
}

/* --- the weights of kv_b */

static uint8_t byte_at(const void *data, size_t at) {
  return ((const uint8_t *)data)[at];
}

/* The number of output c in a row of AutoAWQ's packed order; `at`: the index of the row's first number. */
static int nibble_at(const void *words, size_t at, size_t c) {
  static const int shifts[8] = {0, 16, 4, 20, 8, 24, 12, 28}; /* bit offsets of outputs 0 .. 7 in a word */
  uint32_t word;
  memcpy(&word, (const char *)words + (at + c) / 8 * 4, sizeof word);
  return (int)(word >> shifts[c % 8] & 15);
}

/* Weight (input i, output o) of 4 or 8 bits in groups. */
static float grouped_weight(const Linear *l, size_t i, size_t o) {
  const size_t width = (size_t)l->n_out + (size_t)l->skip, group = i / (size_t)l->group;
  const int q = l->bits == 4 ? nibble_at(l->qweight, i * width, o) : byte_at(l->qweight, i * width + o);
  if (l->kind == LINEAR_AWQ) {
    const float scale = stored_float(l->scales, DTYPE_F16, group * width + o);
    return (float)(q - nibble_at(l->qzeros, group * width, o)) * scale;
  }
  return (float)(q - byte_at(l->qzeros, group * width + o)) *
         stored_float(l->scales, DTYPE_F32, group * width + o);
}

/* Weight (input i, output o), by the formulas of Linear (model.h). */
static float weight_of(const Linear *l, size_t i, size_t o) {
  static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const size_t n_in = (size_t)l->n_in, at = o * (1 + (size_t)l->row_skip) * n_in + i;
  switch (l->kind) {
  case LINEAR_AWQ:
  case LINEAR_GROUPED: return grouped_weight(l, i, o);
  case LINEAR_INT8: return (float)(int8_t)byte_at(l->weight, at) * stored_float(l->scales, DTYPE_F32, o);
  case LINEAR_FP8: {
    const size_t n_groups = (n_in - 1) / (size_t)l->group + 1,
                 block = ((size_t)l->block_first + o) / (size_t)l->block;
    return e4m3_to_float(byte_at(l->weight, at)) *
           stored_float(l->scales, DTYPE_F32, block * n_groups + i / (size_t)l->group);
  }
  case LINEAR_FP4: {
    const int code = byte_at(l->weight, at / 2) >> (i % 2 ? 4 : 0) & 15;
    const uint8_t scale = byte_at(l->scales, at / (size_t)l->group);
    return (code & 8 ? -e2m1[code & 7] : e2m1[code]) * l->scale_values[scale];
  }
  case LINEAR_DENSE: break;
  }
  return stored_float(l->weight, l->dtype, at);
}

static void store(Dtype dtype, float value, void *to, size_t at) {
  const uint16_t half = dtype == DTYPE_F16 ? float_to_f16(value) : (uint16_t)(float_bits(value) >> 16);
  if (dtype == DTYPE_F32)
    memcpy((float *)to + at, &value, sizeof value);
  else
    memcpy((uint16_t *)to + at, &half, sizeof half);
}

static void fill(const Model *model, int layer, void *keys, int n_threads) {
  const ModelConfig *config = &model->config;
  const size_t rank = (size_t)config->latent.kv_rank, nope = (size_t)config->latent.nope_dim,
               step = nope + (size_t)config->latent.value_dim, rows = (size_t)config->n_heads * rank;
  const Linear *kv_b = &model->layers[layer].kv_b;
  const int32_t *order = kv_b->order;
#pragma omp parallel for num_threads(n_threads)
  for (size_t row = 0; row < rows; row++) {
    const size_t in = row % rank, input = order ? (size_t)order[in] : in;
    for (size_t i = 0; i < nope; i++)
      store(key_type(kv_b), weight_of(kv_b, in, row / rank * step + i), keys, (row - in + input) * nope + i);
  }
}

Status latent_heads_make(Model *model, int n_threads, Error *err) {
  for (int layer = 0; layer < model->config.n_layers; layer++) {
    if (!has_latent(model, layer)) continue;
    void *keys =
        model_make_memory(model, latent_heads_bytes(model, layer), 1, &model->layers[layer].kv_b, err);
    if (!keys) return STATUS_FAILED;
    fill(model, layer, keys, n_threads);
    TRY(latent_heads_place(model, layer, keys, err));
  }
  return STATUS_OK;
}

Status latent_heads_renew(const Model *model, int layer, Linear *heads, void *keys, int n_threads,
                          Error *err) {
  model->layers[layer].key_heads = heads;
  model->layers[layer].value_heads = heads + model->config.n_heads;
  fill(model, layer, keys, n_threads);
  return latent_heads_place(model, layer, keys, err);
}
