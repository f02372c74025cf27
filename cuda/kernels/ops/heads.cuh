/* heads.cuh - RMSNorm of one head by a warp, and the factor of queries by position. For the kernel that makes
 * queries, keys and values from projections (norm_rope.cu), for the matmuls whose epilogues make them
 * (linear/narrow/next.cuh, linear/wide/heads_end.cuh), and for latent.cu.
 *
 * A lane has kPairs pairs of dimensions, low[i] and high[i]: pairs lane, lane + 32, and so on. The squares of
 * a head are always added in one order. Within 32 pairs: first the squares of pairs whose indices differ in
 * bit 0, then two such sums whose indices differ in bit 1, and so on. Then the sums of each 32 pairs, one
 * after another. Lanes of heads_end.cuh have other pairs but add in the same order: a head gets the same
 * bits. */
#pragma once

#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

/* The factor of a query at this position: 1 + beta ln(1 + floor(position / step)). */
__device__ __forceinline__ float query_factor(float beta, float step, int position) {
  return 1 + beta * logf(1 + floorf((float)position / step));
}

/* The sum of a pair's squares. fmaf is written out: else the compiler could fuse the products differently in
 * each kernel. */
__device__ __forceinline__ float squares_of(float low, float high) {
  return fmaf(low, low, high * high);
}

/* The sum of a head's squares in the order that the file's head gives: the first pairs of all lanes, then
 * their second pairs, and so on. With two pairs each lane keeps only one of the two sums after the first
 * exchange. That saves four shuffles. */
template <int kPairs> __device__ __forceinline__ float sum_of_squares(const float (&squares)[kPairs]) {
  if constexpr (kPairs == 2) {
    const bool odd = threadIdx.x % 2;
    const float own =
        (odd ? squares[1] : squares[0]) + __shfl_xor_sync(~0u, odd ? squares[0] : squares[1], 1);
    return lanes_sum<2, 4, 8, 16, 1>(own);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPairs; i++) sum += lanes_sum<1, 2, 4, 8, 16>(squares[i]);
  return sum;
}

/* Multiplies the head by its weights and by 1 / rms. */
template <int kPairs>
__device__ __forceinline__ void normalise_head(float (&low)[kPairs], float (&high)[kPairs],
                                               const float (&low_weight)[kPairs],
                                               const float (&high_weight)[kPairs], int head_dim, float eps) {
  float squares[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; i++) squares[i] = squares_of(low[i], high[i]);
  const float scale = rsqrtf(sum_of_squares(squares) / head_dim + eps);
#pragma unroll
  for (int i = 0; i < kPairs; i++) low[i] *= scale * low_weight[i], high[i] *= scale * high_weight[i];
}
