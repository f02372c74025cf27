/* values.cu - see values.h. */
#include "cuda/kernels/ops/values.h"

#include <cuda_fp16.h>

#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;

/* A block takes a row. */
__global__ void __launch_bounds__(kThreads)
    spread_values_kernel(ValueHeads heads, float scale, float *rows, size_t stride) {
  extern __shared__ float values[];
  begin_overlapping();
  float *row = rows + blockIdx.x * stride;
  for (int i = threadIdx.x; i < heads.n_heads * heads.value_dim; i += kThreads) values[i] = row[i];
  __syncthreads();
  for (int i = threadIdx.x; i < heads.n_heads * heads.head_dim; i += kThreads) {
    const int head = i / heads.head_dim, d = i % heads.head_dim;
    row[i] = d < heads.value_dim ? scale * values[head * heads.value_dim + d] : 0;
  }
}

/* A thread takes two numbers of a row. */
__global__ void __launch_bounds__(kThreads)
    join_values_kernel(ValueHeads heads, const __half2 *from, __half2 *to) {
  begin_overlapping();
  const int width = heads.value_dim / 2, n = heads.n_heads * width;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const size_t row = (size_t)blockIdx.y * heads.n_heads + i / width;
  to[(size_t)blockIdx.y * n + i] = from[row * (heads.head_dim / 2) + i % width];
}

} // namespace

Status ops_spread_values(const ValueHeads *heads, float scale, float *rows, size_t stride, int n_rows,
                         cudaStream_t stream, Error *err) {
  const size_t shared = (size_t)heads->n_heads * heads->value_dim * sizeof(float);
  return launch(spread_values_kernel, dim3((unsigned)n_rows), kThreads, shared, stream, true,
                "values of heads", err, *heads, scale, rows, stride);
}

Status ops_join_values(const ValueHeads *heads, const void *from, int n_rows, void *to, cudaStream_t stream,
                       Error *err) {
  const int n = heads->n_heads * heads->value_dim / 2;
  return launch(join_values_kernel, dim3((unsigned)((n + kThreads - 1) / kThreads), (unsigned)n_rows),
                kThreads, 0, stream, true, "outputs of heads", err, *heads, (const __half2 *)from,
                (__half2 *)to);
}
