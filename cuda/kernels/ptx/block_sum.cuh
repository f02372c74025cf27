/* block_sum.cuh - sums over the threads of a block, and the scale of an RMSNorm. */
#pragma once

#include "cuda/kernels/ptx/lanes.cuh"

/* Sum over the block, the same in every thread; the order of additions depends only on kThreads. PRECOND a
 * __syncthreads() lies between two sums, because both use the same shared memory. */
template <int kThreads> __device__ float block_sum(float value) {
  __shared__ float sums[kThreads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; w++) total += sums[w];
  return total;
}

/* 1 / sqrt(mean of squares + eps) of a row, the same in every thread. PRECOND as for block_sum(). */
template <int kThreads> __device__ float rms_scale(const float *row, int n, float eps) {
  float squares = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) squares += row[i] * row[i];
  return rsqrtf(block_sum<kThreads>(squares) / n + eps);
}
