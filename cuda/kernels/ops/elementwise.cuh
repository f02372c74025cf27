/* elementwise.cuh - formulas that several kernels share: rounding to fp16, activations, rope, embeddings. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/arithmetic.h"

/* v as an fp16 cache of values stores it: clamped to fp16's finite range, NaN as the least finite number.
 * Attention of other sequences can multiply the number by 0 (fused/few/attention.cuh), and 0 times infinity
 * is NaN. A sequence with NaN has logits of NaN all the same. */
__device__ __forceinline__ float finite_value(float v) {
  return fminf(fmaxf(v, -65504.0f), 65504.0f);
}

/* Rounds to fp16, clamped to fp16's finite range. NaN stays NaN. */
__device__ __forceinline__ __half clamp_half(float v) {
  return __float2half_rn(fabsf(v) > 65504.0f ? copysignf(65504.0f, v) : v);
}

__device__ __forceinline__ float sigmoid(float v) {
  return 1 / (1 + expf(-v));
}

/* ln(1 + e^x), which from 20 on is x in fp32. */
__device__ __forceinline__ float softplus(float x) {
  return x > 20 ? x : log1pf(expf(x));
}

__device__ __forceinline__ float silu(float v) {
  return __fdividef(v, 1.0f + __expf(-v));
}

/* The MLP's gate and up together: activation(gate) * up, or the formula of ACTIVATION_CLAMPED or
 * ACTIVATION_LIMITED (config.h); `most` is ACTIVATION_LIMITED's limit. NaN stays NaN. PRECOND activation <=
 * ACTIVATION_RELU (later ones are in norm_rope.cu); with ACTIVATION_RELU gate and up are the same number. */
__device__ __forceinline__ float gated_product(Activation activation, float gate, float up, float most) {
  if (activation == ACTIVATION_SILU) return silu(gate) * up;
  if (activation == ACTIVATION_RELU) return (gate < 0 ? 0 : gate) * up;
  if (activation == ACTIVATION_LIMITED) {
    const float g = silu(gate);
    return (g > most ? most : g) * (up > most ? most : up < -most ? -most : up);
  }
  if (activation == ACTIVATION_GELU_TANH) /* x / 2 (1 + tanh(u)) = x / (1 + e^-2u); 1.5957 = 2 sqrt(2 / pi) */
    return __fdividef(gate, 1 + __expf(-gate * (1 + gate * gate * 0.044715f) * 1.5957691216f)) * up;
  const float limit = 7, c = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
  return __fdividef(c, 1 + __expf(-1.702f * c)) * (1 + u);
}

/* Rotates a pair of dimensions by an angle, given as {cosine, sine}. fmaf is written out: else the compiler
 * could fuse the products differently in each kernel. */
__device__ __forceinline__ void rotate(float &low, float &high, float2 angle) {
  const float turned = fmaf(low, angle.x, -(high * angle.y));
  high = fmaf(high, angle.x, low * angle.y);
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
