/* order.cu - see order.h. */
#include "cuda/kernels/ops/order.h"

#include <cuda_fp16.h>

#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;

/* A thread makes two numbers of a row. The order was written when the model was loaded, so it is read before
 * the kernel that makes x has ended. */
__global__ void __launch_bounds__(kThreads)
    order_inputs_kernel(const __half *x, size_t x_stride, const int2 *order, int n_pairs, __half2 *out,
                        size_t out_stride) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int2 from = i < n_pairs ? order[i] : make_int2(0, 0);
  begin_overlapping();
  if (i >= n_pairs) return;
  const __half *row = x + blockIdx.y * x_stride;
  out[blockIdx.y * out_stride + i] = __halves2half2(row[from.x], row[from.y]);
}

} // namespace

Status ops_order_inputs(const void *x, int x_stride, const int *order, int n, int n_rows, void *out,
                        int out_stride, cudaStream_t stream, Error *err) {
  const dim3 grid((unsigned)((n / 2 + kThreads - 1) / kThreads), (unsigned)n_rows);
  return launch(order_inputs_kernel, grid, kThreads, 0, stream, true, "inputs in order", err,
                (const __half *)x, (size_t)x_stride, (const int2 *)order, n / 2, (__half2 *)out,
                (size_t)(out_stride / 2));
}
