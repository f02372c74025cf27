/* heads.cu - one matrix for each head, each multiplied by its own part of x: the products of latent attention
 * (layers/latent.c).
 *
 *     y[t][h][o] = sum_i w[h][o][i] x[t][h][i]      fp16, with fp32 sums
 *
 * Up to kFew tokens: eight lanes take a row of a matrix, 16 bytes a load, and ask for up to 512 inputs of it
 * before the kernel waits for the one that makes x. More tokens: cuBLAS, all heads in one call.
 *
 * READS  the weights once. */
#include "cuda/linear/dense/heads.h"

#include <algorithm>

#include "cuda/linear/eight.cuh"
#include "cuda/linear/kernel.cuh"
#include "cuda/ops/elementwise.cuh"

namespace {

constexpr int kFew = 8, kThreads = 256, kLanes = 8, kRows = kThreads / kLanes, kVectors = 8;

__device__ __forceinline__ void add_products(float &sum, uint4 w, uint4 x) {
  const Eight<__half> weights = {{w}}, inputs = {{x}};
  float a[8], b[8];
  weights.floats(a);
  inputs.floats(b);
#pragma unroll
  for (int i = 0; i < 8; i++) sum = fmaf(a[i], b[i], sum);
}

/* A block takes kRows outputs of a head. The weights' padding is zeros, and so must x's be. */
template <int kTokens> __global__ void __launch_bounds__(kThreads) few_kernel(LinearHeads a) {
  dependents_may_start();
  const int lane = threadIdx.x % kLanes, head = blockIdx.y, row = blockIdx.x * kRows + threadIdx.x / kLanes,
            vectors = a.w_stride / 8;
  const uint4 *w = (const uint4 *)a.w + ((size_t)head * a.n_out + min(row, a.n_out - 1)) * vectors;
  float sum[kTokens] = {};
  for (int first = 0; first < vectors; first += kVectors * kLanes) {
    uint4 own[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; i++) {
      const int at = first + i * kLanes + lane;
      own[i] = at < vectors ? w[at] : make_uint4(0, 0, 0, 0);
    }
    if (first == 0) wait_for_previous();
#pragma unroll
    for (int t = 0; t < kTokens; t++) {
      const uint4 *x = (const uint4 *)((const __half *)a.x + (size_t)min(t, a.n_tokens - 1) * a.x_stride +
                                       (size_t)head * a.x_step);
#pragma unroll
      for (int i = 0; i < kVectors; i++) {
        const int at = first + i * kLanes + lane;
        if (at < vectors) add_products(sum[t], own[i], x[at]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; t++) {
    sum[t] = lanes_sum<1, 2, 4>(sum[t]);
    if (t == lane && t < a.n_tokens && row < a.n_out)
      ((__half *)a.y)[(size_t)t * a.y_stride + (size_t)head * a.y_step + row] = clamp_half(sum[t]);
  }
}

Status run_few(const LinearHeads &a, cudaStream_t stream, Error *err) {
  auto kernel = a.n_tokens == 1   ? few_kernel<1>
                : a.n_tokens == 2 ? few_kernel<2>
                : a.n_tokens <= 4 ? few_kernel<4>
                                  : few_kernel<kFew>;
  return launch(kernel, dim3((unsigned)ceil_div(a.n_out, kRows), (unsigned)a.n_heads), kThreads, 0, stream,
                true, "heads", err, a);
}

/* Row blockIdx.x of `to` = a row of weights as fp16, times its factor, then zeros. */
template <typename T>
__global__ void halves_kernel(const T *from, const float *factors, size_t stride, int n_in, int to_stride,
                              __half *to) {
  const float factor = factors ? factors[blockIdx.x] : 1.0f;
  const T *row = from + blockIdx.x * stride;
  for (int i = threadIdx.x; i < to_stride; i += blockDim.x)
    to[(size_t)blockIdx.x * to_stride + i] = i < n_in ? clamp_half((float)row[i] * factor) : __half(0.0f);
}

template <typename T>
Status convert(const DeviceLinear *w, const T *from, size_t stride, void *to, cudaStream_t stream,
               Error *err) {
  return launch(halves_kernel<T>, dim3((unsigned)w->n_out), 128, 0, stream, false, w->name, err, from,
                w->factors, stride, w->n_in, (int)linear_heads_stride(w->n_in), (__half *)to);
}

} // namespace

size_t linear_heads_stride(int n_in) {
  return (size_t)ceil_div(n_in, 8) * 8;
}

Status linear_fill_heads(const DeviceLinear *w, void *to, cudaStream_t stream, Error *err) {
  switch (w->type) {
  case WEIGHT_F16: return convert(w, (const __half *)w->dense, w->stride, to, stream, err);
  case WEIGHT_BF16: return convert(w, (const __nv_bfloat16 *)w->dense, w->stride, to, stream, err);
  case WEIGHT_F32: return convert(w, (const float *)w->dense, w->stride, to, stream, err);
  default: break;
  }
  TRY(linear_dequantise(w, 0, w->n_out, false, to, stream, err));
  if (!weight_has_factors(w->type)) return STATUS_OK;
  return convert(w, (const __half *)to, (size_t)w->n_in, to, stream, err);
}

bool linear_heads_want_library(int max_tokens) {
  return max_tokens > kFew;
}

Status linear_heads_run(const Cublas *cublas, const LinearHeads *a, cudaStream_t stream, Error *err) {
  if (a->n_tokens <= kFew) return run_few(*a, stream, err);
  for (int first = 0; !cublas && first < a->n_tokens; first += kFew) {
    LinearHeads part = *a;
    part.x = (const __half *)a->x + (size_t)first * a->x_stride;
    part.y = (__half *)a->y + (size_t)first * a->y_stride;
    part.n_tokens = std::min(kFew, a->n_tokens - first);
    TRY(run_few(part, stream, err));
  }
  if (!cublas) return STATUS_OK;
  const float one = 1.0f, zero = 0.0f;
  const cublasStatus_t s = cublas->gemm_batched(
      cublas->handle, CUBLAS_OP_T, CUBLAS_OP_N, a->n_out, a->n_tokens, a->n_in, &one, a->w, CUDA_R_16F,
      a->w_stride, (long long)a->n_out * a->w_stride, a->x, CUDA_R_16F, a->x_stride, a->x_step, &zero, a->y,
      CUDA_R_16F, a->y_stride, a->y_step, a->n_heads, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  return s ? error_set(err, STATUS_FAILED, "heads: cuBLAS: %s", cublas->status_string(s)) : STATUS_OK;
}
