/* elementwise.cuh - the formulas of a layer that several kernels end with: the rounding to fp16, the
 * activation of the gated product, rope, and a number of the embedding table. */
#ifndef AUK_CUDA_OPS_ELEMENTWISE_CUH
#define AUK_CUDA_OPS_ELEMENTWISE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#include "model/model.h"
}

/* fp16 without overflow: no real activation is infinite. NaN stays NaN. */
__device__ __forceinline__ __half clamp_half(float v) {
  return __float2half_rn(fabsf(v) > 65504.0f ? copysignf(65504.0f, v) : v);
}

__device__ __forceinline__ float silu(float v) {
  return __fdividef(v, 1.0f + __expf(-v));
}

/* Rope turns a pair of dimensions by the angle of {cosine, sine}. */
__device__ __forceinline__ void rotate(float &low, float &high, float2 angle) {
  const float turned = low * angle.x - high * angle.y;
  high = high * angle.x + low * angle.y;
  low = turned;
}

/* The same where another lane has the other one of the pair. */
__device__ __forceinline__ float rotate_with(float own, float other, bool is_low, float2 angle) {
  return own * angle.x + (is_low ? -other : other) * angle.y;
}

/* Number i of an embedding table of F32, F16 or BF16. */
__device__ __forceinline__ float embedding_at(const void *table, Dtype type, size_t i) {
  return type == DTYPE_F16   ? __half2float(((const __half *)table)[i])
         : type == DTYPE_F32 ? ((const float *)table)[i]
                             : (float)((const __nv_bfloat16 *)table)[i];
}

#endif
