/* kernels_int8.h - matmuls of int8 weights and activations rounded to int8 (LINEAR_INT8 in model.h).
 *
 * Part of kernels.c. Sums are exact in 32 bits in any order: they are at most 2^14 times the number of
 * inputs, and hf_quantised.c keeps this number below 2^17. Activations are stored as int16, and weights are
 * widened to int16, so that one instruction multiplies and adds pairs. */
#pragma once

#include <float.h>

#include "cpu/kernels.h"
#include "cpu/vector.h"

enum {
  INT8_LANES = 2 * LANES, /* inputs of one int8_step() */
#if LANES == 16
  INT8_ROWS = 6,
#else
  INT8_ROWS = 3,
#endif
  INT8_OUTPUTS = 4,
};

typedef int16_t vs __attribute__((vector_size(LANES * 4)));

/* INT8_LANES weights, widened to int16. */
INLINE vs int8_widen(const int8_t *p) {
#if LANES == 16
  return (vs)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i_u *)p));
#elif LANES == 8
  return (vs)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)p));
#else
  int8_t bytes __attribute__((vector_size(INT8_LANES)));
  memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, vs);
#endif
}

/* sum[l] + a[2 l] b[2 l] + a[2 l + 1] b[2 l + 1] */
INLINE vi int8_multiply_add(vs a, vs b, vi sum) {
#if LANES == 16
  return sum + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif LANES == 8
  return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return sum + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  /* A 32-bit lane holds a pair: the first number in its lower half, the second in its upper half. */
  vi a1 = (vi)a >> 16, b1 = (vi)b >> 16, a0 = (vi)((vu)a << 16) >> 16, b0 = (vi)((vu)b << 16) >> 16;
  return sum + a0 * b0 + a1 * b1;
#endif
}

INLINE int32_t int8_sum(vi v) {
  int32_t lane[LANES], sum = 0;
  memcpy(lane, &v, sizeof lane);
  for (int l = 0; l < LANES; l++) sum += lane[l];
  return sum;
}

/* Adds the products of INT8_LANES inputs and weights to sum[r][o]. */
INLINE void int8_step(const int n_rows, const int n_outputs, const int8_t *w, size_t w_step, const int16_t *x,
                      size_t x_stride, vi sum[][INT8_OUTPUTS]) {
  vs weight[INT8_OUTPUTS];
  UNROLL for (int o = 0; o < n_outputs; o++) weight[o] = int8_widen(w + (size_t)o * w_step);
  UNROLL for (int r = 0; r < n_rows; r++) {
    vs input;
    memcpy(&input, x + (size_t)r * x_stride, sizeof input);
    UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = int8_multiply_add(weight[o], input, sum[r][o]);
  }
}

/* y[r][o] of n_rows rows and n_outputs outputs; rows of weights are n bytes apart. The last step has weights
 * of 0 for what follows the n inputs of a row of x. */
INLINE void int8_tile(const int n_rows, const int n_outputs, const int8_t *w, const int16_t *x,
                      size_t x_stride, int n, const float *x_scales, const float *w_scales, float *y,
                      size_t y_stride) {
  vi sum[INT8_ROWS][INT8_OUTPUTS];
  int i = 0;
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = (vi){0};
  }
  for (; i + INT8_LANES <= n; i += INT8_LANES)
    int8_step(n_rows, n_outputs, w + i, (size_t)n, x + i, x_stride, sum);
  if (i < n) {
    int8_t rest[INT8_OUTPUTS][INT8_LANES] = {{0}};
    for (int o = 0; o < n_outputs; o++) memcpy(rest[o], w + (size_t)o * (size_t)n + i, (size_t)(n - i));
    int8_step(n_rows, n_outputs, rest[0], INT8_LANES, x + i, x_stride, sum);
  }
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int o = 0; o < n_outputs; o++) {
      y[(size_t)r * y_stride + (size_t)o] = (float)int8_sum(sum[r][o]) * (x_scales[r] * w_scales[o]);
    }
  }
}

/* int8_tile() for any number of rows up to INT8_ROWS. */
INLINE void int8_rows(const int n_rows, const int n_outputs, const int8_t *w, const int16_t *x,
                      size_t x_stride, int n, const float *x_scales, const float *w_scales, float *y,
                      size_t y_stride) {
  switch (n_rows) {
  case 1: int8_tile(1, n_outputs, w, x, x_stride, n, x_scales, w_scales, y, y_stride); break;
  case 2: int8_tile(2, n_outputs, w, x, x_stride, n, x_scales, w_scales, y, y_stride); break;
  case 3: int8_tile(3, n_outputs, w, x, x_stride, n, x_scales, w_scales, y, y_stride); break;
#if LANES == 16
  case 4: int8_tile(4, n_outputs, w, x, x_stride, n, x_scales, w_scales, y, y_stride); break;
  case 5: int8_tile(5, n_outputs, w, x, x_stride, n, x_scales, w_scales, y, y_stride); break;
  case 6: int8_tile(6, n_outputs, w, x, x_stride, n, x_scales, w_scales, y, y_stride); break;
#endif
  }
}

static void matmul_int8(const Linear *w, RoundedRows x, int n_rows, int first, int n, float *y,
                        size_t y_stride) {
  const int8_t *weights = (const int8_t *)w->weight + (size_t)first * (size_t)w->n_in;
  const size_t step = (size_t)w->n_in;
  for (int o = 0; o < n;) {
    const int outputs = n - o < INT8_OUTPUTS ? 1 : INT8_OUTPUTS;
    float scales[INT8_OUTPUTS];
    memcpy(scales, (const uint8_t *)w->scales + (size_t)(first + o) * 4, (size_t)outputs * 4);
    for (int r = 0, rows; r < n_rows; r += rows) {
      rows = pass_rows(n_rows - r, INT8_ROWS);
      const int16_t *from = x.numbers + (size_t)r * x.stride;
      float *to = y + (size_t)r * y_stride + o;
      const int8_t *at = weights + (size_t)o * step;
      if (outputs == INT8_OUTPUTS)
        int8_rows(rows, INT8_OUTPUTS, at, from, x.stride, w->n_in, x.scales + r, scales, to, y_stride);
      else
        int8_rows(rows, 1, at, from, x.stride, w->n_in, x.scales + r, scales, to, y_stride);
    }
    o += outputs;
  }
}

/* Adding and subtracting this rounds a float below 2^22 to the nearest integer, ties to even. */
#define ROUND 0x1.8p23f

/* The dynamic, symmetric int8 of compressed-tensors: scale = largest magnitude / 127.5 (FLT_EPSILON if that
 * is 0). If a number is not finite, the scale is NaN, and so are all products. */
static float round_row(const float *x, int n, int16_t *out) {
  vf largest = {0}, strange = {0};
  for (int i = 0; i < n; i += LANES) { /* the zeros after the row change nothing */
    vf number = vf_load(x + i), size = (vf)((vi)number & INT32_MAX);
    largest = vf_max(size, largest);
    strange += number - number;
  }
  const bool finite = vf_sum(strange) == 0; /* each lane is 0 or NaN */
  float scale = vf_largest(largest) / 127.5f;
  if (scale == 0) scale = FLT_EPSILON;
  for (int i = 0; i < n; i += LANES) {
    vf steps = (vf_load(x + i) / scale + ROUND) - ROUND;
    steps = vf_select(steps > 127.0f, vf_set(127.0f), steps);
    if (!finite) steps = (vf){0};
    vi whole = __builtin_convertvector(steps, vi);
    vh narrow = __builtin_convertvector(whole, vh);
    memcpy(out + i, &narrow, sizeof narrow);
  }
  return finite ? scale : NAN;
}

#undef ROUND
