/* cpu_quantizer.c - the CPU as a Quantizer: its device memory is the host's. Called by: quantize.c, layer.c
 * and scales.c through the table. */
#include <stdlib.h>

#include "quantize/factor.h"
#include "quantize/matrix.h"
#include "quantize/target.h"

static Status open_cpu(const BackendOptions *options, QuantizerState **state, Error *err) {
  TRY(NEW(*state, 1, "a quantizer", err));
  **state = products_make(options->n_threads);
  return STATUS_OK;
}

static void close_cpu(QuantizerState *state) {
  free(state);
}

static Status make(const QuantizerState *state, size_t n, const char *name, float **there, Error *err) {
  return NEW(*there, n, name, err);
}

static void release(const QuantizerState *state, float *there) {
  free(there);
}

static Status load(const QuantizerState *state, FillRow *fill, const void *user, const char *name,
                   Weights *weights, Error *err) {
  const size_t n_in = (size_t)weights->n_in;
  TRY(make(state, (size_t)weights->n_out * n_in, name, &weights->w, err));
#pragma omp parallel for num_threads(state->n_threads)
  for (int row = 0; row < weights->n_out; row++) fill(user, row, weights->w + (size_t)row * n_in);
  return STATUS_OK;
}

static Status diagonal(const QuantizerState *state, int n, const float *square, float *here, Error *err) {
  for (size_t i = 0; i < (size_t)n; i++) here[i] = square[i * (size_t)n + i];
  return STATUS_OK;
}

static Status dampen(const QuantizerState *state, float more, int n, float *square, Error *err) {
  for (size_t i = 0; i < (size_t)n; i++) square[i * (size_t)n + i] += more;
  return STATUS_OK;
}

static Status rescale(const QuantizerState *state, const float *scales, int n, float *square, float *lower,
                      Error *err) {
  const size_t size = (size_t)n;
#pragma omp parallel for num_threads(state->n_threads)
  for (size_t i = 0; i < size; i++)
    for (size_t j = 0; j < size; j++) {
      square[i * size + j] /= scales[i] * scales[j];
      if (lower) lower[i * size + j] *= scales[i];
    }
  return STATUS_OK;
}

const Quantizer cpu_quantizer = {
    .name = "cpu",
    .open = open_cpu,
    .close = close_cpu,
    .make = make,
    .release = release,
    .load = load,
    .add = sums_add,
    .finish = square_finish,
    .diagonal = diagonal,
    .dampen = dampen,
    .rescale = rescale,
    .factor = factor_make,
    .correct = target_correct,
    .trial = matrix_trial,
    .round = matrix_round,
    .loss = matrix_loss,
};
