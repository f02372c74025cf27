/* latent.cu - see latent.h. The kernel reads its numbers once or, for a norm, twice. */
#include "cuda/kernels/ops/latent.h"

#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ops/heads.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256, kMostPerLane = (MAX_HEAD_ROW + 31) / 32;

/* Calls store(i, value) for i < rope_dim with the numbers of `from`, rotated and times `factor`. kTogether
 * threads share the calls. */
template <int kTogether, class Store>
__device__ __forceinline__ void rotate_part(const Latent &a, int token, const float *from, float factor,
                                            Store store) {
  const int half = a.sizes.rope_dim / 2;
  for (int i = threadIdx.x % kTogether; i < half; i += kTogether) {
    const int low = a.neighbours ? 2 * i : i, high = a.neighbours ? 2 * i + 1 : i + half;
    float first = from[low], second = from[high];
    if (a.rope_table) rotate(first, second, ((const float2 *)a.rope_table)[(size_t)token * half + i]);
    store(low, first * factor);
    store(high, second * factor);
  }
}

/* Makes a token's row of the cache in shared memory, and stores it. */
template <typename T> __device__ __forceinline__ void append_row(const Latent &a, int token) {
  __shared__ float row[32 * kMostPerLane];
  const int rope = a.sizes.rope_dim, rank = a.sizes.kv_rank, width = rope + rank,
            n_first = a.sizes.q_rank ? a.sizes.q_rank : a.n_heads * (a.sizes.nope_dim + rope);
  const float *from = a.in + token * a.in_stride + n_first,
              scale = rms_scale<kThreads>(from, rank, (float)LATENT_EPS);
  if (a.pos[token] < 0) return;
  rotate_part<kThreads>(a, token, from + rank, 1, [&](int i, float value) { row[i] = value; });
  for (int i = threadIdx.x; i < rank; i += kThreads) row[rope + i] = from[i] * scale * a.kv_norm[i];
  const size_t at = CacheRows(a.pages, token, 1, 0, a.n_ctx).at(a.pos[token]);
  T *to = (T *)a.cache + at * width;
  __syncthreads();
  if constexpr (sizeof(T) == 1) {
    if (threadIdx.x >= 32) return;
    float x[kMostPerLane];
#pragma unroll
    for (int i = 0; i < kMostPerLane; i++) {
      const int dim = (int)threadIdx.x + 32 * i;
      x[i] = dim < width ? row[dim] : 0;
    }
    store_q8(x, width, true, true, to, (__half *)a.k_scales + at * key_scales(width), (int)threadIdx.x);
  } else {
    for (int i = threadIdx.x; i < width; i += kThreads) to[i] = (T)row[i];
  }
}

/* A warp takes a query of a token; the token's last block makes its row of the cache. */
template <typename T> __global__ void __launch_bounds__(kThreads) rows_kernel(Latent a) {
  begin_overlapping();
  constexpr int kAtOnce = 8;
  const int token = blockIdx.y, nope = a.sizes.nope_dim, rope = a.sizes.rope_dim;
  if (blockIdx.x == gridDim.x - 1) {
    append_row<T>(a, token);
    return;
  }
  const int head = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (head >= a.n_heads) return;
  const float *query = a.queries + token * a.query_stride + (size_t)head * (nope + rope);
  const size_t place = (size_t)token * a.n_heads + head;
  const float factor =
      a.query_scale_beta != 0 ? query_factor(a.query_scale_beta, a.query_scale_step, a.pos[token]) : 1;
  __half *x = (__half *)a.x + place * a.x_step, *q = (__half *)a.q + place * (rope + a.sizes.kv_rank);
  for (int from = threadIdx.x % 32; from < a.x_step; from += 32 * kAtOnce) {
    float v[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) v[k] = query[min(from + 32 * k, nope - 1)];
#pragma unroll
    for (int k = 0; k < kAtOnce; k++)
      if (const int i = from + 32 * k; i < a.x_step)
        x[i] = i < nope ? clamp_half(v[k] * factor) : __half(0.0f);
  }
  rotate_part<32>(a, token, query + nope, factor, [&](int i, float value) { q[i] = __float2half_rn(value); });
}

} // namespace

Status ops_latent_rows(const Latent *call, int n_tokens, cudaStream_t stream, Error *err) {
  auto kernel = call->kv == KV_F32  ? rows_kernel<float>
                : call->kv == KV_Q8 ? rows_kernel<uint8_t>
                                    : rows_kernel<__half>;
  return launch(kernel, dim3(ceil_div(call->n_heads, kThreads / 32) + 1, n_tokens), kThreads, 0, stream, true,
                "latent attention", err, *call);
}
