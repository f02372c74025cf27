/* scaled_taps.c - the factors of the inputs of Mamba-2's convolution (Falcon-H1), as factors of its taps.
 *
 * Called by: repack.c (model_prepare), hf_directory.c (sizes).
 * The convolution is linear in each channel, and the bias is added after it: so a factor of a channel's
 * inputs can be a factor of the channel's taps instead. The taps are copied as fp32. */
#include "base/half.h"
#include "model/loaders.h"

static bool has_factors(const DeltaConfig *delta) {
  return delta->rule == RULE_MAMBA2 && (delta->q_scale != 1 || delta->k_scale != 1 || delta->v_scale != 1);
}

static double factor_of(const DeltaConfig *delta, int channel) {
  const DeltaOffsets offsets = delta_offsets(delta); /* in the order v, k, q */
  return channel < offsets.k ? delta->v_scale : channel < offsets.q ? delta->k_scale : delta->q_scale;
}

void taps_count(Model *model) {
  const ModelConfig *config = &model->config;
  for (int i = 0; has_factors(&config->delta) && i < config->n_layers; i++)
    model->made_bytes += (size_t)model->layers[i].delta_conv.n * sizeof(float);
}

Status taps_scale(Model *model, Error *err) {
  DeltaConfig *delta = &model->config.delta;
  for (int i = 0; has_factors(delta) && i < model->config.n_layers; i++) {
    Vector *taps = &model->layers[i].delta_conv;
    if (!taps->data) continue;
    const size_t n = (size_t)taps->n;
    float *scaled = model_make_memory(model, n, sizeof *scaled, &model->layers[i].delta_qkv, err);
    if (!scaled) return STATUS_FAILED;
    floats_read(taps->data, taps->dtype, 0, n, scaled);
    for (size_t at = 0; at < n; at++) scaled[at] *= (float)factor_of(delta, (int)at / delta->conv);
    *taps = (Vector){scaled, DTYPE_F32, taps->n};
  }
  delta->q_scale = delta->k_scale = delta->v_scale = 1;
  return STATUS_OK;
}
