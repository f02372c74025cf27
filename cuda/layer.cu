/* layer.cu - see layer.h. Each kernel is bound by reading and writing its rows once; for one row, by its
 * launch. Reference: the CPU backend's operations of the same names. */
#include "cuda/layer.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/overlap.cuh"

namespace {

template <typename T> __device__ __forceinline__ float number(T value) {
  return (float)value;
}

__global__ void set_step_kernel(int *pos, int at, int *ids, int id) {
  begin_overlapping();
  *pos = at;
  if (id >= 0) ids[0] = id;
}

template <typename T>
__global__ void embed_kernel(const T *table, int hidden, size_t stride, const int *ids, float *x) {
  begin_overlapping();
  const T *from = table + ids[blockIdx.x] * stride;
  float *to = x + (size_t)blockIdx.x * hidden;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) to[i] = number(from[i]);
}

__global__ void rope_table_kernel(const float *frequencies, int half, float factor, const int *pos,
                                  float2 *table) {
  begin_overlapping();
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    float angle = __fmul_rn((float)(*pos + (int)blockIdx.x), frequencies[i]), sine, cosine;
    sincosf(angle, &sine, &cosine);
    table[(size_t)blockIdx.x * half + i] = make_float2(cosine * factor, sine * factor);
  }
}

/* Sum over the block, the same in every thread; the order depends on the block's size alone. */
template <int THREADS> __device__ float block_sum(float value) {
  __shared__ float sums[THREADS / 32];
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < THREADS / 32; w++) total += sums[w];
  return total;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    norm_kernel(const float *x, const float *weight, float eps, int n, __half *out, int out_stride) {
  begin_overlapping();
  const float *from = x + (size_t)blockIdx.x * n;
  __half *to = out + (size_t)blockIdx.x * out_stride;
  float squares = 0;
  for (int i = threadIdx.x; i < n; i += THREADS) squares += from[i] * from[i];
  float scale = rsqrtf(block_sum<THREADS>(squares) / n + eps);
  for (int i = threadIdx.x; i < n; i += THREADS) to[i] = __float2half_rn(from[i] * scale * weight[i]);
}

/* The same for rows of at most THREADS * 4 * CHUNKS, a multiple of 4, which stay in registers; weights are
 * fetched while the kernel before ends. One row is all latency: two trips to memory, one of them hidden. */
template <int THREADS, int CHUNKS>
__global__ void __launch_bounds__(THREADS)
    norm_in_registers_kernel(const float4 *x, const float4 *weight, float eps, int n, __half *out,
                             int out_stride) {
  dependents_may_start();
  float4 w[CHUNKS], v[CHUNKS];
  int pieces = n / 4;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int i = c * THREADS + threadIdx.x;
    w[c] = i < pieces ? weight[i] : make_float4(0, 0, 0, 0);
  }
  wait_for_previous();
  const float4 *from = x + (size_t)blockIdx.x * pieces;
  float squares = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int i = c * THREADS + threadIdx.x;
    v[c] = i < pieces ? from[i] : make_float4(0, 0, 0, 0);
    squares += v[c].x * v[c].x + v[c].y * v[c].y + v[c].z * v[c].z + v[c].w * v[c].w;
  }
  float scale = rsqrtf(block_sum<THREADS>(squares) / n + eps);
  __half *to = out + (size_t)blockIdx.x * out_stride;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int i = c * THREADS + threadIdx.x;
    if (i >= pieces) continue;
    __half2 pair[2] = {__floats2half2_rn(v[c].x * scale * w[c].x, v[c].y * scale * w[c].y),
                       __floats2half2_rn(v[c].z * scale * w[c].z, v[c].w * scale * w[c].w)};
    *(uint2 *)(to + 4 * i) = *(uint2 *)pair;
  }
}

__device__ __forceinline__ void store(__half *to, float value) {
  *to = __float2half_rn(value);
}
__device__ __forceinline__ void store(float *to, float value) {
  *to = value;
}

constexpr int MAX_PAIRS = 4; /* per lane: head_dim <= 256 */

/* A warp handles one head of one row: heads 0 .. n_heads - 1 are queries, then keys, then values. */
template <typename T> __global__ void heads_kernel(LayerHeads a) {
  dependents_may_start();
  int lane = threadIdx.x, head = blockIdx.x * blockDim.y + threadIdx.y, row = blockIdx.y,
      half = a.head_dim / 2;
  int n_all = a.n_heads + 2 * a.n_kv_heads;
  if (head >= n_all) return;
  bool is_query = head < a.n_heads, is_value = head >= a.n_heads + a.n_kv_heads;
  const float *weight = is_value ? NULL : is_query ? a.q_norm : a.k_norm;
  float low_weight[MAX_PAIRS], high_weight[MAX_PAIRS]; /* constant: fetched while the kernel before ends */
#pragma unroll
  for (int i = 0; i < MAX_PAIRS; i++) {
    int pair = lane + 32 * i;
    low_weight[i] = weight && pair < half ? weight[pair] : 1;
    high_weight[i] = weight && pair < half ? weight[pair + half] : 1;
  }
  wait_for_previous();
  const float *from = a.projections + ((size_t)row * n_all + head) * a.head_dim;
  float low[MAX_PAIRS], high[MAX_PAIRS];
#pragma unroll
  for (int i = 0; i < MAX_PAIRS; i++) {
    int pair = lane + 32 * i;
    low[i] = pair < half ? from[pair] : 0;
    high[i] = pair < half ? from[pair + half] : 0;
  }
  if (!is_value) {
    if (weight) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < MAX_PAIRS; i++) squares += low[i] * low[i] + high[i] * high[i];
      for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
      float scale = rsqrtf(squares / a.head_dim + a.eps);
#pragma unroll
      for (int i = 0; i < MAX_PAIRS; i++) {
        int pair = lane + 32 * i;
        if (pair < half) low[i] *= scale * low_weight[i], high[i] *= scale * high_weight[i];
      }
    }
    const float2 *table = (const float2 *)a.rope_table + (size_t)row * half;
#pragma unroll
    for (int i = 0; i < MAX_PAIRS; i++) {
      int pair = lane + 32 * i;
      if (pair >= half) continue;
      float2 turn = table[pair];
      float turned = low[i] * turn.x - high[i] * turn.y;
      high[i] = high[i] * turn.x + low[i] * turn.y;
      low[i] = turned;
    }
  }
  if (is_query) {
    __half *to = (__half *)a.q + ((size_t)row * a.n_heads + head) * a.head_dim;
#pragma unroll
    for (int i = 0; i < MAX_PAIRS; i++) {
      int pair = lane + 32 * i;
      if (pair < half) store(to + pair, low[i]), store(to + pair + half, high[i]);
    }
    return;
  }
  int kv_head = head - a.n_heads - (is_value ? a.n_kv_heads : 0);
  T *to = (T *)(is_value ? a.v_cache : a.k_cache) + ((size_t)kv_head * a.n_ctx + *a.pos + row) * a.head_dim;
#pragma unroll
  for (int i = 0; i < MAX_PAIRS; i++) {
    int pair = lane + 32 * i;
    if (pair < half) store(to + pair, low[i]), store(to + pair + half, high[i]);
  }
}

__global__ void swiglu_kernel(const float *gate_up, int n, __half *out, int out_stride) {
  begin_overlapping();
  const float *gate = gate_up + (size_t)blockIdx.y * 2 * n, *up = gate + n;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = gate[i] / (1 + expf(-gate[i])) * up[i];
  out[(size_t)blockIdx.y * out_stride + i] = __float2half_rn(fminf(fmaxf(value, -65504.0f), 65504.0f));
}

} // namespace

cudaError_t layer_set_step(int *pos, int at, int *ids, int id, cudaStream_t stream) {
  return launch_overlapping(set_step_kernel, 1, 1, 0, stream, pos, at, ids, id);
}

cudaError_t layer_embed(const void *table, Dtype dtype, int hidden, size_t stride, const int *ids,
                        int n_tokens, float *x, cudaStream_t stream) {
  if (dtype == DTYPE_F32)
    return launch_overlapping(embed_kernel<float>, n_tokens, 256, 0, stream, (const float *)table, hidden,
                              stride, ids, x);
  if (dtype == DTYPE_F16)
    return launch_overlapping(embed_kernel<__half>, n_tokens, 256, 0, stream, (const __half *)table, hidden,
                              stride, ids, x);
  return launch_overlapping(embed_kernel<__nv_bfloat16>, n_tokens, 256, 0, stream,
                            (const __nv_bfloat16 *)table, hidden, stride, ids, x);
}

cudaError_t layer_rope_table(const float *frequencies, int half, float attention_factor, const int *pos,
                             int n_tokens, void *table, cudaStream_t stream) {
  return launch_overlapping(rope_table_kernel, n_tokens, 64, 0, stream, frequencies, half, attention_factor,
                            pos, (float2 *)table);
}

cudaError_t layer_norm(const float *x, const float *weight, float eps, int n, int n_tokens, void *out,
                       int out_stride, cudaStream_t stream) {
  const float4 *rows = (const float4 *)x, *weights = (const float4 *)weight;
  if (n % 4 == 0 && n <= 4096)
    return launch_overlapping(norm_in_registers_kernel<512, 2>, n_tokens, 512, 0, stream, rows, weights, eps,
                              n, (__half *)out, out_stride);
  if (n % 4 == 0 && n <= 8192)
    return launch_overlapping(norm_in_registers_kernel<1024, 2>, n_tokens, 1024, 0, stream, rows, weights,
                              eps, n, (__half *)out, out_stride);
  return launch_overlapping(norm_kernel<256>, n_tokens, 256, 0, stream, x, weight, eps, n, (__half *)out,
                            out_stride);
}

cudaError_t layer_heads(const LayerHeads *heads, int n_tokens, cudaStream_t stream) {
  const int warps = 4;
  dim3 grid((heads->n_heads + 2 * heads->n_kv_heads + warps - 1) / warps, n_tokens), block(32, warps);
  if (heads->kv == KV_F32) return launch_overlapping(heads_kernel<float>, grid, block, 0, stream, *heads);
  return launch_overlapping(heads_kernel<__half>, grid, block, 0, stream, *heads);
}

cudaError_t layer_swiglu(const float *gate_up, int n, int n_tokens, void *out, int out_stride,
                         cudaStream_t stream) {
  return launch_overlapping(swiglu_kernel, dim3((n + 255) / 256, n_tokens), 256, 0, stream, gate_up, n,
                            (__half *)out, out_stride);
}
