/* dummy.c - a Model from a config.json alone, for measuring speed where the weights are not at hand.
 *
 * Called by: commands/bench.c.   Calls: config.c, layers.c.
 * Always true: kinds, sizes, groups and weight_bytes are what hf_directory.c would find in an fp16 checkpoint
 *              of this config; every tensor has an address of its own in one reserved mapping, which nobody
 *              can read or write until model_fill_dummy() put memory behind it. lay_out() runs twice, to
 *              measure and then to place. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/half.h"
#include "model/loaders.h"

/* --- where everything lies */

enum { ALIGNMENT = 64 }; /* a line of the cache: a checkpoint promises less */

typedef struct {
  unsigned char *base; /* the reserved mapping, or NULL while measuring */
  size_t used;         /* bytes of it so far */
  size_t weight_bytes; /* the same without what alignment costs */
} Layout;

/* A matrix is at most 2^24 by 2^20 of 2 bytes, and layers are at most 4096 (config.c): nothing overflows. */
static const void *take(Layout *layout, size_t n, size_t size) {
  const void *place = layout->base ? layout->base + layout->used : NULL;
  layout->weight_bytes += n * size;
  layout->used += (n * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return place;
}

static Vector take_vector(Layout *layout, int n) {
  return (Vector){take(layout, (size_t)n, 2), DTYPE_F16, n};
}

/* As AutoAWQ and transformers decide: a layer stays dense where its name holds one of the listed words. */
static bool is_quantised(const ModelConfig *config, const char *name) {
  if (config->quant != QUANT_AWQ) return false;
  for (int i = 0; i < config->n_dense_modules; i++)
    if (strstr(name, config->dense_modules[i])) return false;
  return true;
}

static Status take_linear(Layout *layout, const Model *model, int which, Linear *linear, Error *err) {
  const ModelConfig *config = &model->config;
  layer_linear_sizes(config, which, &linear->n_in, &linear->n_out);
  const size_t n_in = (size_t)linear->n_in, n_out = (size_t)linear->n_out;
  if (is_quantised(config, linear->name)) {
    linear->kind = LINEAR_AWQ;
    linear->group = config->quant_group == -1 ? linear->n_in : config->quant_group;
    TRY(check_groups(linear, linear->group, model->files->path, linear->name, err));
    const size_t groups = n_in / (size_t)linear->group;
    linear->qweight = take(layout, n_in * (n_out / 8), 4);
    linear->qzeros = take(layout, groups * (n_out / 8), 4);
    linear->scales = take(layout, groups * n_out, 2);
  } else {
    linear->kind = LINEAR_DENSE;
    linear->dtype = DTYPE_F16;
    linear->weight = take(layout, n_in * n_out, 2);
  }
  const bool qkv = which == LAYER_Q || which == LAYER_K || which == LAYER_V;
  if (qkv && config->qkv_bias) linear->bias = take_vector(layout, linear->n_out);
  return STATUS_OK;
}

static Status take_layer(Layout *layout, const Model *model, ModelLayer *layer, Error *err) {
  const ModelConfig *config = &model->config;
  layer->attn_norm = take_vector(layout, config->hidden);
  for (int which = 0; which < N_LAYER_LINEARS; which++)
    TRY(take_linear(layout, model, which, layer_linear(layer, which), err));
  if (config->qk_norm) {
    layer->q_norm = take_vector(layout, config->head_dim);
    layer->k_norm = take_vector(layout, config->head_dim);
  }
  layer->mlp_norm = take_vector(layout, config->hidden);
  return STATUS_OK;
}

static Status lay_out(Layout *layout, Model *model, Error *err) {
  const ModelConfig *config = &model->config;
  const size_t cells = (size_t)config->vocab_size * (size_t)config->hidden;
  model->embedding = (Matrix){take(layout, cells, 2), DTYPE_F16, config->vocab_size, config->hidden};
  for (int i = 0; i < config->n_layers; i++) TRY(take_layer(layout, model, &model->layers[i], err));
  model->final_norm = take_vector(layout, config->hidden);
  model->head = (Linear){.kind = LINEAR_DENSE,
                         .n_in = config->hidden,
                         .n_out = config->vocab_size,
                         .dtype = DTYPE_F16,
                         .weight = config->tied_embeddings ? model->embedding.data : take(layout, cells, 2),
                         .name = config->tied_embeddings ? "model.embed_tokens" : "lm_head"};
  model->weight_bytes = layout->weight_bytes;
  return STATUS_OK;
}

/* Addresses without memory: they cost nothing, and whoever reads them by mistake does not go on. */
static Status reserve(Model *model, size_t bytes, Error *err) {
  void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return error_set(err, STATUS_FAILED, "%s: cannot reserve %zu bytes of addresses: %s", model->files->path,
                     bytes, strerror(errno));
  model->files->reserved = base;
  model->files->reserved_bytes = bytes;
  return STATUS_OK;
}

static Status read_config(const char *path, ModelConfig *config, Error *err) {
  if (file_is_directory(path)) return config_load(path, config, err);
  MappedFile file;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  Status status = config_parse(path, (const char *)file.data, file.size, config, err);
  file_unmap(&file);
  return status;
}

static Status make_dummy(const char *path, Model *model, Error *err) {
  if (!(model->files = mem_alloc(1, sizeof *model->files, "a model", err))) return STATUS_FAILED;
  if (!(model->files->path = path_join("", path, err))) return STATUS_FAILED; /* a copy */
  model->dummy = true;
  model->layout = LAYOUT_HF_DIRECTORY;
  model->theta_source = model->eps_source = "config.json";
  TRY(read_config(path, &model->config, err));
  TRY(model_make_layers(model, err));
  Layout layout = {0};
  TRY(lay_out(&layout, model, err));
  TRY(reserve(model, layout.used, err));
  layout = (Layout){.base = model->files->reserved};
  return lay_out(&layout, model, err);
}

Status model_open_dummy(const char *path, Model **model, Error *err) {
  if (!(*model = mem_alloc(1, sizeof **model, "a model", err))) return STATUS_FAILED;
  return make_dummy(path, *model, err);
}

/* --- what is in it
 *
 * Numbers that keep activations finite through any number of layers, and logits apart: a product has about
 * its input's variance, norms are 1. */

typedef struct {
  uint64_t state;
} Random;

/* splitmix64 (Vigna, public domain). */
static uint64_t next_random(Random *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Every address of the mapping is a multiple of ALIGNMENT and owns the bytes up to the next one. */
static void fill_bytes(const void *place, size_t bytes, Random *random) {
  uint64_t *words = (uint64_t *)place;
  for (size_t i = 0; i < (bytes + 7) / 8; i++) words[i] = next_random(random);
}

/* n fp16 numbers even between low and high, of 65,536 steps. */
static void fill_halves(const void *place, size_t n, float low, float high, Random *random) {
  uint16_t *halves = (uint16_t *)place;
  for (size_t i = 0; i < n; i += 4) {
    uint64_t bits = next_random(random);
    for (size_t j = i; j < n && j < i + 4; j++, bits >>= 16)
      halves[j] = float_to_f16(low + (high - low) * (float)(bits & 0xffff) * 0x1p-16f);
  }
}

static void fill_vector(const Vector *vector, float low, float high, Random *random) {
  if (vector->data) fill_halves(vector->data, (size_t)vector->n, low, high, random);
}

static void fill_norm(const Vector *norm, Random *random) {
  fill_vector(norm, 1, 1, random);
}

/* q - z of independent even nibbles has the variance 42.5; even numbers from -a to a have a^2 / 3. */
static void fill_linear(const Linear *linear, Random *random) {
  const size_t n_in = (size_t)linear->n_in, n_out = (size_t)linear->n_out;
  if (linear->kind == LINEAR_AWQ) {
    const size_t groups = n_in / (size_t)linear->group;
    const float scale = 1 / sqrtf(42.5f * (float)linear->n_in);
    fill_bytes(linear->qweight, n_in * n_out / 2, random);
    fill_bytes(linear->qzeros, groups * n_out / 2, random);
    fill_halves(linear->scales, groups * n_out, 0.9f * scale, 1.1f * scale, random);
  } else {
    const float most = sqrtf(3 / (float)linear->n_in);
    fill_halves(linear->weight, n_in * n_out, -most, most, random);
  }
  fill_vector(&linear->bias, -0.1f, 0.1f, random);
}

Status model_fill_dummy(const Model *model, Error *err) {
  const ModelConfig *config = &model->config;
  if (mprotect(model->files->reserved, model->files->reserved_bytes, PROT_READ | PROT_WRITE) != 0)
    return error_set(err, STATUS_FAILED, "%s: no memory for %zu bytes of random weights: %s",
                     model->files->path, model->weight_bytes, strerror(errno));
  Random random = {1};
  for (int i = 0; i < config->n_layers; i++) {
    const ModelLayer *layer = &model->layers[i];
    fill_norm(&layer->attn_norm, &random);
    fill_norm(&layer->q_norm, &random);
    fill_norm(&layer->k_norm, &random);
    fill_norm(&layer->mlp_norm, &random);
    for (int which = 0; which < N_LAYER_LINEARS; which++)
      fill_linear(layer_linear_const(layer, which), &random);
  }
  fill_norm(&model->final_norm, &random);
  fill_linear(&model->head, &random);
  if (!config->tied_embeddings)
    fill_halves(model->embedding.data, (size_t)config->vocab_size * (size_t)config->hidden, -1, 1, &random);
  return STATUS_OK;
}
