/* epilogue.cuh - where a finished sum goes: bias, then fp16, fp32, the residual stream or the gated product.
 *
 * Every kernel ends with the same pair in one thread, rows g and g + 8 of a tile of 16, because a paired matrix
 * (linear.h) has gate in the one and up in the other. */
#ifndef AUK_CUDA_EPILOGUE_CUH
#define AUK_CUDA_EPILOGUE_CUH

#include <cuda_fp16.h>

#include "cuda/layout.cuh"
#include "cuda/linear.h"

struct Epilogue {
  void *y;
  const float *bias; /* [rows, in slab order] or NULL */
  size_t stride;     /* of y, elements */
  int n_out;         /* rows of the matrix; those past it are dropped */
  LinearOutput kind;
};

/* fp16 without overflow: no real activation is infinite. NaN stays NaN. */
__device__ __forceinline__ __half clamp_half(float v) {
  return __float2half_rn(fabsf(v) > 65504.0f ? copysignf(65504.0f, v) : v);
}

__device__ __forceinline__ float silu(float v) {
  return v / (1.0f + __expf(-v));
}

__device__ __forceinline__ void store_row(const Epilogue &out, int token, int row, float v) {
  if (row >= out.n_out) return;
  size_t i = (size_t)token * out.stride + row;
  if (out.kind == LINEAR_TO_F16)
    ((__half *)out.y)[i] = clamp_half(v);
  else if (out.kind == LINEAR_TO_F32)
    ((float *)out.y)[i] = v;
  else
    ((float *)out.y)[i] += v;
}

/* The sums of rows 16 * tile + g and 16 * tile + g + 8, for one token. */
__device__ __forceinline__ void store_pair(const Epilogue &out, int token, int tile, int g, float low,
                                           float high) {
  int row = kTileOut * tile + g;
  if (out.bias) {
    low += out.bias[row];
    high += out.bias[row + 8];
  }
  if (out.kind == LINEAR_SWIGLU_F16) {
    if (row < out.n_out)
      ((__half *)out.y)[(size_t)token * out.stride + 8 * tile + g] = clamp_half(silu(low) * high);
  } else {
    store_row(out, token, row, low);
    store_row(out, token, row + 8, high);
  }
}

#endif
