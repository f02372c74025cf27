/* kernels_float.h - matmuls with weights in FP8 (E4M3) and FP4 (E2M1), where the inputs of an output are
 * contiguous and groups of inputs share a scale (LINEAR_FP8 and LINEAR_FP4 in model.h).
 *
 * Part of kernels.c. A weight is the product of its number and its scale, rounded once; sums are those of
 * kernels_dense.h. With 16 lanes, the codes of 16 inputs in FP4 are broadcast as one 64-bit word, whose
 * halves alternate in the lanes. Lane l holds input l / 2 of the first 8 inputs for even l, of the last 8
 * for odd l. A single row of inputs is brought to this order (awq_to_lanes()), and its sums back from it.
 * With more rows, the weights are brought to the natural order. */
#pragma once

#include "cpu/kernels_dense.h"
#include "cpu/kernels_grouped.h"

/* The storage of a matrix; a compile-time constant in every loop. FP8 is read as fp16 with E4M3's bits, which
 * divides numbers by 256; the scales are multiplied by 256. Both are exact. */
typedef enum { FP8 = DTYPE_OTHER + 1, FP4_BY_16, FP4_BY_32 } FloatForm;

enum { FLOAT_OUTPUTS = 8 };
/* How many rows of W one float_few() of n_rows rows of x takes, so that sums and scales stay in registers. */
INLINE int float_outputs(const int n_rows) {
#if LANES == 16 || defined(__aarch64__)
  return n_rows == 1 ? FLOAT_OUTPUTS : n_rows <= 4 ? 4 : 2;
#else
  return n_rows == 1 ? 4 : n_rows <= 4 ? 2 : 1;
#endif
}

INLINE FloatForm float_form(const Linear *w) {
  return w->kind == LINEAR_FP8 ? FP8 : w->group == 16 ? FP4_BY_16 : FP4_BY_32;
}

INLINE size_t float_bytes(const FloatForm form, size_t n) {
  return form == FP8 ? n : n / 2;
}

INLINE vf float_to_lanes(const FloatForm form, vf natural) {
  return form == FP8 ? natural : awq_to_lanes(natural);
}

INLINE vf float_to_natural(const FloatForm form, vf lanes) {
  return form == FP8 ? lanes : awq_to_natural(lanes);
}

/* LANES numbers of E4M3, divided by 256. */
INLINE vf fp8_load(const uint8_t *p) {
#if LANES == 16
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)p));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff));
  return (vf)_mm512_cvtph_ps(half);
#elif LANES == 8
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i_u *)p));
  const __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((short)0xbfff));
  return (vf)_mm256_cvtph_ps(half);
#else
  uint8_t four __attribute__((vector_size(LANES)));
  memcpy(&four, p, sizeof four);
  const vu bits = __builtin_convertvector(four, vu), magnitude = bits & 0x7f;
  const vu normal = (magnitude << 20) + 0x38000000;
  const vf subnormal = __builtin_convertvector((vi)magnitude, vf) * 0x1p-17f;
  return (vf)((vu)vf_select(magnitude >= 8, (vf)normal, subnormal) | (bits & 0x80) << 24);
#endif
}

/* A scale as fp4_weights() takes it: its products with E2M1's 16 numbers (8 lanes: with the 8 that are not
 * negative; 4 lanes: the scale itself). */
INLINE vf fp4_products(vf scale) {
#if LANES == 16
  return scale * (vf){0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
#elif LANES == 8
  return scale * (vf){0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
#else
  return scale;
#endif
}

/* LANES weights of FP4 from LANES / 2 bytes, in the order of float_to_lanes(). */
INLINE vf fp4_weights(const uint8_t *p, vf products) {
#if LANES == 16
  const __m512i shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  long long codes;
  memcpy(&codes, p, sizeof codes);
  return (vf)_mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(codes), shifts), (__m512)products);
#elif LANES == 8
  int codes;
  memcpy(&codes, p, sizeof codes);
  /* The permutation looks at three bits; the fourth, shifted to the top, is the sign. */
  const __m256i all = _mm256_set1_epi32(codes);
  const __m256i sizes = _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  const __m256i signs = _mm256_and_si256(
      _mm256_sllv_epi32(all, _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0)), _mm256_set1_epi32(INT32_MIN));
  return (vf)_mm256_xor_ps(_mm256_permutevar8x32_ps((__m256)products, sizes), _mm256_castsi256_ps(signs));
#else
  static const float numbers[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const vf some = {numbers[p[0] & 15], numbers[p[0] >> 4], numbers[p[1] & 15], numbers[p[1] >> 4]};
  return some * products;
#endif
}

/* LANES weights; `scale` comes from float_scale(). */
INLINE vf float_weights(const FloatForm form, const uint8_t *p, vf scale) {
  return form == FP8 ? fp8_load(p) * scale : fp4_weights(p, scale);
}

/* The scales of an output: floats for FP8, codes for FP4. */
INLINE const uint8_t *float_scales(const FloatForm form, const Linear *w, int output) {
  const size_t n_groups = (size_t)((w->n_in - 1) / w->group + 1);
  if (form != FP8) return (const uint8_t *)w->scales + (size_t)output * n_groups * row_step(w);
  return (const uint8_t *)w->scales +
         (size_t)((w->block_first + output) / w->block) * n_groups * sizeof(float);
}

/* A group's scale as float_weights() takes it. */
INLINE vf float_scale(const FloatForm form, const Linear *w, const uint8_t *scales, int group) {
  if (form != FP8) return fp4_products(vf_set(w->scale_values[scales[group]]));
  float scale;
  memcpy(&scale, scales + (size_t)group * sizeof scale, sizeof scale);
  return vf_set(scale * 256);
}

INLINE int float_group(const FloatForm form, const Linear *w) {
  return form == FP8 ? w->group : form == FP4_BY_16 ? 16 : 32;
}

INLINE void float_prefetch(const size_t bytes, uintptr_t *ahead) {
  UNROLL for (size_t line = 0; line < bytes; line += LINE_BYTES) {
    __builtin_prefetch((const void *)(*ahead + line));
  }
  *ahead += bytes;
}

/* Adds the products of a vector of inputs and weight[o] to sum[r][o]. */
INLINE void float_step(const FloatForm form, const int n_rows, const int n_outputs, const vf *weight,
                       const float *x, size_t x_stride, vf sum[][FLOAT_OUTPUTS]) {
  UNROLL for (int r = 0; r < n_rows; r++) {
    const vf natural = vf_load(x + (size_t)r * x_stride);
    const vf input = n_rows > 1 ? natural : float_to_lanes(form, natural);
    UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = vf_fma(weight[o], input, sum[r][o]);
  }
}

/* float_step() for the whole vectors of a group's n inputs. */
INLINE void float_vectors(const FloatForm form, const int n_rows, const int n_outputs, const uint8_t *at,
                          size_t step, const vf *scale, const float *x, size_t x_stride, const int n,
                          uintptr_t *ahead, vf sum[][FLOAT_OUTPUTS]) {
  for (int i = 0; i + LANES <= n; i += LANES) {
    const uint8_t *codes = at + float_bytes(form, (size_t)i);
    vf weight[FLOAT_OUTPUTS];
    UNROLL for (int o = 0; o < n_outputs; o++) {
      weight[o] = float_weights(form, codes + (size_t)o * step, scale[o]);
      if (n_rows > 1) weight[o] = float_to_natural(form, weight[o]);
    }
    float_step(form, n_rows, n_outputs, weight, x + i, x_stride, sum);
    if (form == FP8) float_prefetch((size_t)n_outputs * LANES, ahead);
  }
  if (form != FP8) float_prefetch((size_t)(n_outputs * n / 2), ahead);
}

/* float_step() for the last n < LANES inputs of rows of FP8. */
INLINE void fp8_rest(const int n_rows, const int n_outputs, const uint8_t *at, size_t step, const vf *scale,
                     const float *x, size_t x_stride, int n, vf sum[][FLOAT_OUTPUTS]) {
  vf weight[FLOAT_OUTPUTS];
  UNROLL for (int o = 0; o < n_outputs; o++) {
    uint8_t some[LANES] = {0};
    memcpy(some, at + (size_t)o * step, (size_t)n);
    weight[o] = fp8_load(some) * scale[o];
  }
  float_step(FP8, n_rows, n_outputs, weight, x, x_stride, sum);
}

/* sum[r][o] of a block of inputs for n_outputs rows of W. A group is whole vectors, except the last group of
 * a row of FP8. */
INLINE void float_block(const FloatForm form, const int n_rows, const int n_outputs, const Linear *w,
                        const uint8_t *rows, const uint8_t *const *scales, InputRows x, int begin, int end,
                        uintptr_t *ahead, vf sum[][FLOAT_OUTPUTS]) {
  const int group = float_group(form, w);
  const size_t step = float_bytes(form, (size_t)w->n_in) * row_step(w);
  for (int i = begin, g = begin / group, stop = (g + 1) * group; i < end; i = stop, g++, stop += group) {
    vf scale[FLOAT_OUTPUTS];
    if (form == FP8 && stop > end) stop = end;
    UNROLL for (int o = 0; o < n_outputs; o++) scale[o] = float_scale(form, w, scales[o], g);
    const int n = form == FP8 ? stop - i : group, rest = form == FP8 ? n % LANES : 0;
    const uint8_t *at = rows + float_bytes(form, (size_t)i);
    float_vectors(form, n_rows, n_outputs, at, step, scale, x.x + i, x.stride, n, ahead, sum);
    if (rest)
      fp8_rest(n_rows, n_outputs, at + n - rest, step, scale, x.x + i + n - rest, x.stride, rest, sum);
  }
}

/* y[r][o] for n_outputs rows of W and n_rows rows of x; prefetches the next n_outputs rows of W. */
INLINE void float_few(const FloatForm form, const int n_rows, const int n_outputs, const Linear *w,
                      InputRows x, int first, float *y, size_t y_stride) {
  const size_t step = float_bytes(form, (size_t)w->n_in) * row_step(w);
  const uint8_t *rows = (const uint8_t *)w->weight + (size_t)first * step, *scales[FLOAT_OUTPUTS];
  uintptr_t ahead = (uintptr_t)rows + (size_t)n_outputs * step;
  UNROLL for (int o = 0; o < n_outputs; o++) scales[o] = float_scales(form, w, first + o);
  for (int begin = 0; begin < w->n_in; begin += DENSE_BLOCK) {
    vf sum[PASS_ROWS][FLOAT_OUTPUTS];
    UNROLL for (int r = 0; r < n_rows; r++) {
      UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = (vf){0};
    }
    const int end = w->n_in - begin < DENSE_BLOCK ? w->n_in : begin + DENSE_BLOCK;
    float_block(form, n_rows, n_outputs, w, rows, scales, x, begin, end, &ahead, sum);
    UNROLL for (int r = 0; r < n_rows; r++) {
      UNROLL for (int o = 0; o < n_outputs; o++) {
        const float part = vf_sum(n_rows > 1 ? sum[r][o] : float_to_natural(form, sum[r][o]));
        float *to = y + (size_t)r * y_stride + o;
        *to = begin == 0 ? part : *to + part;
      }
    }
  }
}

/* panel[o][DENSE_BLOCK] = the weights of inputs [begin, end) of rows [first, first + n), zero-padded to whole
 * vectors. */
INLINE void float_widen(const FloatForm form, const Linear *w, int first, int n, int begin, int end,
                        float *panel) {
  const int group = float_group(form, w);
  const size_t step = float_bytes(form, (size_t)w->n_in) * row_step(w);
  for (int o = 0; o < n; o++, panel += DENSE_BLOCK) {
    const uint8_t *row = (const uint8_t *)w->weight + (size_t)(first + o) * step;
    const uint8_t *scales = float_scales(form, w, first + o);
    for (int i = begin, g = begin / group, stop = (g + 1) * group; i < end; g++, stop += group) {
      const vf scale = float_scale(form, w, scales, g);
      if (stop > end) stop = end;
      for (; i + LANES <= stop; i += LANES)
        vf_store(panel + i - begin,
                 float_to_natural(form, float_weights(form, row + float_bytes(form, (size_t)i), scale)));
      if (form != FP8 || i >= stop) continue;
      uint8_t some[LANES] = {0};
      memcpy(some, row + i, (size_t)(stop - i));
      vf_store(panel + i - begin, fp8_load(some) * scale);
      i = stop;
    }
  }
}

/* --- dense weights, too: form is a Dtype or a FloatForm */

INLINE int stored_form(const Linear *w) {
  return w->kind == LINEAR_DENSE ? (int)w->dtype : (int)float_form(w);
}

INLINE void stored_few(const int form, const int n_rows, const int n_outputs, const Linear *w, InputRows x,
                       int first, float *y, size_t y_stride) {
  if (form < FP8)
    dense_few((Dtype)form, n_rows, n_outputs, w, x, first, y, y_stride);
  else
    float_few((FloatForm)form, n_rows, n_outputs, w, x, first, y, y_stride);
}

INLINE void stored_pass(const int form, const int n_rows, const Linear *w, InputRows x, int first, int n,
                        float *y, size_t y_stride) {
  const int outputs = form < FP8 ? few_outputs(n_rows) : float_outputs(n_rows);
  int o = 0;
  for (; o + outputs <= n; o += outputs) stored_few(form, n_rows, outputs, w, x, first + o, y + o, y_stride);
  for (; o < n; o++) stored_few(form, n_rows, 1, w, x, first + o, y + o, y_stride);
}

/* stored_pass() for any number of rows up to PASS_ROWS. */
INLINE void stored_pass_of(const int form, const Linear *w, InputRows x, int first, int n, float *y,
                           size_t y_stride) {
  switch (x.n) {
  case 1: stored_pass(form, 1, w, x, first, n, y, y_stride); break;
  case 2: stored_pass(form, 2, w, x, first, n, y, y_stride); break;
  case 3: stored_pass(form, 3, w, x, first, n, y, y_stride); break;
  case 4: stored_pass(form, 4, w, x, first, n, y, y_stride); break;
  case 5: stored_pass(form, 5, w, x, first, n, y, y_stride); break;
  case 6: stored_pass(form, 6, w, x, first, n, y, y_stride); break;
  case 7: stored_pass(form, 7, w, x, first, n, y, y_stride); break;
  case 8: stored_pass(form, 8, w, x, first, n, y, y_stride); break;
  }
}

/* Two functions, since compilers allocate registers worse in a single one of twice the size. */
static void dense_matmul_pass(const Linear *w, InputRows x, int first, int n, float *y, size_t y_stride) {
  switch (w->dtype) {
  case DTYPE_F16: stored_pass_of(DTYPE_F16, w, x, first, n, y, y_stride); break;
  case DTYPE_BF16: stored_pass_of(DTYPE_BF16, w, x, first, n, y, y_stride); break;
  default: stored_pass_of(DTYPE_F32, w, x, first, n, y, y_stride); break;
  }
}

static void float_matmul_pass(const Linear *w, InputRows x, int first, int n, float *y, size_t y_stride) {
  switch (float_form(w)) {
  case FP8: stored_pass_of(FP8, w, x, first, n, y, y_stride); break;
  case FP4_BY_16: stored_pass_of(FP4_BY_16, w, x, first, n, y, y_stride); break;
  case FP4_BY_32: stored_pass_of(FP4_BY_32, w, x, first, n, y, y_stride); break;
  }
}

static void stored_matmul_rows(const Linear *w, const float *x, size_t x_stride, int n_rows, int first, int n,
                               float *y, size_t y_stride) {
  float panel[PANEL_OUTPUTS * DENSE_BLOCK] __attribute__((aligned(64)));
  for (int begin = 0; begin < w->n_in; begin += DENSE_BLOCK) {
    const int end = w->n_in - begin < DENSE_BLOCK ? w->n_in : begin + DENSE_BLOCK;
    for (int o = 0; o < n; o += PANEL_OUTPUTS) {
      const int outputs = n - o < PANEL_OUTPUTS ? n - o : PANEL_OUTPUTS;
      switch (stored_form(w)) {
      case DTYPE_F16: dense_widen(DTYPE_F16, w, first + o, outputs, begin, end, panel); break;
      case DTYPE_BF16: dense_widen(DTYPE_BF16, w, first + o, outputs, begin, end, panel); break;
      case FP8: float_widen(FP8, w, first + o, outputs, begin, end, panel); break;
      case FP4_BY_16: float_widen(FP4_BY_16, w, first + o, outputs, begin, end, panel); break;
      case FP4_BY_32: float_widen(FP4_BY_32, w, first + o, outputs, begin, end, panel); break;
      default: dense_widen(DTYPE_F32, w, first + o, outputs, begin, end, panel); break;
      }
      dot_rows(x + begin, x_stride, n_rows, panel, outputs, end - begin, begin > 0, y + o, y_stride);
    }
  }
}
