/* vector.h - the vector type of one instruction set, and its intrinsics under common names.
 *
 * Only kernels.c and its headers include it: everything here depends on their compiler flags. It uses GNU
 * vector extensions where they suffice: a machine without AVX2 has vectors of four. Sums of products use
 * vf_fma(), and contraction is off (see the Makefile), so that the same row gives the same bits in every
 * kernel of one instruction set. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define LANES        16
#define TILE_VECTORS 4 /* vectors of a register tile's row (outer.h): a tile is 6 x 4 of the 32 registers */
#elif defined(__AVX2__)
#define LANES        8
#define TILE_VECTORS 2 /* a tile is 6 x 2 of the 16 registers */
#else
#define LANES 4
#if defined(__aarch64__)
#define TILE_VECTORS 4
#else
#define TILE_VECTORS 2
#endif
#endif

#define INLINE static inline __attribute__((always_inline))

/* Loops over register arrays have constant bounds and must be unrolled before register allocation. With the
 * address sanitizer they stay loops: it checks every access, and unrolled checks take compilers minutes. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(SANITIZED)
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef uint16_t vh __attribute__((vector_size(LANES * 2)));
typedef float vf_half __attribute__((vector_size(LANES * 2)));
typedef double vd __attribute__((vector_size(LANES * 4))); /* LANES / 2 doubles */

INLINE vf vf_load(const void *p) {
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}

INLINE void vf_store(void *p, vf v) {
  memcpy(p, &v, sizeof v);
}

INLINE vf vf_set(float value) {
  return value - (vf){0}; /* x - 0 is x for every x, -0 included */
}

INLINE vf vf_fma(vf a, vf b, vf c) {
#if LANES == 16
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LANES == 8
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

INLINE vf vf_select(vi mask, vf yes, vf no) {
  return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
}

/* The larger of each pair; b if one is NaN. */
INLINE vf vf_max(vf a, vf b) {
  return vf_select(a > b, a, b);
}

typedef float v8 __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));

/* The sum of all lanes: adds the upper half to the lower half until one lane is left. */
INLINE float vf_sum(vf v) {
#if LANES == 16
  v8 eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES == 8
  v8 eight = v;
#endif
#if LANES > 4
  v4 four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  v4 four = v;
#endif
  return (four[0] + four[2]) + (four[1] + four[3]);
}

INLINE float vf_largest(vf v) {
#if LANES == 16
  const vf half = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
  v = vf_max(half, v);
#endif
#if LANES > 4
  v8 eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  v4 low = __builtin_shufflevector(eight, eight, 0, 1, 2, 3);
  v4 high = __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  v4 low = v, high = v;
#endif
  float largest = low[0];
  for (int i = 1; i < 4; i++) largest = low[i] > largest ? low[i] : largest;
  for (int i = 0; i < 4; i++) largest = high[i] > largest ? high[i] : largest;
  return largest;
}

/* LANES fp16 numbers at p as fp32, exactly, NaN and infinity included. */
INLINE vf vf_load_f16(const void *p) {
#if LANES == 16
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p));
#elif LANES == 8
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p));
#elif defined(__aarch64__)
  float16x4_t half;
  memcpy(&half, p, sizeof half);
  return (vf)vcvt_f32_f16(half);
#else
  vh half;
  memcpy(&half, p, sizeof half);
  vu bits = __builtin_convertvector(half, vu), magnitude = bits & 0x7fff;
  /* The shorter way, a product with 2^112, would cost a hundred cycles for every subnormal operand. */
  vu normal = (magnitude << 13) + 0x38000000, special = (vu)(magnitude >= 0x7c00) & 0x7f800000;
  vf subnormal = __builtin_convertvector((vi)magnitude, vf) * 0x1p-24f;
  vu value = (vu)vf_select(magnitude >= 0x400, (vf)normal, subnormal);
  return (vf)(value | special | (bits & 0x8000) << 16);
#endif
}

/* LANES fp16 numbers to p, rounded to nearest even. */
INLINE void vf_store_f16(void *p, vf v) {
#if LANES == 16
  _mm256_storeu_si256((__m256i_u *)p,
                      _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif LANES == 8
  _mm_storeu_si128((__m128i_u *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  uint16_t half[LANES];
  for (int i = 0; i < LANES; i++) half[i] = float_to_f16(v[i]);
  memcpy(p, half, sizeof half);
#endif
}

/* LANES int8 numbers at p as fp32. */
INLINE vf vf_load_int8(const int8_t *p) {
#if LANES == 16
  return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)p)));
#elif LANES == 8
  return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)p)));
#else
  int8_t four __attribute__((vector_size(LANES)));
  memcpy(&four, p, sizeof four);
  return __builtin_convertvector(__builtin_convertvector(four, vi), vf);
#endif
}

INLINE vf vf_load_bf16(const void *p) {
  vh half;
  memcpy(&half, p, sizeof half);
  return (vf)(__builtin_convertvector(half, vu) << 16);
}

/* e^x to about 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor series up to r^7 (the rest is below 2^-27),
 * then two factors with product 2^n, so that results reach from the smallest subnormal to infinity. NaN stays
 * NaN; e^x is 0 for x <= -104. ln 2 is split as in Cephes: n times the upper part is exact. */
INLINE vf vf_exp(vf x) {
  x = vf_select(x < -110.0f, vf_set(-110.0f), x);
  x = vf_select(x > 90.0f, vf_set(90.0f), x);
  const float round = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
  vf shifted = vf_fma(x, vf_set(0x1.715476p+0f), vf_set(round));
  vf n = shifted - round;
  vf r = vf_fma(n, vf_set(-0.693359375f), x);
  r = vf_fma(n, vf_set(2.12194440e-4f), r);
  vf p = vf_set(1.0f / 5040);
  p = vf_fma(p, r, vf_set(1.0f / 720));
  p = vf_fma(p, r, vf_set(1.0f / 120));
  p = vf_fma(p, r, vf_set(1.0f / 24));
  p = vf_fma(p, r, vf_set(1.0f / 6));
  p = vf_fma(p, r, vf_set(0.5f));
  p = vf_fma(p, r, vf_set(1.0f));
  p = vf_fma(p, r, vf_set(1.0f));
  vu exponent = (vu)shifted - (vu)vf_set(round) + 2 * 127;
  vu lower = exponent >> 1, upper = exponent - lower;
  return p * (vf)(lower << 23) * (vf)(upper << 23);
}

/* tanh x to about 2 ulp. Near 0, where 1 - 2 / (e^(2|x|) + 1) would cancel, it is the polynomial of Cephes'
 * tanhf (Moshier). */
INLINE vf vf_tanh(vf x) {
  vf size = (vf)((vi)x & INT32_MAX), square = x * x;
  vf p = vf_set(-5.70498872745e-3f);
  p = vf_fma(p, square, vf_set(2.06390887954e-2f));
  p = vf_fma(p, square, vf_set(-5.37397155531e-2f));
  p = vf_fma(p, square, vf_set(1.33314422036e-1f));
  p = vf_fma(p, square, vf_set(-3.33332819422e-1f));
  vf near = vf_fma(p * square, x, x), far = 1 - 2 / (vf_exp(size + size) + 1);
  return vf_select(size < 0.625f, near, (vf)((vi)far | ((vi)x & INT32_MIN)));
}

/* The number of rows of the next pass, with n rows left and at most `most` in a pass: passes are of nearly
 * equal size. */
INLINE int pass_rows(int n, int most) {
  const int n_passes = (n - 1) / most + 1;
  return (n - 1) / n_passes + 1;
}
