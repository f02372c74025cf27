/* elementwise.cuh - formulas that several kernels share: rounding to fp16, SiLU, rope, embedding lookup. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#include "model/model.h"
}

/* Rounds to fp16, clamped to its finite range. NaN stays NaN. */
__device__ __forceinline__ __half clamp_half(float v) {
  return __float2half_rn(fabsf(v) > 65504.0f ? copysignf(65504.0f, v) : v);
}

__device__ __forceinline__ float silu(float v) {
  return __fdividef(v, 1.0f + __expf(-v));
}

/* Rotates a pair of dimensions by an angle, given as {cosine, sine}. */
__device__ __forceinline__ void rotate(float &low, float &high, float2 angle) {
  const float turned = low * angle.x - high * angle.y;
  high = high * angle.x + low * angle.y;
  low = turned;
}

/* rotate() for one dimension of a pair; another lane has the `other`. */
__device__ __forceinline__ float rotate_with(float own, float other, bool is_low, float2 angle) {
  return own * angle.x + (is_low ? -other : other) * angle.y;
}

/* Element i of an embedding table of F32, F16 or BF16. */
__device__ __forceinline__ float embedding_at(const void *table, Dtype type, size_t i) {
  return type == DTYPE_F16   ? __half2float(((const __half *)table)[i])
         : type == DTYPE_F32 ? ((const float *)table)[i]
                             : (float)((const __nv_bfloat16 *)table)[i];
}
