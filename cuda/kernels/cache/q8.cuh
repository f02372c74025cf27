/* q8.cuh - a KV cache in 8 bits (KV_Q8, arithmetic.h): its numbers as halves, and how they are made.
 *
 * A number q of -127 .. 127 is kept as the byte q + 128. The bits 0x6400 + (q + 128) are those of the half
 * 1024 + 128 + q. So reading a number takes a permutation of bytes and a multiply-add.
 *   numbers   [row][head_dim] uint8     rows are those of an fp16 cache (CacheRows)
 *   scales    [row][key_scales()] fp16 of keys, [row] of values */
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

#include "base/arithmetic.h"
#include "cuda/kernels/ptx/ptx.cuh"

__host__ __device__ constexpr int key_scales(int head_dim) {
  return (head_dim + KEY_SCALE_DIMS - 1) / KEY_SCALE_DIMS;
}

/* A scale, and the offset that unpacking adds: exactly -1,152 times the scale. From a scale of 57 on (a key
 * or value above 7,175: scales have 7 bits) the offset is infinite in fp16: logits become NaN, which is
 * reported, and an fp16 cache helps. */
struct Scale8 {
  __half2 scale, offset;
  __device__ __forceinline__ explicit Scale8(__half2 s)
      : scale(s), offset(__hmul2(s, __half2half2(__float2half_rn(-1152)))) {}
};

/* Bytes 0 and 1, or with kLast 2 and 3, as halves q * scale, rounded once. */
template <bool kLast> __device__ __forceinline__ uint32_t scaled_halves(uint32_t bytes, const Scale8 &s) {
  const uint32_t bits = prmt < kLast ? 0x4342 : 0x4140 > (bytes, 0x64646464u);
  const __half2 x = __hfma2(*(const __half2 *)&bits, s.scale, s.offset);
  return *(const uint32_t *)&x;
}

/* Two numbers of a key by one instruction, without their scale: bytes 0 and 1, or with kLast 2 and 3, as
 * kKeyUnit (1152 + q). kKeyUnit is so small that kKeyOffset times a query's sum over 16 dims fits fp16. */
constexpr float kKeyUnit = 0x1p-12f, kKeyOffset = 1152 * kKeyUnit;
template <bool kLast> __device__ __forceinline__ uint32_t key_halves(uint32_t bytes) {
  return prmt < kLast ? 0x4342 : 0x4140 > (bytes, 0x34343434u);
}

/* Two numbers of values likewise: bytes kByte and kByte + 2 as kValueUnit (128 + q). As subnormal halves they
 * have the smallest possible offset, 128 kValueUnit. */
constexpr float kValueUnit = 0x1p-24f;
constexpr uint32_t kValueOffsets = 0x00800080; /* 128 kValueUnit, twice */
template <int kByte> __device__ __forceinline__ uint32_t value_halves(uint32_t bytes) {
  return prmt < kByte ? 0x4341 : 0x4240 > (bytes, 0);
}

/* Number i of a cache in fp16, fp32 or 8 bits. scale: points to the number's scale; only 8 bits have one. */
__device__ __forceinline__ float cached(const __half *numbers, size_t i, const __half *) {
  return __half2float(numbers[i]);
}
__device__ __forceinline__ float cached(const float *numbers, size_t i, const __half *) {
  return numbers[i];
}
__device__ __forceinline__ float cached(const uint8_t *numbers, size_t i, const __half *scale) {
  return __half2float(__float2half_rn((float)(numbers[i] - 128) * __half2float(*scale)));
}

/* --- making numbers in 8 bits, as the CPU backend does */

/* The largest absolute value of each aligned group of kLanes lanes. Values are compared as bits: NaN is the
 * largest. */
template <int kLanes> __device__ __forceinline__ uint32_t largest_size(uint32_t size) {
#pragma unroll
  for (int bit = 1; bit < kLanes; bit *= 2) size = max(size, __shfl_xor_sync(~0u, size, bit));
  return size;
}

/* The scale of numbers whose largest absolute value has the bits `size`: that value / 127, rounded up to 7
 * bits (fp16 stores all but the first). NaN if a number is not finite. */
__device__ __forceinline__ __half scale_of_largest(uint32_t size) {
  const float wanted = size < 0x7f800000u ? __uint_as_float(size) / 127 : NAN;
  const __half half = __float2half_rn(wanted);
  const unsigned bits = __half_as_ushort(half) + (__half2float(half) < wanted);
  return __ushort_as_half((unsigned short)(size < 0x7f800000u ? (bits + 15) & ~15u : bits));
}

/* Rounds x / scale to fp32, as a division does, and the quotient to the nearest integer, with multiplications
 * only. inverse + rest is 1 / scale with a relative error of at most 2^-43. The product of x and inverse +
 * rest can round otherwise than x / scale only if the middle m of two neighbouring floats lies between that
 * product and x / scale. But m has 25 bits, the last one 1, and scale has 7. So scale * m has 25 to 32 bits
 * and is not x, which has 24. scale * m and x differ by at least 2^-32 of x, the last of 32 bits. So x /
 * scale is farther from m than the error reaches. A scale of 0, infinity or NaN makes every number 0. */
struct ToQ8 {
  float inverse, rest;
  bool usable;
  __device__ __forceinline__ explicit ToQ8(__half scale) {
    const float s = __half2float(scale);
    inverse = reciprocal(s), rest = __fmul_rn(fmaf(-s, inverse, 1), inverse);
    usable = s > 0 && s < INFINITY;
  }
  /* The byte is bits 0 to 7: floats from 2^23 to 2^24 have steps of 1. Meaningless unless `usable`. */
  __device__ __forceinline__ uint32_t bits(float x) const {
    return __float_as_uint(__fadd_rn(fmaf(x, inverse, __fmul_rn(x, rest)), 0x1.8p23f + 128));
  }
  __device__ __forceinline__ uint8_t byte(float x) const { return (uint8_t)(usable ? bits(x) : 128); }
  __device__ __forceinline__ uint32_t four_bytes(const float *x) const {
    const uint32_t low = prmt<0x0040>(bits(x[0]), bits(x[1])), high = prmt<0x0040>(bits(x[2]), bits(x[3]));
    return usable ? prmt<0x5410>(low, high) : 0x80808080u;
  }
};

/* The number that a kernel reads from a byte that ToQ8 made. */
__device__ __forceinline__ float from_q8(uint8_t number, __half scale) {
  return cached(&number, 0, &scale);
}

/* Rounds a key or value of n numbers to what the cache holds, and stores it if `wanted`. A lane has numbers
 * lane + 32 i. PRECOND numbers from n on are 0. */
template <int N>
__device__ __forceinline__ void store_q8(float (&x)[N], int n, bool is_key, bool wanted, uint8_t *to,
                                         __half *scales, int lane) {
  static_assert(32 % KEY_SCALE_DIMS == 0, "a scale of a key has a number of each of some lanes");
  uint32_t size[N], of_all = 0;
#pragma unroll
  for (int i = 0; i < N; i++) {
    size[i] = largest_size<KEY_SCALE_DIMS>(__float_as_uint(fabsf(x[i])));
    of_all = max(of_all, size[i]);
  }
  of_all = largest_size<32>(of_all);
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int d = lane + 32 * i;
    const __half scale = scale_of_largest(is_key ? size[i] : of_all);
    const uint8_t q = ToQ8(scale).byte(x[i]);
    x[i] = from_q8(q, scale);
    if (!wanted || d >= n) continue;
    to[d] = q;
    if (is_key ? d % KEY_SCALE_DIMS == 0 : d == 0) scales[d / KEY_SCALE_DIMS] = scale;
  }
}
