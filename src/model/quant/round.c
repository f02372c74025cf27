/* round.c - dense weights rounded to 4 bits, for drafters: a drafter's results decide only how many guesses
 * are right.
 *
 * Called by: commands/answer/guess.c. An output's weights for a group of GROUP inputs become the nearest of
 * 16 successive multiples of `scale`; smallest and largest are those of the weights and 0:
 *     scale = (largest - smallest) / 15,  zero = round(-smallest / scale),  q = round(w / scale) + zero */
#include <math.h>
#include <omp.h>

#include "base/half.h"
#include "model/loaders.h"

enum { GROUP = 128 };

typedef struct {
  uint32_t *weights, *zeros;
  uint16_t *scales;
} Rounded;

static uint32_t nearest(float x) {
  return x < 0 ? 0 : x > 15 ? 15 : (uint32_t)lrintf(x);
}

/* Rounds one group of inputs for eight outputs. */
static void round_group(const Linear *l, int group, int first, const Rounded *to) {
  const size_t words = (size_t)l->n_out / 8, word = (size_t)first / 8;
  float w[8][GROUP], scale[8];
  uint32_t zero[8], all_zeros = 0;
  for (int o = 0; o < 8; o++) {
    float low = 0, high = 0;
    floats_read(l->weight, l->dtype, (size_t)(first + o) * (size_t)l->n_in + (size_t)group * GROUP, GROUP,
                w[o]);
    for (int i = 0; i < GROUP; i++) {
      if (low > w[o][i]) low = w[o][i];
      if (high < w[o][i]) high = w[o][i];
    }
    const uint16_t half = float_to_f16(high > low ? (high - low) / 15 : 1);
    scale[o] = f16_to_float(half) > 0 ? f16_to_float(half) : 1;
    zero[o] = nearest(-low / scale[o]);
    to->scales[(size_t)group * (size_t)l->n_out + (size_t)(first + o)] = float_to_f16(scale[o]);
  }
  for (size_t o = 0; o < 8; o++) all_zeros |= zero[o] << 4 * awq_nibble(o);
  to->zeros[(size_t)group * words + word] = all_zeros;
  for (int i = 0; i < GROUP; i++) {
    uint32_t bits = 0;
    for (size_t o = 0; o < 8; o++) bits |= nearest(w[o][i] / scale[o] + (float)zero[o]) << 4 * awq_nibble(o);
    to->weights[((size_t)group * GROUP + (size_t)i) * words + word] = bits;
  }
}

static Status round_linear(Model *model, Linear *l, int n_threads, Error *err) {
  if (l->kind != LINEAR_DENSE || l->n_out == 0 || l->row_skip || l->n_in % GROUP || l->n_out % 8)
    return STATUS_OK;
  const int n_groups = l->n_in / GROUP, n_eights = l->n_out / 8;
  const size_t words = (size_t)l->n_in * (size_t)n_eights, groups = (size_t)n_groups * (size_t)l->n_out;
  Rounded to;
  if (!(to.weights = model_make_memory(model, words, sizeof *to.weights, l, err)) ||
      !(to.zeros = model_make_memory(model, groups / 8, sizeof *to.zeros, l, err)) ||
      !(to.scales = model_make_memory(model, groups, sizeof *to.scales, l, err)))
    return STATUS_FAILED;
#pragma omp parallel for num_threads(n_threads) schedule(static)
  for (int eight = 0; eight < n_eights; eight++)
    for (int group = 0; group < n_groups; group++) round_group(l, group, 8 * eight, &to);
  model->made_bytes +=
      words * sizeof *to.weights + groups / 8 * sizeof *to.zeros + groups * sizeof *to.scales;
  model->replaced_bytes += (size_t)l->n_in * (size_t)l->n_out * dtype_bytes(l->dtype);
  l->kind = LINEAR_AWQ;
  l->bits = 4;
  l->group = GROUP;
  l->skip = 0;
  l->qweight = to.weights;
  l->qzeros = to.zeros;
  l->scales = to.scales;
  return STATUS_OK;
}

Status model_round_draft(Model *model, int n_threads, Error *err) {
  if (n_threads < 1) n_threads = omp_get_max_threads();
  TRY(round_linear(model, &model->draft_states, n_threads, err));
  TRY(round_linear(model, &model->draft_join, n_threads, err));
  if (!model->draft.target_head && model->head.weight != model->embedding.data)
    TRY(round_linear(model, &model->head, n_threads, err));
  model->draft.round_head = model->draft.target_head;
  for (int i = 0; i < model->config.n_layers; i++)
    for (int which = 0; which < N_LAYER_LINEARS; which++)
      if (layer_linear_exists(&model->config, i, which))
        TRY(round_linear(model, layer_linear(&model->layers[i], which), n_threads, err));
  return STATUS_OK;
}
