/* latent.cu - see latent.h. The kernels copy; norms_kernel alone computes, and reads a latent twice. */
#include "cuda/ops/latent.h"

#include "cuda/ops/elementwise.cuh"
#include "cuda/ptx/block_sum.cuh"
#include "cuda/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;
constexpr float kEps = 1e-6f; /* of latents' norms, whatever the model's is (src/cpu/latent.c) */

__device__ __forceinline__ int row_width(const Latent &a) {
  return a.sizes.rope_dim + a.sizes.kv_rank;
}

__device__ __forceinline__ float *key_of(const Latent &a, int token) {
  return a.rows + token * a.row_stride + (size_t)a.n_heads * row_width(a);
}

/* Block (token, 0) takes the keys' latent, block (token, 1) the queries'. */
__global__ void __launch_bounds__(kThreads) norms_kernel(Latent a) {
  begin_overlapping();
  const int token = blockIdx.x, rank = a.sizes.kv_rank, rope = a.sizes.rope_dim, q_rank = a.sizes.q_rank;
  const int n_first = q_rank ? q_rank : a.n_heads * (a.sizes.nope_dim + rope);
  const float *in = a.in + token * a.in_stride;
  if (blockIdx.y == 1) {
    const float scale = rms_scale<kThreads>(in, q_rank, kEps);
    __half *to = (__half *)a.q_latents + (size_t)token * a.q_stride;
    for (int i = threadIdx.x; i < q_rank; i += kThreads) to[i] = clamp_half(in[i] * scale * a.q_norm[i]);
    return;
  }
  const float *kv = in + n_first, scale = rms_scale<kThreads>(kv, rank, kEps);
  float *key = key_of(a, token);
  for (int i = threadIdx.x; i < rope; i += kThreads) key[i] = kv[rank + i];
  for (int i = threadIdx.x; i < rank; i += kThreads) key[rope + i] = kv[i] * scale * a.kv_norm[i];
}

/* Notes where each head's places begin, once for all blocks. */
__device__ __forceinline__ void note_begins(const Latent &a, int head, int token, int n_tokens) {
  if (token > 0 || threadIdx.x > 0) return;
  a.begins[head] = head * n_tokens;
  if (head == 0) a.begins[a.n_heads] = a.n_heads * n_tokens;
}

/* A block takes a head of a token. */
__global__ void __launch_bounds__(kThreads) queries_kernel(Latent a, int n_tokens) {
  begin_overlapping();
  const int head = blockIdx.x, token = blockIdx.y, nope = a.sizes.nope_dim, rope = a.sizes.rope_dim;
  const float *query = a.queries + token * a.query_stride + (size_t)head * (nope + rope);
  float *row = a.rows + token * a.row_stride + (size_t)head * row_width(a);
  __half *x = (__half *)a.x + ((size_t)head * n_tokens + token) * a.x_stride;
  for (int i = threadIdx.x; i < nope; i += kThreads) x[i] = clamp_half(query[i]);
  for (int i = threadIdx.x; i < rope; i += kThreads) row[i] = query[nope + i];
  note_begins(a, head, token, n_tokens);
}

__global__ void __launch_bounds__(kThreads) keys_kernel(Latent a, const float *y, int n_tokens) {
  begin_overlapping();
  const int head = blockIdx.x, token = blockIdx.y, rank = a.sizes.kv_rank;
  float *row = a.rows + token * a.row_stride + (size_t)head * row_width(a) + a.sizes.rope_dim;
  const float *from = y + ((size_t)head * n_tokens + token) * rank;
  for (int i = threadIdx.x; i < rank; i += kThreads) row[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) outputs_kernel(Latent a, const __half *out, int n_tokens) {
  begin_overlapping();
  const int head = blockIdx.x, token = blockIdx.y;
  const __half *from = out + ((size_t)token * a.n_heads + head) * a.sizes.kv_rank;
  __half *x = (__half *)a.x + ((size_t)head * n_tokens + token) * a.x_stride;
  for (int i = threadIdx.x; i < a.sizes.kv_rank; i += kThreads) x[i] = from[i];
  note_begins(a, head, token, n_tokens);
}

__global__ void __launch_bounds__(kThreads)
    values_kernel(Latent a, const float *y, int n_tokens, __half *out, int out_stride) {
  begin_overlapping();
  const int head = blockIdx.x, token = blockIdx.y, n = a.sizes.value_dim;
  const float *from = y + ((size_t)head * n_tokens + token) * n;
  __half *to = out + (size_t)token * out_stride + (size_t)head * n;
  for (int i = threadIdx.x; i < n; i += kThreads) to[i] = clamp_half(from[i]);
}

const char *kName = "latent attention";

} // namespace

Status ops_latent_norms(const Latent *call, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(norms_kernel, dim3(n_tokens, call->sizes.q_rank ? 2 : 1), kThreads, 0, stream, true, kName,
                err, *call);
}

Status ops_latent_queries(const Latent *call, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(queries_kernel, dim3(call->n_heads, n_tokens), kThreads, 0, stream, true, kName, err, *call,
                n_tokens);
}

Status ops_latent_keys(const Latent *call, const float *y, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(keys_kernel, dim3(call->n_heads, n_tokens), kThreads, 0, stream, true, kName, err, *call, y,
                n_tokens);
}

Status ops_latent_outputs(const Latent *call, const void *a, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(outputs_kernel, dim3(call->n_heads, n_tokens), kThreads, 0, stream, true, kName, err, *call,
                (const __half *)a, n_tokens);
}

Status ops_latent_values(const Latent *call, const float *y, int n_tokens, void *out, int out_stride,
                         cudaStream_t stream, Error *err) {
  return launch(values_kernel, dim3(call->n_heads, n_tokens), kThreads, 0, stream, true, kName, err, *call, y,
                n_tokens, (__half *)out, out_stride);
}
