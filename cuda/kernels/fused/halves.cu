/* halves.cu - converts dense weights from bf16 to fp16 in place. bf16 has 8 bits of mantissa, so numbers from
 * 2^-17 up to 65504 stay as they are; smaller numbers are rounded to a multiple of 2^-24.
 *
 * Called by: fused.c, for lm_head and for layers. */
#include <cuda_bf16.h>

#include <stdlib.h>

#include "cuda/kernels/fused/halves.h"
#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace {

constexpr int kThreads = 256, kRows = kThreads / 32; /* a warp a row */

/* lost[row] = {sum of the squared errors of the row's numbers in fp16, sum of the squared numbers}. */
__global__ void measure_rows(const __nv_bfloat16 *w, size_t stride, int n_in, int n_out, float2 *lost) {
  const int row = blockIdx.x * kRows + threadIdx.x / 32;
  if (row >= n_out) return;
  float2 sum = {0, 0};
  for (int i = threadIdx.x % 32; i < n_in; i += 32) {
    const float v = __bfloat162float(w[row * stride + i]), error = __half2float(__float2half_rn(v)) - v;
    sum.x += error * error, sum.y += v * v;
  }
  sum.x = warp_sum(sum.x), sum.y = warp_sum(sum.y);
  if (threadIdx.x % 32 == 0) lost[row] = sum;
}

__global__ void to_halves(__nv_bfloat162 *w, size_t n) {
  const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) ((__half2 *)w)[i] = __float22half2_rn(__bfloat1622float2(w[i]));
}

/* True if `lost`, the sum of squared errors, is at most 5e-10 of `all`, the sum of squares. This is a
 * five-hundredth of the NMSE allowed to matmuls with weights rounded to fp16. False for NaN. */
bool is_little(double lost, double all) {
  return lost <= 5e-10 * all;
}

bool rows_fit(const float2 *lost, int n_rows, bool each_row) {
  double sum = 0, all = 0;
  for (int row = 0; row < n_rows; row++) {
    if (each_row && !is_little(lost[row].x, lost[row].y)) return false;
    sum += lost[row].x, all += lost[row].y;
  }
  return is_little(sum, all);
}

/* Runs measure_rows(), and waits. lost: [n_out] on the host. */
Status measure(const DeviceLinear *w, float2 *lost, cudaStream_t stream, Error *err) {
  const size_t bytes = (size_t)w->n_out * sizeof *lost;
  float2 *memory;
  TRY(cuda_status(cudaMalloc((void **)&memory, bytes), w->name, err));
  Status status = launch(measure_rows, dim3((unsigned)ceil_div(w->n_out, kRows)), kThreads, 0, stream, false,
                         w->name, err, (const __nv_bfloat16 *)w->dense, w->stride, w->n_in, w->n_out, memory);
  if (!status)
    status = cuda_status(cudaMemcpyAsync(lost, memory, bytes, cudaMemcpyDeviceToHost, stream), w->name, err);
  if (!status) status = cuda_status(cudaStreamSynchronize(stream), w->name, err);
  cudaFree(memory);
  return status;
}

} // namespace

Status linear_to_halves(DeviceLinear *w, bool each_row, cudaStream_t stream, bool *done, Error *err) {
  *done = false;
  float2 *lost = (float2 *)mem_alloc((size_t)w->n_out, sizeof *lost, "rows of lm_head", err);
  if (!lost) return STATUS_FAILED;
  const Status status = measure(w, lost, stream, err);
  const bool fit = !status && rows_fit(lost, w->n_out, each_row);
  free(lost);
  if (!fit) return status;
  const size_t pairs = (size_t)w->n_out * w->stride / 2;
  TRY(launch(to_halves, dim3((unsigned)ceil_div((long)pairs, kThreads)), kThreads, 0, stream, false, w->name,
             err, (__nv_bfloat162 *)w->dense, pairs));
  w->type = WEIGHT_F16;
  *done = true;
  return STATUS_OK;
}
