/* heads.cuh - RMSNorm of one head by a warp, for the kernel that makes queries, keys and values from
 * projections (norm_rope.cu) and for the matmul whose epilogue does so (linear/narrow/next.cuh); and the
 * factor of queries by position.
 *
 * A lane has kPairs pairs of dimensions, low[i] and high[i]. */
#pragma once

#include "cuda/ops/elementwise.cuh"
#include "cuda/ptx/lanes.cuh"

/* The factor of a query at this position: 1 + beta ln(1 + floor(position / step)). */
__device__ __forceinline__ float query_factor(float beta, float step, int position) {
  return 1 + beta * logf(1 + floorf((float)position / step));
}

/* Multiplies the head by its weights and by 1 / rms. */
template <int kPairs>
__device__ __forceinline__ void normalise_head(float (&low)[kPairs], float (&high)[kPairs],
                                               const float (&low_weight)[kPairs],
                                               const float (&high_weight)[kPairs], int head_dim, float eps) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPairs; i++) squares += low[i] * low[i] + high[i] * high[i];
  const float scale = rsqrtf(warp_sum(squares) / head_dim + eps);
#pragma unroll
  for (int i = 0; i < kPairs; i++) low[i] *= scale * low_weight[i], high[i] *= scale * high_weight[i];
}
