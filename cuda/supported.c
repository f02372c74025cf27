/* supported.c - see supported.h. A feature leaves the list with the kernel that computes it, and not before
 * that kernel was compared with the CPU.
 *
 * Called by: backend.c, commands/device.c. */
#include "cuda/supported.h"

#include <string.h>

#include "base/half.h"
#include "model/layers.h"

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
      beyond = beyond_linear(model, layer_linear(&model->layers[i], which));
  return beyond;
}

Status cuda_check_model(const Model *model, Error *err) {
  const char *beyond = beyond_weights(model);
  if (!beyond) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s has %s, which GPUs do not compute yet", model->config.architecture,
                   beyond);
}
