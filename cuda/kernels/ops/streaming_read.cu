/* streaming_read.cu - see streaming_read.h. */
#include "cuda/kernels/ops/streaming_read.h"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 512, kBlocksPerSm = 2, kInFlight = 8; /* 128 KB of loads in flight per SM */

__device__ __forceinline__ unsigned folded(uint4 v) {
  return v.x ^ v.y ^ v.z ^ v.w;
}

/* READS  n * 16 bytes once, coalesced. */
__global__ void __launch_bounds__(kThreads) read_words(const uint4 *from, size_t n, unsigned *never) {
  const size_t step = (size_t)gridDim.x * kThreads;
  size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x;
  unsigned sum = 0;
  for (; i + (kInFlight - 1) * step < n; i += kInFlight * step) {
    uint4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; j++) v[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < kInFlight; j++) sum ^= folded(v[j]);
  }
  for (; i < n; i += step) sum ^= folded(__ldcs(from + i));
  if (sum == 0x9e3779b9u) *never = sum; /* random data: once in 2^32 threads, and harmless */
}

} // namespace

Status streaming_read(const void *from, size_t bytes, int n_sms, unsigned *never, cudaStream_t stream,
                      Error *err) {
  return launch(read_words, dim3((unsigned)(n_sms * kBlocksPerSm)), kThreads, 0, stream, false, "reading",
                err, (const uint4 *)from, bytes / 16, never);
}
