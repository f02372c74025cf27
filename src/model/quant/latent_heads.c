/* latent_heads.c - the parts of kv_b_proj that belong to one head of latent attention.
 *
 * A head has nope_dim outputs for its key and value_dim for its value (LatentConfig). value_heads[h] is a
 * view of the head's value outputs. key_heads[h] is a transposed copy of its key outputs: attention
 * multiplies queries by it. The copy is dense, in the type of a dense kv_b_proj, else in fp16. fp16 rounds a
 * weight of 2^-14 or more by at most 2^-11 of its size. If kv_b_proj rounds its inputs to int8, the copy does
 * not.
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

size_t latent_heads_bytes(const Model *model, int layer) {
  const ModelConfig *config = &model->config;
  if (!config_layer(config, layer).latent) return 0;
  return (size_t)config->n_heads * key_bytes(config, &model->layers[layer].kv_b);
}

Status latent_heads_open(Model *model, Error *err) {
  const size_t n = (size_t)model->config.n_heads;
  for (int i = 0; i < model->config.n_layers; i++) {
    ModelLayer *layer = &model->layers[i];
    if (!config_layer(&model->config, i).latent) continue;
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
    if (!config_layer(&model->config, i).latent) continue;
    model->made_bytes += latent_heads_bytes(model, i);
    TRY(latent_heads_place(model, i, NULL, err));
  }
  return STATUS_OK;
}

/* --- the weights of kv_b */

enum { READ_AT_ONCE = 64 }; /* inputs */

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
               step = nope + (size_t)config->latent.value_dim, n_heads = (size_t)config->n_heads;
  const Linear *kv_b = &model->layers[layer].kv_b;
  const int32_t *order = kv_b->order;
#pragma omp parallel for num_threads(n_threads)
  for (size_t row = 0; row < n_heads * nope; row++) {
    const size_t head = row / nope, i = row % nope;
    float weights[READ_AT_ONCE];
    for (size_t in = 0; in < rank; in++) {
      if (in % READ_AT_ONCE == 0)
        linear_read(kv_b, (int)(head * step + i), (int)in,
                    (int)(rank - in < READ_AT_ONCE ? rank - in : READ_AT_ONCE), weights);
      const size_t input = order ? (size_t)order[in] : in;
      store(key_type(kv_b), weights[in % READ_AT_ONCE], keys, (head * rank + input) * nope + i);
    }
  }
}

Status latent_heads_make(Model *model, int n_threads, Error *err) {
  for (int layer = 0; layer < model->config.n_layers; layer++) {
    if (!config_layer(&model->config, layer).latent) continue;
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
