/* supported.c - see supported.h. Called by: backend.c, commands/device.c. */
#include "cuda/supported.h"

#include <string.h>

#include "base/half.h"
#include "model/layers.h"

/* Whether fp16, as which kernels read scales, holds a Linear's fp32 scales: rounding errs by at most 1e-7 of
 * the sum of squares, a fifth of the tolerance of fp16 matmuls. Numbers in fp16's normal range err by 4.3e-8
 * on average, subnormal ones by more, and those above 65504 do not fit. */
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

/* The reason to refuse a Linear, or NULL. Scales are NULL until model_prepare() has made them. */
static const char *beyond_linear(const Model *model, const Linear *linear) {
  if (linear->kind != LINEAR_GROUPED || !linear->scales || model->dummy || fp16_holds(linear)) return NULL;
  return "scales that fp16 cannot hold";
}

static const char *beyond_weights(const Model *model) {
  const char *beyond = beyond_linear(model, &model->head);
  for (int i = 0; !beyond && i < model->config.n_layers; i++)
    for (int which = 0; !beyond && which < N_LAYER_LINEARS; which++)
      beyond = beyond_linear(model, layer_linear(&model->layers[i], which));
  return beyond;
}

Status cuda_check_model(const Model *model, Error *err) {
  const char *beyond = beyond_weights(model);
  if (!beyond) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s has %s, which GPUs do not compute yet", model->config.architecture,
                   beyond);
}
