/* supported.c - cuda_check_model() of backend.h. Called by: backend.c, commands/device.c. */
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "cuda/backend.h"
#include "model/layers.h"

/* True if a Linear's fp32 scales can be rounded to fp16, which kernels read: the error is at most 1e-7 of the
 * sum of squares, a fifth of the tolerance of fp16 matmuls. Numbers in fp16's normal range err by 4.3e-8 on
 * average, subnormal ones by more, and numbers above 65504 do not fit. */
static bool scales_fit_fp16(const Linear *linear) {
  if (linear->kind != LINEAR_GROUPED || !linear->scales) return true; /* NULL until model_prepare() */
  const double most = 1e-7;
  const int n_groups = linear->n_in / linear->group;
  const size_t width = (size_t)linear->n_out + (size_t)linear->skip;
  double lost = 0, all = 0;
#pragma omp parallel for reduction(+ : lost, all)
  for (int g = 0; g < n_groups; g++) {
    const char *row = (const char *)linear->scales + (size_t)g * width * sizeof(float);
    for (int o = 0; o < linear->n_out; o++) {
      float scale;
      memcpy(&scale, row + (size_t)o * sizeof scale, sizeof scale);
      const double error = f16_to_float(float_to_f16(scale)) - scale;
      lost += error * error;
      all += (double)scale * scale;
    }
  }
  return lost <= most * all;
}

enum { LARGEST_HEAD = 256 };

/* True if the layers have the model's sizes: CUDA's activations, weights and cache have one size each. */
static bool layers_are_alike(const ModelConfig *config) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if (!config_layer_is_alike(config, layer)) return false;
  return true;
}

static bool has_k_as_v(const ModelConfig *config) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config_layer(config, layer).k_as_v) return true;
  return false;
}

static bool shares_kv(const ModelConfig *config) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config_layer(config, layer).shares_kv) return true;
  return false;
}

/* A part of the transformer that no kernel computes, or NULL. */
static const char *unsupported_part(const ModelConfig *config) {
  const struct {
    bool there;
    const char *words;
  } parts[] = {
      {!layers_are_alike(config), "layers of different sizes"},
      {has_k_as_v(config), "keys that are values as well"},
      {shares_kv(config), "layers that share keys and values"},
      {config->per_layer_width > 0, "per-layer embeddings"},
      {config->v_norm, "a norm of v"},
      {config->layer_scalar, "a factor of what leaves a layer"},
      {config->rope.kind == ROPE_PROPORTIONAL, "proportional rope"},
      {config->head_dim > LARGEST_HEAD, "heads of more than 256 numbers"},
      {config->attn_sinks, "attention sinks"},
      {config->embedding_norm, "normalised embeddings"},
      {config->qk_norm_plain, "q and k norms without weights"},
      {config->final_norm_plain, "a last norm unlike the others"},
      {config->post_norm_eps != 0, "norms of outputs with an epsilon of their own"},
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].there) return parts[i].words;
  return NULL;
}

static Status refuse(const Model *model, const char *words, Error *err) {
  return error_set(err, STATUS_MODEL, "%s has %s, which GPUs do not compute yet", model->config.architecture,
                   words);
}

/* Refuses weights that no kernel reads. */
static Status check_kind(const Linear *linear, const Model *model, Error *err) {
  char words[128];
  if (linear->kind != LINEAR_FP8 && linear->kind != LINEAR_FP4) return STATUS_OK;
  snprintf(words, sizeof words, "weights in %s (%s)", linear->kind == LINEAR_FP8 ? "FP8" : "FP4",
           linear->name);
  return refuse(model, words, err);
}

static Status check_kinds(const Model *model, Error *err) {
  for (int i = 0; i < model->config.n_layers; i++)
    for (int which = 0; which < N_LAYER_LINEARS; which++)
      TRY(check_kind(layer_linear(&model->layers[i], which), model, err));
  return check_kind(&model->head, model, err);
}

Status cuda_check_model(const Model *model, Error *err) {
  const char *part = unsupported_part(&model->config);
  if (part) return refuse(model, part, err);
  TRY(check_kinds(model, err));
  bool fit = model->dummy || scales_fit_fp16(&model->head);
  for (int i = 0; !model->dummy && i < model->config.n_layers; i++)
    for (int which = 0; which < N_LAYER_LINEARS; which++)
      fit = fit && scales_fit_fp16(layer_linear(&model->layers[i], which));
  return fit ? STATUS_OK : refuse(model, "scales that fp16 cannot hold", err);
}
