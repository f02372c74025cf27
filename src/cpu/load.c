/* load.c - the CPU's form of a model: its norms, biases and other vectors as fp32, its ropes.
 *
 * Called by: forward.c and session.c through cpu_backend.   Calls: the files of src/cpu/mixers, experts.c.
 * Always true: matrices are never copied. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu/cpu.h"

#include <omp.h>

enum { MAX_THREADS = 1024 };

/* The weights of norms that have none in the checkpoint: ones for the widest of them. */
static const float *take_ones(const ModelConfig *config, float *place, size_t *next) {
  if (!config->embedding_norm && !config->qk_norm_plain && !config->v_norm) return NULL;
  int n = config->hidden;
  for (int i = 0; i < config->n_layers; i++)
    if (n < config_layer(config, i).head_dim) n = config_layer(config, i).head_dim;
  float *out = place ? place + *next : NULL;
  for (int i = 0; out && i < n; i++) out[i] = 1;
  *next += (size_t)n;
  return out;
}

static size_t take_vectors(const Model *model, float *place, BackendModel *loaded) {
  const float plus = model->config.norm_plus_one;
  size_t next = 0, n_experts = 0;
  loaded->ones = take_ones(&model->config, place, &next);
  for (int i = 0; i < model->config.n_layers; i++) {
    const ModelLayer *from = &model->layers[i];
    const LayerKind kind = config_layer(&model->config, i).kind;
    loaded->layers[i] = (CpuLayer){
        .attn_norm = cpu_take_vector(&from->attn_norm, plus, place, &next),
        .attn_post_norm = cpu_take_vector(&from->attn_post_norm, plus, place, &next),
        .attn_norm_bias = cpu_take_vector(&from->attn_norm_bias, 0, place, &next),
        .mlp_norm = cpu_take_vector(&from->mlp_norm, plus, place, &next),
        .mlp_norm_bias = cpu_take_vector(&from->mlp_norm_bias, 0, place, &next),
        .mlp_post_norm = cpu_take_vector(&from->mlp_post_norm, plus, place, &next),
        .q_norm = cpu_take_vector(&from->q_norm, plus, place, &next),
        .k_norm = cpu_take_vector(&from->k_norm, plus, place, &next),
        .sinks = cpu_take_vector(&from->sinks, 0, place, &next),
        .input_norm = cpu_take_vector(&from->input_norm, plus, place, &next),
        .scalar = cpu_take_vector(&from->scalar, 0, place, &next),
        .xielu = xielu_read(&from->xielu),
        .q = cpu_take_linear(&from->q, place, &next),
        .k = cpu_take_linear(&from->k, place, &next),
        .v = cpu_take_linear(&from->v, place, &next),
        .o = cpu_take_linear(&from->o, place, &next),
        .q_a = cpu_take_linear(&from->q_a, place, &next),
        .kv_a = cpu_take_linear(&from->kv_a, place, &next),
        .q_a_norm = cpu_take_vector(&from->q_a_norm, plus, place, &next),
        .kv_a_norm = cpu_take_vector(&from->kv_a_norm, plus, place, &next),
        .attn_gate = cpu_take_linear(&from->attn_gate, place, &next),
        .gate = cpu_take_linear(&from->gate, place, &next),
        .up = cpu_take_linear(&from->up, place, &next),
        .down = cpu_take_linear(&from->down, place, &next),
        .input_gate = cpu_take_linear(&from->input_gate, place, &next),
        .input_projection = cpu_take_linear(&from->input_projection, place, &next),
    };
    if (config_layer(&model->config, i).n_experts > 0) {
      loaded->layers[i].experts =
          cpu_take_experts(&model->config, &from->moe, loaded->experts + n_experts, place, &next);
      n_experts += (size_t)model->config.experts.n_experts;
    }
    if (layer_has(config_layer(&model->config, i), LAYER_DELTA))
      loaded->layers[i].delta = cpu_take_delta(&model->config.delta, &from->delta, place, &next);
    loaded->layers[i].attn_mix = cpu_take_mix(&from->attn_mix, place, &next);
    loaded->layers[i].mlp_mix = cpu_take_mix(&from->mlp_mix, place, &next);
    loaded->layers[i].altup = cpu_take_altup(&from->altup, place, &next);
    if (config_layer(&model->config, i).sparsity > 0)
      loaded->layers[i].gate_deviations = (float)gaussian_quantile(config_layer(&model->config, i).sparsity);
    loaded->layers[i].index = cpu_take_linear(&from->index, place, &next);
    loaded->layers[i].index_q_norm = cpu_take_vector(&from->index_q_norm, plus, place, &next);
    loaded->layers[i].index_k_norm = cpu_take_vector(&from->index_k_norm, plus, place, &next);
    if (config_layer(&model->config, i).ngrams) {
      loaded->layers[i].ngrams = cpu_take_ngrams(&model->config, &from->ngrams, place, &next);
      loaded->layers[i].ngrams.hash = &loaded->hashes[config_layer(&model->config, i).ngrams - 1];
    }
    if (kind == LAYER_CONV)
      loaded->layers[i].conv = cpu_take_conv(&model->config.conv, &from->conv, place, &next);
  }
  for (int i = 0; model->config.qk_norm_plain && i < model->config.n_layers; i++)
    if (!config_layer(&model->config, i).no_qk_norm)
      loaded->layers[i].q_norm = loaded->layers[i].k_norm = loaded->ones;
  loaded->input_projection = cpu_take_linear(&model->input_projection, place, &next);
  loaded->input_norm = cpu_take_vector(&model->input_norm, plus, place, &next);
  loaded->head = cpu_take_linear(&model->head, place, &next);
  loaded->mix = cpu_take_mix(&model->mix, place, &next);
  for (int i = 0; i + 1 < model->config.altup.n; i++) {
    loaded->streams_in[i] = cpu_take_linear(&model->streams_in[i], place, &next);
    loaded->streams_out[i] = cpu_take_linear(&model->streams_out[i], place, &next);
  }
  loaded->draft = cpu_take_draft(model, plus, place, &next);
  loaded->final_norm =
      cpu_take_vector(&model->final_norm, model->config.final_norm_plain ? 0 : plus, place, &next);
  loaded->final_norm_bias = cpu_take_vector(&model->final_norm_bias, 0, place, &next);
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
  float *place = mem_alloc(2 * global + local, sizeof *place, "rotary frequencies", err);
  if (!place) return STATUS_FAILED;
  loaded->ropes[ROPE_GLOBAL] = make_rope(&config->rope, false, place);
  loaded->long_rope = make_rope(&config->rope, true, place + global);
  loaded->ropes[ROPE_LOCAL] = make_rope(&config->local_rope, false, place + 2 * global);
  return STATUS_OK;
}

/* The hashes of all layers with n-grams. */
static Status make_hashes(const ModelConfig *config, BackendModel *loaded, Error *err) {
  size_t n = 0;
  for (int layer = 0; layer < config->n_layers; layer++) n += config_layer(config, layer).ngrams > 0;
  if (n == 0) return STATUS_OK;
  loaded->hashes = mem_alloc(n, sizeof *loaded->hashes, "hashes of n-grams", err);
  if (!loaded->hashes) return STATUS_FAILED;
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

Status cpu_load(const Model *model, const BackendOptions *options, BackendModel **out, Error *err) {
  *out = NULL;
  const ModelConfig *config = &model->config;
  BackendModel *loaded = mem_alloc(1, sizeof *loaded, "the CPU backend", err);
  if (!loaded) return STATUS_FAILED;
  loaded->model = model;
  int n_usable, n_threads = options->n_threads > 0 ? options->n_threads : omp_get_num_procs();
  const Kernels *const *usable = kernels_usable(&n_usable);
  loaded->kernels = usable[n_usable - 1];
  loaded->n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
  loaded->layers = mem_alloc((size_t)config->n_layers, sizeof *loaded->layers, "the CPU backend", err);
  if (!loaded->layers) goto failed;
  const size_t n_experts = count_experts(config);
  if (n_experts) loaded->experts = mem_alloc(n_experts, sizeof *loaded->experts, "the CPU backend", err);
  if (n_experts && !loaded->experts) goto failed;
  if (make_hashes(config, loaded, err)) goto failed;
  loaded->vectors =
      mem_alloc(take_vectors(model, NULL, loaded), sizeof *loaded->vectors, "norms and biases", err);
  if (!loaded->vectors) goto failed;
  take_vectors(model, loaded->vectors, loaded);
  if (make_ropes(config, loaded, err)) goto failed;
  *out = loaded;
  return STATUS_OK;
failed:
  cpu_unload(loaded);
  return STATUS_FAILED;
}

/* Threads and chunks do not change bits; instruction sets differ in rounding and in the order of sums. */
Status cpu_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err) {
  (void)err;
  snprintf(out, size, "%s", loaded->kernels->name);
  return STATUS_OK;
}
