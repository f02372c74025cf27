/* heads.cu - one matrix for each head, each multiplied by its own part of x: the products of latent attention
 * (layers/latent.c).
 *
 *     y[t][h][o] = sum_i w[h][o][i] x[t][h][i]      fp16, with fp32 sums
 *
 * Up to kFew tokens: mma. A block has 16 rows of a matrix; its four warps divide the inputs. The block
 * requests up to 512 inputs of each row before it waits for the kernel that makes x.
 * More tokens: one call of cuBLAS for all heads. Without cuBLAS: kFew tokens at a time.
 * If a token's bits must not depend on how many tokens there are: dense_wgmma on Hopper, else kFew at a time.
 *
 * READS  the weights once a launch. */
#include "cuda/kernels/linear/dense/heads.h"

#include <algorithm>

#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/early.cuh"

namespace {

constexpr int kFew = 8, kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16, kChunk = 32; /* rows and inputs that a warp multiplies at once */
constexpr int kDeep = 4;               /* chunks that a warp has in flight */

/* A warp's chunks of kRows rows of a head's matrix: every kWarps-th chunk. Lane (g, t) loads inputs
 * 8 t .. 8 t + 7 of a chunk, from rows g and g + 8: 16 bytes of each. mma expects other inputs in these
 * registers. x has the same order, so the sums are the same. */
struct Chunks {
  const uint4 *rows[2];
  int vectors; /* of a row */
  uint4 v[kDeep][2];

  __device__ __forceinline__ void load(int first) {
#pragma unroll
    for (int i = 0; i < kDeep; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int at = (first + i * kWarps) * (kChunk / 8) + (int)threadIdx.x % 4;
        v[i][r] = at < vectors ? load_early(rows[r] + at) : make_uint4(0, 0, 0, 0);
      }
  }
};

/* A block takes kRows outputs of a head, for up to kFew tokens. The weights' padding is zeros, and x's must
 * be zeros too. */
__global__ void __launch_bounds__(kThreads) few_kernel(LinearHeads a) {
  __shared__ float parts[kWarps][kFew][kRows];
  dependents_may_start();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, row0 = blockIdx.x * kRows;
  Chunks w;
  w.vectors = a.w_stride / 8;
  for (int r = 0; r < 2; r++)
    w.rows[r] =
        (const uint4 *)a.w + ((size_t)head * a.n_out + min(row0 + lane / 4 + 8 * r, a.n_out - 1)) * w.vectors;
  w.load(warp);
  wait_for_previous();
  const uint4 *x = (const uint4 *)((const __half *)a.x + (size_t)min(lane / 4, a.n_tokens - 1) * a.x_stride +
                                   (size_t)head * a.x_step);
  float sum[4] = {};
  for (int first = warp; first * (kChunk / 8) < w.vectors; first += kDeep * kWarps) {
    uint4 in[kDeep];
#pragma unroll
    for (int i = 0; i < kDeep; i++) {
      const int at = (first + i * kWarps) * (kChunk / 8) + lane % 4;
      in[i] = at < w.vectors ? __ldcg(x + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kDeep; i++) {
      const uint4 low = w.v[i][0], high = w.v[i][1];
      const uint32_t first_half[4] = {low.x, high.x, low.y, high.y},
                     second[4] = {low.z, high.z, low.w, high.w};
      mma_f16_m16n8k16(sum, first_half, in[i].x, in[i].y);
      mma_f16_m16n8k16(sum, second, in[i].z, in[i].w);
    }
    w.load(first + kDeep * kWarps);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) parts[warp][lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sum[i];
  __syncthreads();
  static_assert(kThreads == kFew * kRows, "a thread a result");
  const int token = threadIdx.x / kRows, row = threadIdx.x % kRows;
  float total = 0;
#pragma unroll
  for (int p = 0; p < kWarps; p++) total += parts[p][token][row];
  if (token < a.n_tokens && row0 + row < a.n_out)
    ((__half *)a.y)[(size_t)token * a.y_stride + (size_t)head * a.y_step + row0 + row] = clamp_half(total);
}

Status run_few(const LinearHeads &a, cudaStream_t stream, Error *err) {
  return launch(few_kernel, dim3((unsigned)ceil_div(a.n_out, kRows), (unsigned)a.n_heads), kThreads, 0,
                stream, true, "heads", err, a);
}

/* Row blockIdx.x of `to` = that row of `from` as fp16, times its factor; zeros from n_in to to_stride. */
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

Status linear_heads_run(const Cublas *cublas, const LinearHeads *a, bool invariant,
                        const DeviceLimits *device, cudaStream_t stream, Error *err) {
  if (invariant && device->arch == SM_90A) return heads_wgmma(a, device->n_sms, stream, err);
  if (a->n_tokens <= kFew) return run_few(*a, stream, err);
  if (invariant) cublas = NULL; /* cuBLAS's sums depend on the number of tokens */
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
