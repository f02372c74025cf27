/* epilogue.cuh - what happens to a finished sum: times the output's factor, plus its bias, then to fp16,
 * fp32, the residual stream or SwiGLU.
 *
 * A caller has rows g and g + 8 of a tile in one thread; with mma fragments g = lane / 4 and t = lane % 4. In
 * an interleaved matrix (linear.h) the two rows are gate and up of the same output. */
#pragma once

#include <type_traits>

#include "cuda/kernels/linear/layout.cuh"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/ops/elementwise.cuh"

struct Epilogue {
  void *y;
  const float *bias; /* [n_out rounded up to 16, in slab order] or NULL */
  size_t stride;     /* elements between rows of y */
  int n_out;         /* rows of the matrix, or of one expert; rows past n_out are not stored */
  LinearOutput kind;
  const float *factors; /* factors of the sums, [n_out rounded up to 16, in slab order], or NULL */
  Activation gated;     /* of LINEAR_SWIGLU_F16; ACTIVATION_RELU: the matrix is not interleaved */
  float limit;          /* of ACTIVATION_LIMITED */
  /* NULL, or a factor for each row of y (summed experts as one matrix: for each choice). With
   * LINEAR_SWIGLU_F16 the factors multiply the gated product, else only the bias. */
  const float *row_factors;
};

__device__ __forceinline__ float gated_result(const Epilogue &out, int row, float gate, float up) {
  if (out.gated == ACTIVATION_SILU && !out.row_factors) return silu(gate) * up;
  return gated_product(out.gated, gate, up, out.limit) * (out.row_factors ? out.row_factors[row] : 1.0f);
}

/* The result where v is both the output and its gate. */
__device__ __forceinline__ float ungated_result(const Epilogue &out, int row, float v) {
  return gated_product(ACTIVATION_RELU, v, v, 0) * (out.row_factors ? out.row_factors[row] : 1.0f);
}

__device__ __forceinline__ float bias_factor(const Epilogue &out, int row) {
  return out.row_factors && out.kind != LINEAR_SWIGLU_F16 ? out.row_factors[row] : 1.0f;
}

/* A sum times `by`, its output's factor, plus the output's bias times `times`, the row's factor. Under
 * LINEAR_INVARIANT several kernels must round alike. So fmaf is written out: the compiler might fuse the
 * operations differently in each kernel. */
__device__ __forceinline__ float with_factor_and_bias(float sum, float by, float bias, float times) {
  return fmaf(sum, by, bias * times);
}

__device__ __forceinline__ void store_value(const Epilogue &out, int token, int row, float v) {
  if (row >= out.n_out) return;
  size_t i = (size_t)token * out.stride + row;
  if (out.kind == LINEAR_TO_F16 || out.kind == LINEAR_SWIGLU_F16)
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
  const bool ungated = out.gated == ACTIVATION_RELU;
  if (ungated) low = ungated_result(out, token, low), high = ungated_result(out, token, high);
  if (out.kind == LINEAR_SWIGLU_F16 && !ungated) {
    if (row < out.n_out)
      ((__half *)out.y)[(size_t)token * out.stride + 8 * tile + g] =
          clamp_half(gated_result(out, token, low, high));
  } else {
    store_value(out, token, row, low);
    store_value(out, token, row + 8, high);
  }
}

/* Calls store(offset, n, i) for each token token0 + 8 n + 2 t + i in [begin, end), n < kN, i < 2. offset: the
 * element at which the token's row of y begins. */
template <int kN, class Store>
__device__ __forceinline__ void for_tokens(const Epilogue &out, int token0, int begin, int end, Store store) {
  const int token = token0 + threadIdx.x % 4 * 2;
  size_t offset = (size_t)token * out.stride;
#pragma unroll
  for (int n = 0; n < kN; n++) {
#pragma unroll
    for (int i = 0; i < 2; i++, offset += out.stride)
      if ((unsigned)(token + 8 * n + i - begin) < (unsigned)(end - begin)) store(offset, n, i);
    offset += 6 * out.stride;
  }
}

/* Multiplies fragments v, tokens token0 + 8 n + 2 t + i, by the factors of rows `row` and row + 8, and adds
 * their biases. With kTimes a bias is multiplied by its token's bias_factor(), and no caller uses fragments
 * of tokens from `end` on. */
template <int kN, bool kTimes = true>
__device__ __forceinline__ void factors_and_biases(const Epilogue &out, int row, int token0, int end,
                                                   float *v) {
  float by[2], plus[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const bool there = row + 8 * r < out.n_out;
    by[r] = out.factors && there ? out.factors[row + 8 * r] : 1.0f;
    plus[r] = out.bias && there ? out.bias[row + 8 * r] : 0.0f;
  }
  const float *times = kTimes && out.bias && out.kind != LINEAR_SWIGLU_F16 ? out.row_factors : nullptr;
  const int token = token0 + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2 * kN; i++) {
    const float factor = times ? __ldg(times + min(token + i / 2 * 8 + i % 2, end - 1)) : 1.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float &at = v[i / 2 * 4 + i % 2 + 2 * r];
      at = with_factor_and_bias(at, by[r], plus[r], factor);
    }
  }
}

/* Stores a warp's sums of one tile row as mma leaves them: c[4 n + i] is row g (i < 2) or g + 8 of token
 * token0 + 8 n + 2 t + i % 2. Only tokens of [begin, end) are stored. Atomics without result add to the
 * residual stream, so no thread waits for a load. Each element gets one sum: the order does not matter.
 * A kernel of few tokens runs this code once or twice and waits for its instructions to be fetched. So the
 * usual forms are short. */
template <int kN>
__device__ __forceinline__ void store_fragments(const Epilogue &out, int tile, int token0, int begin, int end,
                                                const float *c) {
  const int g = threadIdx.x % 32 / 4, row = kTileOut * tile + g;
  const bool high = row + 8 < out.n_out;
  float v[4 * kN];
  if (row >= out.n_out) return;
#pragma unroll
  for (int i = 0; i < 4 * kN; i++) v[i] = c[i];
  if (out.bias || out.factors) factors_and_biases<kN>(out, row, token0, end, v);
  if (out.kind == LINEAR_SWIGLU_F16) {
    const bool plain = !out.row_factors, ungated = out.gated == ACTIVATION_RELU;
    __half *y = (__half *)out.y + (ungated ? row : 8 * tile + g);
    const auto token_of = [&](int n, int i) { return token0 + (int)threadIdx.x % 4 * 2 + 8 * n + i; };
    const auto multiply_by = [&](auto activation) {
      for_tokens<kN>(out, token0, begin, end, [&](size_t offset, int n, int i) {
        y[offset] = clamp_half(gated_product(decltype(activation)::value, v[4 * n + i], v[4 * n + i + 2], 0));
      });
    };
    if (out.gated == ACTIVATION_SILU && plain)
      multiply_by(std::integral_constant<Activation, ACTIVATION_SILU>());
    else if (out.gated == ACTIVATION_GELU_TANH && plain)
      multiply_by(std::integral_constant<Activation, ACTIVATION_GELU_TANH>());
    else if (ungated)
      for_tokens<kN>(out, token0, begin, end, [&](size_t offset, int n, int i) {
        y[offset] = clamp_half(ungated_result(out, token_of(n, i), v[4 * n + i]));
        if (high) y[offset + 8] = clamp_half(ungated_result(out, token_of(n, i), v[4 * n + i + 2]));
      });
    else
      for_tokens<kN>(out, token0, begin, end, [&](size_t offset, int n, int i) {
        y[offset] = clamp_half(gated_result(out, token_of(n, i), v[4 * n + i], v[4 * n + i + 2]));
      });
  } else if (out.kind == LINEAR_TO_F16) {
    __half *y = (__half *)out.y + row;
    for_tokens<kN>(out, token0, begin, end, [&](size_t offset, int n, int i) {
      y[offset] = clamp_half(v[4 * n + i]);
      if (high) y[offset + 8] = clamp_half(v[4 * n + i + 2]);
    });
  } else {
    float *y = (float *)out.y + row;
    if (out.kind == LINEAR_ADD_F32)
      for_tokens<kN>(out, token0, begin, end, [&](size_t offset, int n, int i) {
        atomicAdd(y + offset, v[4 * n + i]);
        if (high) atomicAdd(y + offset + 8, v[4 * n + i + 2]);
      });
    else
      for_tokens<kN>(out, token0, begin, end, [&](size_t offset, int n, int i) {
        y[offset] = v[4 * n + i];
        if (high) y[offset + 8] = v[4 * n + i + 2];
      });
  }
}
