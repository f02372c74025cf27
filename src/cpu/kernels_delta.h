/* kernels_delta.h - causal convolutions, and the recurrence of the gated delta rule (operations.def,
 * norm_short_conv and norm_delta_rule).
 *
 * Part of kernels.c. The state of a head has a row for each dimension of k and a column for each of v. A
 * vector holds columns of one row, so that sums over rows need no sums across lanes, and each column has the
 * same bits in any block of columns. */
#pragma once

#include "cpu/kernels.h"
#include "cpu/vector.h"

INLINE vf convolved(const float *const *x, int n_taps, const float *taps, size_t stride, int i) {
  vf sum = vf_load(taps + i) * vf_load(x[0] + i);
  for (int t = 1; t < n_taps; t++)
    sum = vf_fma(vf_load(taps + (size_t)t * stride + (size_t)i), vf_load(x[t] + i), sum);
  return sum;
}

static void convolve(const float *const *x, int n_taps, const float *taps, size_t stride, int n,
                     const float *bias, float *out) {
  for (int i = 0; i < n; i += LANES) {
    vf sum = convolved(x, n_taps, taps, stride, i);
    if (bias) sum += vf_load(bias + i);
    vf_store(out + i, sum / (vf_exp(-sum) + 1));
  }
}

static void gated_convolve(const float *const *x, int n_taps, const float *taps, size_t stride, int n,
                           const float *gates, const float *bias, float *out) {
  for (int i = 0; i < n; i += LANES)
    vf_store(out + i, (convolved(x, n_taps, taps, stride, i) + vf_load(bias + i)) * vf_load(gates + i));
}

enum { DELTA_VECTORS = 4 }; /* vectors of columns in one delta_columns() */

/* delta_rule() for n_vectors vectors of columns, in two passes over the state's rows, or in one if the token
 * only adds. decays: token->decays. */
INLINE void delta_columns(const DeltaToken *token, const float *decays, const int n_vectors, int n_keys,
                          int first, float *state, size_t stride, float *out) {
  vf sum[DELTA_VECTORS], d[DELTA_VECTORS];
  UNROLL for (int j = 0; j < n_vectors; j++) sum[j] = (vf){0};
  const float *row = state + first;
  for (int i = 0; i < n_keys && !token->only_adds; i++, row += stride) {
    const vf k = vf_set(decays ? decays[i] * token->k[i] : token->k[i]);
    UNROLL for (int j = 0; j < n_vectors; j++) sum[j] = vf_fma(vf_load(row + j * LANES), k, sum[j]);
  }
  vf decay = vf_set(token->decay);
  UNROLL for (int j = 0; j < n_vectors; j++) {
    d[j] = (vf_load(token->v + first + j * LANES) - sum[j] * decay) * token->beta;
    sum[j] = (vf){0};
  }
  float *at = state + first;
  for (int i = 0; i < n_keys; i++, at += stride) {
    const vf k = vf_set(token->k[i]), q = vf_set(token->q[i]);
    if (decays) decay = vf_set(token->decay * decays[i]);
    UNROLL for (int j = 0; j < n_vectors; j++) {
      const vf cell = vf_fma(k, d[j], vf_load(at + j * LANES) * decay);
      vf_store(at + j * LANES, cell);
      sum[j] = vf_fma(cell, q, sum[j]);
    }
  }
  UNROLL for (int j = 0; j < n_vectors; j++) vf_store(out + first + j * LANES, sum[j]);
}

INLINE void all_delta_columns(const DeltaToken *token, const float *decays, int n_keys, int n_columns,
                              float *state, size_t stride, float *out) {
  int first = 0;
  for (; first + DELTA_VECTORS * LANES <= n_columns; first += DELTA_VECTORS * LANES)
    delta_columns(token, decays, DELTA_VECTORS, n_keys, first, state, stride, out);
  for (; first < n_columns; first += LANES)
    delta_columns(token, decays, 1, n_keys, first, state, stride, out);
}

static void delta_rule(const DeltaToken *token, int n_keys, int n_columns, float *state, size_t stride,
                       float *out) {
  if (token->decays)
    all_delta_columns(token, token->decays, n_keys, n_columns, state, stride, out);
  else
    all_delta_columns(token, NULL, n_keys, n_columns, state, stride, out);
}
