/* attention_plain.cu - attention for every head_dim and cache type: readable, and the reference of the fast
 * families (test_attention.cu compares all of them with attention in double).
 *
 * A block of four warps serves one query head of one token. Warp w takes every fourth key that the token
 * sees, from the w-th on, with an online softmax. A lane holds every 32nd dim. The warps' results are merged
 * in order.
 * READS  the keys and values that the token sees, once per query head. */
#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/attention/online_softmax.cuh"
#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kWarps = 4;

/* kMaxPerLane: dims of a lane, a 32nd of the longest head that the kernel takes. */
template <typename T, int kMaxPerLane, bool kCapped>
__global__ void __launch_bounds__(kWarps * 32) attention_plain_kernel(AttentionArgs a) {
  begin_overlapping();
  int head = blockIdx.x, token = blockIdx.y, kv_head = head / (a.n_heads / a.n_kv_heads);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int limit = a.whole ? a.pos[0] + a.whole - 1 : a.pos[token], oldest = max(0, newest_unseen(a, limit) + 1);
  if (limit < 0) return;
  const CacheRows rows(a.pages, token, a.n_kv_heads, kv_head, a.n_ctx);
  const __half *q = (const __half *)a.q + ((size_t)token * a.n_heads + head) * a.head_dim;

  float query[kMaxPerLane], o[kMaxPerLane], maximum = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; i++) {
    int dim = lane + 32 * i;
    query[i] = dim < a.head_dim ? __half2float(q[dim]) * (kCapped ? 1 : a.scale_log2) : 0;
    o[i] = 0;
  }
  const bool one_row = a.value_dims > 0;
  const T *values = (const T *)(one_row ? a.k : a.v);
  for (int key = oldest + warp; key <= limit; key += kWarps) {
    float score = 0;
    const size_t row = rows.at(key), at = row * a.head_dim;
    const __half *k_scales = a.k_scales + row * key_scales(a.head_dim), *v_scale = a.v_scales + row;
#pragma unroll
    for (int i = 0; i < kMaxPerLane; i++) {
      int dim = lane + 32 * i;
      if (dim < a.head_dim)
        score += query[i] * cached((const T *)a.k, at + dim, k_scales + dim / KEY_SCALE_DIMS);
    }
    score = warp_sum(score);
    if (kCapped) score = score_log2<kCapped>(a, score);
    const Rescale r = rescale<false>(maximum, score);
    const float p = power_of_2(score - r.shift);
    sum = sum * r.keep + p;
#pragma unroll
    for (int i = 0; i < kMaxPerLane; i++) {
      int dim = lane + 32 * i;
      const __half *scale = one_row ? k_scales + dim / KEY_SCALE_DIMS : v_scale;
      if (dim < a.head_dim) o[i] = o[i] * r.keep + p * cached(values, at + dim, scale);
    }
  }

  __shared__ float outputs[kWarps][32 * kMaxPerLane], maxima[kWarps], sums[kWarps];
#pragma unroll
  for (int i = 0; i < kMaxPerLane; i++) outputs[warp][lane + 32 * i] = o[i];
  if (lane == 0) maxima[warp] = maximum, sums[warp] = sum;
  __syncthreads();
  float high = -INFINITY;
  for (int w = 0; w < kWarps; w++)
    high = fmaxf(high, maxima[w]); /* finite: a token always sees its own key */
  float total = sink_weight(a, head, high);
  for (int w = 0; w < kWarps; w++) total += power_of_2(maxima[w] - high) * sums[w];
  const int n_values = one_row ? a.value_dims : a.head_dim, first = a.head_dim - n_values;
  for (int i = threadIdx.x; i < n_values; i += kWarps * 32) {
    float value = 0;
    for (int w = 0; w < kWarps; w++) value += power_of_2(maxima[w] - high) * outputs[w][first + i];
    a.out[((size_t)token * a.n_heads + head) * n_values + i] = __float2half_rn(value / total);
  }
}

template <typename T>
Status launch_plain(const AttentionArgs &a, int n_tokens, cudaStream_t stream, Error *err) {
  const bool capped = a.cap_log2 != 0;
  auto kernel = capped ? attention_plain_kernel<T, 8, true> : attention_plain_kernel<T, 8, false>;
  if (a.head_dim > 256)
    kernel = capped ? attention_plain_kernel<T, 16, true> : attention_plain_kernel<T, 16, false>;
  if (a.head_dim > 512)
    kernel = capped ? attention_plain_kernel<T, 20, true> : attention_plain_kernel<T, 20, false>;
  return launch(kernel, dim3(a.n_heads, n_tokens), kWarps * 32, 0, stream, true, "attention", err, a);
}

} // namespace

Status attention_plain(const AttentionArgs &a, KvType kv, int n_tokens, cudaStream_t stream, Error *err) {
  switch (kv) {
  case KV_F32: return launch_plain<float>(a, n_tokens, stream, err);
  case KV_Q8: return launch_plain<uint8_t>(a, n_tokens, stream, err);
  default: return launch_plain<__half>(a, n_tokens, stream, err);
  }
}
