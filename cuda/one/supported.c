/* supported.c - cuda_check_model() of table.h. */
#include <string.h>

#include "base/half.h"
#include "cuda/kernels/linear/dispatch.h"
#include "cuda/one/table.h"
#include "model/layers.h"

/* True if a Linear's fp32 scales can be rounded to the fp16 that kernels read: the squared error may be 1e-7
 * of the sum of squares, a fifth of what test_linear.cu allows fp16 matmuls. It is 4.3e-8 on average in
 * fp16's normal range, and more for subnormal numbers. Scales above 65504 do not fit. */
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

/* scales_fit_fp16() of all matrices outside the layers. */
static bool others_fit_fp16(const Model *model) {
  bool fit = true;
  for (int i = 0; i < N_MODEL_LINEARS; i++) fit = fit && scales_fit_fp16(&model->linear[i]);
  return fit;
}

/* Names a part of the transformer that no kernel computes: the first row of parts[] that is true of any
 * layer. NULL: there is none. */
static const char *unsupported_part(const ModelConfig *config) {
  const bool chooses = config->indexer.block > 0, latent = config->latent.kv_rank > 0;
  const char *words = NULL;
  size_t first = SIZE_MAX;
  for (int layer = 0; layer < config->n_layers; layer++) {
    const LayerConfig own = config_layer(config, layer);
    const bool attention = own.kind == LAYER_ATTENTION;
    const struct {
      bool there;
      const char *words;
    } parts[] = {
        {config->layer_scalar && config->norms == NORM_BEFORE, "a factor of what leaves a layer"},
        /* attention/chosen.h */
        {chooses && attention &&
             (own.head_dim % 16 != 0 || own.head_dim > 256 || own.n_heads > 16 * own.n_kv_heads),
         "attention to chosen positions with heads that it does not take"},
        /* Kernels of attention write rows without gaps; matmuls read each row at a multiple of 8 numbers. */
        {!latent && attention &&
             (own.n_heads * own.head_dim % 8 != 0 || own.n_heads * own.value_dim % 8 != 0),
         "heads that have together a number of outputs that is no multiple of 8"},
        /* the limit of ops_spread_values() */
        {config->value_dim > 0 && own.n_kv_heads > CUDA_MAX_VALUES / own.value_dim,
         "values that are shorter than keys, and more than 12288 numbers of a token"},
        {(own.chunk & (own.chunk - 1)) != 0, "attention in chunks whose size is no power of two"},
        {config->experts.n_experts > LINEAR_MAX_EXPERTS, "more than 1024 experts"},
        {config->experts.n_chosen > LINEAR_MAX_CHOSEN, "more than 32 experts of a token"},
        {config->experts.scales_input && config->experts.n_chosen > 1,
         "several experts of a token, each with an input of its own"},
        {latent && config->n_heads > LINEAR_MAX_EXPERTS, "latent attention with more than 1024 heads"},
        {config->latent.kv_rank % 16 != 0 || config->latent.value_dim % 16 != 0,
         "latent attention whose kv_lora_rank and v_head_dim are not multiples of 16"},
    };
    for (size_t i = 0; i < first && i < sizeof parts / sizeof *parts; i++)
      if (parts[i].there) first = i, words = parts[i].words;
  }
  return words;
}

/* True if the small matrices, which a GPU keeps as arrays of fp32, are all dense. */
static bool has_dense_coefficients(const Model *model) {
  bool dense = true;
  for (int i = 0; model->config.altup.n > 0 && i < model->config.n_layers; i++)
    for (int which = 0; which < N_LAYER_LINEARS; which++)
      dense = dense && (layer_device_matrix(&model->config, which) != MATRIX_SMALL ||
                        model->layers[i].linear[which].kind == LINEAR_DENSE);
  return dense;
}

/* Names a matrix with permuted inputs (GPTQ's act-order) whose x no kernel gathers; NULL: there is none.
 * Kernels gather x only for matrices of a layer that products.c multiplies, not for experts, and not in a
 * drafter, in a model with residual streams, or in one whose layers may share matrices. */
static const char *ordered_apart(const Model *model) {
  const ModelConfig *c = &model->config;
  for (int i = 0; i < N_MODEL_LINEARS; i++)
    if (model->linear[i].order) return model->linear[i].name;
  for (int i = 0; i < c->n_layers; i++)
    for (int which = 0; which < layer_linear_count(c, i); which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      const bool apart = c->draft.kind || c->streams.n > 0 || c->norm == NORM_SPHERE ||
                         layer_device_matrix(c, which) >= MATRIX_ROUTER;
      if (linear->order && apart) return linear->name;
    }
  return NULL;
}

static Status refuse(const Model *model, const char *words, Error *err) {
  return error_set(err, STATUS_MODEL, "%s has %s, which GPUs do not compute yet", model->config.architecture,
                   words);
}

Status cuda_check_model(const Model *model, Error *err) {
  const char *part = unsupported_part(&model->config);
  if (part) return refuse(model, part, err);
  for (int i = 0; i < model->config.n_layers; i++)
    if (model->layers[i].key_heads && model->layers[i].kv_b.kind == LINEAR_INT8)
      return refuse(model, "latent attention with kv_b_proj in W8A8", err);
  const char *ordered = model->config.quant.ordered ? ordered_apart(model) : NULL;
  if (ordered)
    return error_set(err, STATUS_MODEL,
                     "%s has inputs in the order of activations, which GPUs do not gather there", ordered);
  if (!has_dense_coefficients(model)) return refuse(model, "AltUp with quantised coefficients", err);
  bool fit = model->dummy || others_fit_fp16(model);
  for (int i = 0; !model->dummy && i < model->config.n_layers; i++)
    for (int which = 0; which < layer_linear_count(&model->config, i); which++)
      fit = fit && scales_fit_fp16(layer_linear(&model->layers[i], which));
  return fit ? STATUS_OK : refuse(model, "scales that fp16 cannot hold", err);
}
