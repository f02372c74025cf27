/* kernels_rounding.h - weights rounded to 4 bits, for `auk quantize`. Part of kernels.c. Lanes hold outputs,
 * so that no sum goes across lanes and each output is judged by itself. */
#pragma once

#include "cpu/kernels.h"
#include "cpu/outer.h"
#include "cpu/vector.h"

_Static_assert(ROUND_OUTPUTS % LANES == 0, "whole vectors");

INLINE vf vf_min(vf a, vf b) {
  return vf_select(a < b, a, b);
}

/* Rounds to the nearest integer, ties to even. PRECOND |x| < 2^22 */
INLINE vf round_near(vf x) {
  const vf magic = vf_set(0x1.8p23f);
  return x + magic - magic;
}

/* Rounds a positive number to a positive fp16 number: to 11 bits (Dekker's splitting) if it is at least
 * 2^-14, else to a multiple of 2^-24, but never to 0. */
INLINE vf round_to_f16(vf x) {
  const vf wide = x * 8193, many = wide - (wide - x), few = x + 0.5f - 0.5f;
  return vf_max(vf_select(x < vf_set(0x1p-14f), few, many), vf_set(0x1p-24f));
}

INLINE vf round_weight(vf w, vf inverse, vf zero) {
  return round_near(vf_min(vf_max(w * inverse, -zero), 15 - zero));
}

/* The scale with the least weighted squared error for the codes that `scale` gives; `scale` itself if no
 * positive one is best. */
INLINE vf fit_scale(const float *w, const float *importance, int n, vf scale, vf zero) {
  vf dot = {0}, square = {0};
  const vf inverse = 1 / scale;
  for (int i = 0; i < n; i++) {
    const vf own = vf_load(w + i * ROUND_OUTPUTS), k = round_weight(own, inverse, zero),
             weighted = k * importance[i];
    dot = vf_fma(weighted, own, dot);
    square = vf_fma(weighted, k, square);
  }
  const vf best = dot / vf_max(square, vf_set(1e-20f));
  return vf_select(best > (vf){0}, best, scale);
}

INLINE vf group_error(const float *w, const float *importance, int n, vf scale, vf zero) {
  vf error = {0};
  const vf inverse = 1 / scale;
  for (int i = 0; i < n; i++) {
    const vf own = vf_load(w + i * ROUND_OUTPUTS),
             difference = vf_fma(round_weight(own, inverse, zero), scale, -own);
    error = vf_fma(difference * importance[i], difference, error);
  }
  return error;
}

static void search_group(const float *w, const float *importance, int n, const GroupSearch *search,
                         float *scales, float *zeros) {
  for (int at = 0; at < ROUND_OUTPUTS; at += LANES, w += LANES) {
    vf low = {0}, high = {0}, best_scale = vf_set(1), best_zero = {0}, best = vf_set(INFINITY);
    for (int i = 0; i < n; i++) {
      low = vf_min(vf_load(w + i * ROUND_OUTPUTS), low);
      high = vf_max(vf_load(w + i * ROUND_OUTPUTS), high);
    }
    const vf near = round_near(low * -15 / vf_max(high - low, vf_set(1e-7f)));
    for (int a = 0; a < search->n_shifts; a++) {
      const vf zero = vf_max(vf_min(near + search->shifts[a], vf_set(15)), (vf){0});
      const vf whole = vf_max(-low / vf_max(zero, vf_set(0.5f)), high / vf_max(15 - zero, vf_set(0.5f)));
      for (int b = 0; b < search->n_shrinks; b++) {
        vf scale = vf_max(whole * search->shrinks[b], vf_set(0x1p-24f));
        if (search->fits) scale = fit_scale(w, importance, n, scale, zero);
        scale = round_to_f16(vf_min(scale, vf_set(65504)));
        const vf error = group_error(w, importance, n, scale, zero);
        const vi better = error < best;
        best = vf_select(better, error, best);
        best_scale = vf_select(better, scale, best_scale);
        best_zero = vf_select(better, zero, best_zero);
      }
    }
    vf_store(scales + at, best_scale);
    vf_store(zeros + at, best_zero);
  }
}

static void round_group(float *w, int n, const float *u, size_t u_stride, const float *scales,
                        const float *zeros, uint8_t *codes, float *errors) {
  for (int at = 0; at < ROUND_OUTPUTS; at += LANES) {
    const vf scale = vf_load(scales + at), zero = vf_load(zeros + at);
    for (int j = 0; j < n; j++) {
      const vf own = vf_load(w + j * ROUND_OUTPUTS + at), k = round_weight(own, 1 / scale, zero);
      const vi code = __builtin_convertvector(k + zero, vi);
      for (int l = 0; l < LANES; l++) codes[j * ROUND_OUTPUTS + at + l] = (uint8_t)code[l];
      const vf error = u ? (own - k * scale) / u[(size_t)j * u_stride + (size_t)j] : own - k * scale;
      vf_store(errors + j * ROUND_OUTPUTS + at, error);
      for (int i = j + 1; u && i < n; i++) {
        float *to = w + i * ROUND_OUTPUTS + at;
        vf_store(to, vf_fma(vf_set(-u[(size_t)j * u_stride + (size_t)i]), error, vf_load(to)));
      }
    }
  }
}

static void move_group(float *levels, float *slopes, int n, const float *h, const float *scales,
                       const float *zeros, float *changes) {
  for (int at = 0; at < ROUND_OUTPUTS; at += LANES) {
    const vf scale = vf_load(scales + at), zero = vf_load(zeros + at), inverse = 1 / scale;
    for (int j = 0; j < n; j++) {
      float *level = levels + j * ROUND_OUTPUTS + at;
      const vf own = vf_load(level), slope = vf_load(slopes + j * ROUND_OUTPUTS + at),
               best = own + slope * inverse / vf_set(h[j * n + j]),
               moved = round_near(vf_min(vf_max(best, -zero), 15 - zero)), change = (moved - own) * scale;
      vf_store(level, moved);
      vf_store(changes + j * ROUND_OUTPUTS + at, change);
      for (int i = 0; i < n; i++) {
        float *to = slopes + i * ROUND_OUTPUTS + at;
        vf_store(to, vf_fma(vf_set(-h[j * n + i]), change, vf_load(to)));
      }
    }
  }
}

static void add_product(const float *a, size_t a_stride, int n_rows, const float *b, size_t b_stride, int n,
                        int n_k, float factor, float *c, size_t c_stride) {
  const OuterB columns = {.data = b, .type = KV_F32, .step = b_stride, .across = LANES};
  outer_matmul(a, a_stride, n_rows, columns, n / LANES, n_k,
               (OuterC){.to = c, .add = factor, .stride = c_stride});
}
