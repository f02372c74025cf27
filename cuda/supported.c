/* supported.c - see supported.h. A feature leaves the list with the kernel that computes it, and not before
 * that kernel was compared with the CPU.
 *
 * Called by: backend.c, commands/inspect.c. */
#include "cuda/supported.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "model/layers.h"

/* Rotary positions: all dimensions of each head, the same in every layer. */
static const char *beyond_positions(const ModelConfig *c) {
  if (c->rope.kind == ROPE_LONG) return "longrope";
  if (c->rotary_dim != c->head_dim) return "rotary positions of a part of each head";
  for (int layer = 0; layer < c->n_layers; layer++) {
    if (config_layer_rope(c, layer) == ROPE_NONE) return "layers without rotary positions";
    if (config_layer_rope(c, layer) == ROPE_LOCAL) return "rotary positions that differ by layer";
  }
  return NULL;
}

const char *cuda_cannot_compute(const ModelConfig *c) {
  if (c->attention_cap != 0) return "a soft cap of attention's scores";
  if (c->logit_cap != 0) return "a soft cap of logits";
  if (c->norms != NORM_BEFORE) return "norms of what comes out of attention";
  if (c->norm_plus_one) return "norms that multiply by 1 + weight";
  if (c->qk_norm == QK_NORM_WHOLE) return "q and k norms over all heads";
  if (c->activation != ACTIVATION_SILU) return "an activation other than silu";
  if (c->embedding_scale != 1) return "a factor of the embedding";
  if (c->attention_scale != 1 / sqrt(c->head_dim)) return "a factor of attention's scores";
  if (c->residual_scale != 1) return "a factor of what layers add";
  if (c->logit_divisor != 1) return "a divisor of logits";
  if (c->fused) return "q, k and v as one matrix";
  return beyond_positions(c);
}

/* Of a Linear's fp32 scales, that kernels read as fp16. Rounded, a number of fp16's usual range errs as
 * rounding weights to fp16 does, in the square by 4.3e-8 of it; smaller ones err more, larger ones have none.
 * Together they may err by 1e-7 of all scales' squares, a fifth of what products of fp16 are allowed. */
static bool fp16_holds(const Linear *linear) {
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

/* Scales are looked at where they are made already (model_prepare()). */
static const char *beyond_linear(const Model *model, const Linear *linear) {
  if (linear->kind != LINEAR_GROUPED || !linear->scales || model->dummy || fp16_holds(linear)) return NULL;
  return "scales that fp16 cannot hold";
}

static const char *beyond_weights(const Model *model) {
  const char *beyond = beyond_linear(model, &model->head);
  for (int i = 0; !beyond && i < model->config.n_layers; i++)
    for (int which = 0; !beyond && which < N_LAYER_LINEARS; which++)
      beyond = beyond_linear(model, layer_linear_const(&model->layers[i], which));
  return beyond;
}

Status cuda_check_model(const Model *model, Error *err) {
  const char *beyond = cuda_cannot_compute(&model->config);
  if (!beyond) beyond = beyond_weights(model);
  if (!beyond) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s has %s, which GPUs do not compute yet", model->config.architecture,
                   beyond);
}
