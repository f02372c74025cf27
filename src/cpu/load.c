/* load.c - the CPU's form of a model: its norms, biases and other vectors as fp32, its ropes.
 *
 * Called by: the commands, published.c, products.c and quantize/calibration.c through cpu_backend.
 * Always true: matrices are never copied. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/cpu.h"
#include "model/layers.h"

#include <omp.h>

enum { MAX_THREADS = 1024 };

/* Ones for norms without weights: as many as the widest row that such a norm may have. NULL if the model has
 * no such norm, or `place` is NULL. */
static const float *take_ones(const ModelConfig *config, float *place, size_t *next) {
  const bool of_all = config->norm == NORM_SPHERE; /* inputs of o and down have norms, too */
  if (!of_all && !config->embedding_norm && config->qk_norm != QK_NORM_PLAIN && !config->v_norm) return NULL;
  int n = config->hidden;
  for (int i = 0; i < config->n_layers; i++) {
    const LayerConfig own = config_layer(config, i);
    const int heads = of_all ? own.n_heads * own.head_dim : own.head_dim;
    if (n < heads) n = heads;
    if (of_all && n < own.intermediate) n = own.intermediate;
  }
  float *out = place ? place + *next : NULL;
  for (int i = 0; out && i < n; i++) out[i] = 1;
  *next += (size_t)n;
  return out;
}

/* A vector of a layer in the CPU's form (CpuLayer). */
static const float *take_layer_vector(const ModelConfig *config, const ModelLayer *layer, int which,
                                      float *place, size_t *next) {
  const Vector *from = &layer->vector[which];
  const size_t n = (size_t)from->n, start = *next;
  switch (which) {
  case LAYER_CONV_BIAS:
    return layer->conv_taps.data ? cpu_take_padded(from, (size_t)config->hidden, place, next) : NULL;
  case LAYER_DELTA_CONV_BIAS: return from->data ? cpu_take_padded(from, n, place, next) : NULL;
  case LAYER_DELTA_CONV: return from->data ? cpu_take_taps(from, config->delta.conv, place, next) : NULL;
  case LAYER_CONV_TAPS: return from->data ? cpu_take_taps(from, config->conv.taps, place, next) : NULL;
  case LAYER_NGRAM_TAPS: return from->data ? cpu_take_taps(from, config->ngrams.taps, place, next) : NULL;
  default: break;
  }
  const float *taken = cpu_take_vector(from, 0, place, next);
  float *out = taken ? place + start : NULL;
  for (size_t i = 0; out && i < n; i++) out[i] = layer_vector_number(config, which, out[i]);
  for (size_t i = 0; out && which == LAYER_DELTA_A_LOG && i < n; i++) out[i] = (float)-exp((double)out[i]);
  for (size_t i = 0; out && which == LAYER_ROUTER_SCALE && i < n; i++) out[i] /= sqrtf((float)config->hidden);
  return taken;
}

static void take_layer(const Model *model, int index, CpuExpert *experts, float *place, size_t *next,
                       CpuLayer *to) {
  const ModelConfig *config = &model->config;
  const ModelLayer *from = &model->layers[index];
  const LayerConfig own = config_layer(config, index);
  for (int which = 0; which < N_LAYER_VECTORS; which++)
    to->vector[which] = take_layer_vector(config, from, which, place, next);
  for (int which = 0; which < N_LAYER_LINEARS; which++)
    to->linear[which] = cpu_take_linear(&from->linear[which], place, next);
  to->experts = experts;
  for (int e = 0; e < own.n_experts; e++)
    for (int part = 0; part < N_EXPERT_LINEARS; part++)
      experts[e].linear[part] = cpu_take_linear(&from->experts[e].linear[part], place, next);
  to->xielu = xielu_read(from);
}

/* The weights by which the delta rule normalises q and k. */
static void take_delta_scales(const DeltaConfig *delta, float *place, size_t *next, BackendModel *loaded) {
  if (delta->n_key_heads == 0) return;
  float *q = cpu_take_floats((size_t)delta->key_dim, place, next),
        *k = cpu_take_floats((size_t)delta->key_dim, place, next);
  for (int i = 0; place && i < delta->key_dim; i++) {
    q[i] = (float)(1.0 / delta->key_dim);
    k[i] = (float)(1 / sqrt(delta->key_dim));
  }
  loaded->q_scales = q, loaded->k_scales = k;
}

static size_t take_vectors(const Model *model, float *place, BackendModel *loaded) {
  const ModelConfig *config = &model->config;
  size_t next = 0, n_experts = 0;
  loaded->ones = take_ones(config, place, &next);
  take_delta_scales(&config->delta, place, &next, loaded);
  for (int i = 0; i < config->n_layers; i++) {
    CpuLayer *layer = &loaded->layers[i];
    const LayerConfig own = config_layer(config, i);
    if (own.back > 0) {
      *layer = *(layer - own.back);
      continue;
    }
    take_layer(model, i, loaded->experts + n_experts, place, &next, layer);
    n_experts += (size_t)own.n_experts;
    if (own.ngrams) layer->hash = &loaded->hashes[own.ngrams - 1];
    if (own.qk_norm == QK_NORM_PLAIN) layer->q_norm = layer->k_norm = loaded->ones;
  }
  for (int which = 0; which < N_MODEL_LINEARS; which++)
    loaded->linear[which] = cpu_take_linear(&model->linear[which], place, &next);
  for (int which = 0; which < N_MODEL_VECTORS; which++)
    loaded->vector[which] =
        cpu_take_vector(&model->vector[which], model_vector_plus(config, which), place, &next);
  return next;
}

void cpu_unload(BackendModel *loaded) {
  if (!loaded) return;
  free(loaded->layers);
  free(loaded->experts);
  free(loaded->hashes);
  free(loaded->vectors);
  free(loaded->ropes[ROPE_GLOBAL].frequencies);
  free(loaded);
}

static CpuRope make_rope(const RopeConfig *rope, bool long_rope, float *place) {
  CpuRope made = {.frequencies = place, .n_pairs = rope->rotary_dim / 2, .neighbours = rope->neighbours};
  rope_frequencies(rope, long_rope, place, &made.attention_factor);
  return made;
}

/* All three ropes in one block of memory; most models use only the first. */
static Status make_ropes(const ModelConfig *config, BackendModel *loaded, Error *err) {
  const size_t global = (size_t)config->rope.rotary_dim / 2,
               local = (size_t)config->local_rope.rotary_dim / 2;
  float *place;
  TRY(NEW(place, 2 * global + local, "rotary frequencies", err));
  loaded->ropes[ROPE_GLOBAL] = make_rope(&config->rope, false, place);
  loaded->long_rope = make_rope(&config->rope, true, place + global);
  loaded->ropes[ROPE_LOCAL] = make_rope(&config->local_rope, false, place + 2 * global);
  return STATUS_OK;
}

static Status make_hashes(const ModelConfig *config, BackendModel *loaded, Error *err) {
  size_t n = 0;
  for (int layer = 0; layer < config->n_layers; layer++) n += config_layer(config, layer).ngrams > 0;
  if (n == 0) return STATUS_OK;
  TRY(NEW(loaded->hashes, n, "hashes of n-grams", err));
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config_layer(config, layer).ngrams)
      ngram_hash(config, layer, &loaded->hashes[config_layer(config, layer).ngrams - 1]);
  return STATUS_OK;
}

static size_t count_experts(const ModelConfig *config) {
  size_t n = 0;
  for (int layer = 0; layer < config->n_layers; layer++) n += (size_t)config_layer(config, layer).n_experts;
  return n;
}

RELEASE_BY(unload, BackendModel, cpu_unload)

Status cpu_load(const Model *model, const BackendOptions *options, BackendModel **out, Error *err) {
  *out = NULL;
  const ModelConfig *config = &model->config;
  OWNED(unload) BackendModel *loaded = NULL;
  TRY(NEW(loaded, 1, "the CPU backend", err));
  loaded->model = model;
  int n_usable, n_threads = options->n_threads > 0 ? options->n_threads : omp_get_num_procs();
  const Kernels *const *usable = kernels_usable(&n_usable);
  loaded->kernels = usable[n_usable - 1];
  loaded->n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
  TRY(NEW(loaded->layers, (size_t)config->n_layers, "the CPU backend", err));
  const size_t n_experts = count_experts(config);
  if (n_experts) TRY(NEW(loaded->experts, n_experts, "the CPU backend", err));
  TRY(make_hashes(config, loaded, err));
  TRY(NEW(loaded->vectors, take_vectors(model, NULL, loaded), "norms and biases", err));
  take_vectors(model, loaded->vectors, loaded);
  TRY(make_ropes(config, loaded, err));
  *out = TAKE(loaded);
  return STATUS_OK;
}

/* The name of the instruction set is enough: threads and chunks change no bit, but instruction sets differ in
 * rounding and in the order of sums. */
Status cpu_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err) {
  snprintf(out, size, "%s", loaded->kernels->name);
  return STATUS_OK;
}
