/* host_rows.cu - see host_rows.h.
 *
 * A thread moves one number. So a row costs one round trip over the bus, not one for each number of a loop.
 * No launch here is programmatic dependent: a kernel begins when earlier kernels and host functions have
 * ended. */
#include "cuda/kernels/ops/host_rows.h"

#include <algorithm>

#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;

/* PRECOND grid (max(to_stride, choices.n) / kThreads rounded up, n_rows).   MOVES 4 bytes a number to the
 * host, and 8 a choice. */
__global__ void __launch_bounds__(kThreads)
    to_host_kernel(const __half *x, int x_stride, int n, float *to, int to_stride, HostChoices choices) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const size_t row = blockIdx.y, choice = row * choices.n + i;
  if (i < to_stride) to[row * to_stride + i] = i < n ? __half2float(x[row * x_stride + i]) : 0;
  if (i >= choices.n) return;
  choices.to_ids[choice] = choices.from_ids[choice];
  choices.to_weights[choice] = choices.from_weights[choice];
}

/* PRECOND grid (n / kThreads rounded up, n_rows).   MOVES 4 bytes a number from the host. */
__global__ void __launch_bounds__(kThreads) from_host_kernel(const float *from, int n, HostRowsForm form,
                                                             const float *factors, void *y, int y_stride) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const size_t row = blockIdx.y, at = row * y_stride + i;
  if (i >= n) return;
  const float value = from[row * n + i];
  if (form == HOST_ROWS_F32) ((float *)y)[at] = value;
  if (form == HOST_ROWS_ADD_F32) ((float *)y)[at] += value;
  if (form == HOST_ROWS_F16) ((__half *)y)[at] = clamp_half(factors ? factors[row] * value : value);
}

dim3 grid_of(int n, int n_rows) {
  return dim3((unsigned)ceil_div(n, kThreads), (unsigned)n_rows);
}

} // namespace

Status ops_rows_to_host(const void *x, int x_stride, int n, int n_rows, float *to, int to_stride,
                        HostChoices choices, cudaStream_t stream, Error *err) {
  return launch(to_host_kernel, grid_of(std::max(to_stride, choices.n), n_rows), kThreads, 0, stream, false,
                "rows to the host", err, (const __half *)x, x_stride, n, to, to_stride, choices);
}

Status ops_rows_from_host(const float *from, int n, int n_rows, HostRowsForm form, const float *factors,
                          void *y, int y_stride, cudaStream_t stream, Error *err) {
  return launch(from_host_kernel, grid_of(n, n_rows), kThreads, 0, stream, false, "rows from the host", err,
                from, n, form, factors, y, y_stride);
}
