/* epilogue.cuh - what happens to a finished sum: the output's factor, bias, then fp16, fp32, the residual
 * stream or SwiGLU.
 *
 * Every kernel ends with rows g and g + 8 of a tile in one thread: in an interleaved matrix (linear.h) gate
 * and up of the same output. */
#pragma once

#include "cuda/linear/layout.cuh"
#include "cuda/linear/linear.h"
#include "cuda/ops/elementwise.cuh"

struct Epilogue {
  void *y;
  const float *bias; /* [n_out, in slab order] or NULL */
  size_t stride;     /* of y, elements */
  int n_out;         /* rows of the matrix; those past it are not stored */
  LinearOutput kind;
  const float *factors; /* [n_out rounded up to 16, in slab order] or NULL: sums are multiplied by them */
  Activation gated;     /* of LINEAR_SWIGLU_F16 */
  /* [rows of y] or NULL. They multiply the gated product, or with other outputs the bias alone. */
  const float *row_factors;
};

__device__ __forceinline__ float gated_result(const Epilogue &out, int row, float gate, float up) {
  if (out.gated == ACTIVATION_SILU && !out.row_factors) return silu(gate) * up;
  return gated_product(out.gated, gate, up) * (out.row_factors ? out.row_factors[row] : 1.0f);
}

__device__ __forceinline__ float bias_factor(const Epilogue &out, int row) {
  return out.row_factors && out.kind != LINEAR_SWIGLU_F16 ? out.row_factors[row] : 1.0f;
}

__device__ __forceinline__ void store_value(const Epilogue &out, int token, int row, float v) {
  if (row >= out.n_out) return;
  size_t i = (size_t)token * out.stride + row;
  if (out.kind == LINEAR_TO_F16)
    ((__half *)out.y)[i] = clamp_half(v);
  else if (out.kind == LINEAR_TO_F32)
    ((float *)out.y)[i] = v;
  else
    ((float *)out.y)[i] += v;
}

/* Stores the sums of rows 16 * tile + g and 16 * tile + g + 8 for one token. */
__device__ __forceinline__ void store_row_pair(const Epilogue &out, int token, int tile, int g, float low,
                                               float high) {
  int row = kTileOut * tile + g;
  if (out.factors) {
    low *= out.factors[row];
    high *= out.factors[row + 8];
  }
  if (out.bias) {
    const float by = bias_factor(out, token);
    low += by * out.bias[row];
    high += by * out.bias[row + 8];
  }
  if (out.kind == LINEAR_SWIGLU_F16) {
    if (row < out.n_out)
      ((__half *)out.y)[(size_t)token * out.stride + 8 * tile + g] =
          clamp_half(gated_result(out, token, low, high));
  } else {
    store_value(out, token, row, low);
    store_value(out, token, row + 8, high);
  }
}

/* Stores a warp's sums of one tile row as mma leaves them: c[4 n + i] is row g (i < 2) or g + 8 of token
 * token0 + 8 n + 2 t + i % 2; only tokens of [begin, end) are stored. The residual stream is added
 * to by an atomic without result, since then no thread waits for a load; each number has one sum. */
template <int kN>
__device__ __forceinline__ void store_fragments(const Epilogue &out, int tile, int token0, int begin, int end,
                                                const float *c) {
  int lane = threadIdx.x % 32, g = lane / 4, token = token0 + lane % 4 * 2, row = kTileOut * tile + g;
  bool interleaved = out.kind == LINEAR_SWIGLU_F16, high = row + 8 < out.n_out;
  if (row >= out.n_out) return;
  float bias_low = out.bias ? out.bias[row] : 0.0f, bias_high = out.bias ? out.bias[row + 8] : 0.0f;
  float by_low = out.factors ? out.factors[row] : 1.0f, by_high = out.factors ? out.factors[row + 8] : 1.0f;
  if (out.kind == LINEAR_TO_F16 || interleaved) {
    __half *y = (__half *)out.y + (size_t)token * out.stride + (interleaved ? 8 * tile + g : row);
#pragma unroll
    for (int n = 0; n < kN; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (token + 8 * n + i < begin || token + 8 * n + i >= end) continue;
        __half *to = y + (8 * n + i) * out.stride;
        float a = c[4 * n + i] * by_low + bias_low, b = c[4 * n + i + 2] * by_high + bias_high;
        *to = clamp_half(interleaved ? gated_result(out, token + 8 * n + i, a, b) : a);
        if (!interleaved && high) to[8] = clamp_half(b);
      }
    return;
  }
  float *y = (float *)out.y + (size_t)token * out.stride + row;
  bool add = out.kind == LINEAR_ADD_F32;
#pragma unroll
  for (int n = 0; n < kN; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int at = token + 8 * n + i % 2;
      if (at < begin || at >= end || (i >= 2 && !high)) continue;
      float *to = y + (8 * n + i % 2) * out.stride + i / 2 * 8;
      const float bias = (i < 2 ? bias_low : bias_high) * bias_factor(out, at);
      const float v = c[4 * n + i] * (i < 2 ? by_low : by_high) + bias;
      if (add)
        atomicAdd(to, v);
      else
        *to = v;
    }
}
