/* chosen.cu - see chosen.h: flash-decoding over each row's chosen positions.
 *
 * A thread block takes kPart positions for up to kMostHeads query heads of a KV head. Each warp takes kKeys
 * positions at a time, and a lane 8 dimensions. A second kernel merges the parts in order.
 * READS  n_chosen * head_dim * 4 bytes a row and KV head, twice if a KV head has more than kMostHeads query
 * heads.
 * Reference: src/cpu/mixers/sparse.c. */
#include "cuda/kernels/attention/chosen.h"

#include <algorithm>

#include "cuda/kernels/attention/online_softmax.cuh"
#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/ptx/eight.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kPart = 64;     /* chosen positions of a thread block */
constexpr int kKeys = 4;      /* keys that a warp multiplies at once */
constexpr int kMostHeads = 8; /* query heads of a thread block */
constexpr int kMostDims = 256;
constexpr float kLog2E = 1.4426950408889634f;

/* Partial results: {maximum, sum} [row][head][part], outputs [row][head][part][head_dim]. */
struct Parts {
  float2 *states;
  float *outputs;
  int n; /* parts of a row, at most */
};

size_t state_bytes(int n_heads, int n_parts, int n_rows) {
  return align_up((size_t)n_rows * n_heads * n_parts * sizeof(float2));
}

/* Scores of kKeys keys for kHeads heads: lane l gets the score of key l / 8 and head l % 8 / (8 / kHeads). */
template <int kHeads>
__device__ __forceinline__ float multiply_keys(const float (&q)[kHeads][8], const uint4 (&keys)[kKeys]) {
  float products[kKeys * kHeads];
#pragma unroll
  for (int key = 0; key < kKeys; key++) {
    float k[8];
    unpack_halves(k, keys[key]);
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
      float product = 0;
#pragma unroll
      for (int d = 0; d < 8; d++) product += q[h][d] * k[d];
      products[key * kHeads + h] = product;
    }
  }
  return warp_sums<kKeys * kHeads>(products);
}

/* A warp's online softmax. maximum, sum: of the lane's head (multiply_keys()); output: the lane's 8
 * dimensions of all heads. */
template <int kHeads> struct WarpState {
  float maximum, sum, output[kHeads][8];

  __device__ __forceinline__ void add(float score, const uint4 (&values)[kKeys]) {
    constexpr int kLanes = 8 / kHeads; /* lanes with a head's score of a key */
    const Rescale r = rescale<true>(maximum, lanes_max<8, 16>(score));
    const float weight = power_of_2(score - r.shift);
    sum = sum * r.keep + lanes_sum<8, 16>(weight);
    if (!__all_sync(~0u, r.keep == 1))
#pragma unroll
      for (int h = 0; h < kHeads; h++) {
        const float keep = __shfl_sync(~0u, r.keep, h * kLanes);
#pragma unroll
        for (int d = 0; d < 8; d++) output[h][d] *= keep;
      }
#pragma unroll
    for (int key = 0; key < kKeys; key++) {
      float v[8];
      unpack_halves(v, values[key]);
#pragma unroll
      for (int h = 0; h < kHeads; h++) {
        const float w = __shfl_sync(~0u, weight, 8 * key + h * kLanes);
#pragma unroll
        for (int d = 0; d < 8; d++) output[h][d] += w * v[d];
      }
    }
  }
};

/* Shared memory: the cache rows of a part's positions, and the warps' states. */
template <int kHeads> struct PartMemory {
  size_t rows[kPart];
  float maxima[kWarps][kHeads], sums[kWarps][kHeads];
  float4 outputs[kWarps][kHeads][kMostDims / 4];
};

/* Merges the warps in order, and writes the part's result; head 0 is query head first_head. */
template <int kHeads>
__device__ __forceinline__ void write_part(const PartMemory<kHeads> &m, const ChosenAttention &a,
                                           const Parts &parts, int first_head, int n_heads, int part) {
  const int chunks = a.head_dim / 4;
  for (int i = threadIdx.x; i < n_heads * chunks; i += kThreads) {
    const int h = i / chunks, chunk = i % chunks;
    float high = -INFINITY, total = 0;
    float4 value = make_float4(0, 0, 0, 0);
    for (int w = 0; w < kWarps; w++) high = fmaxf(high, m.maxima[w][h]);
    const float shift = high == -INFINITY ? 0 : high;
    for (int w = 0; w < kWarps; w++) {
      const float weight = power_of_2(m.maxima[w][h] - shift);
      const float4 own = m.outputs[w][h][chunk];
      total += weight * m.sums[w][h];
      value.x += weight * own.x, value.y += weight * own.y;
      value.z += weight * own.z, value.w += weight * own.w;
    }
    const size_t to = ((size_t)blockIdx.z * a.n_heads + first_head + h) * parts.n + part;
    ((float4 *)parts.outputs)[to * chunks + chunk] = value;
    if (chunk == 0) parts.states[to] = make_float2(high, total);
  }
}

/* Attends to a part. Block (part, group of heads, row). */
template <int kHeads>
__global__ void __launch_bounds__(kThreads)
    attend_part_kernel(ChosenAttention a, Parts parts, int first_row, int groups_of_head) {
  begin_overlapping();
  __shared__ PartMemory<kHeads> m;
  const int row = first_row + (int)blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (a.pos[row] < 0) return;
  const int begin = blockIdx.x * kPart, n = min(kPart, a.n_chosen[row] - begin);
  if (n <= 0) return;
  const int kv_head = blockIdx.y / groups_of_head, group = a.n_heads / a.n_kv_heads,
            in_group = blockIdx.y % groups_of_head * kHeads, first_head = kv_head * group + in_group,
            n_heads = min(kHeads, group - in_group);
  if ((int)threadIdx.x < n) {
    const int *chosen = a.chosen + (size_t)row * a.most_chosen + begin;
    m.rows[threadIdx.x] = CacheRows(a.pages, row, a.n_kv_heads, kv_head, a.n_ctx).at(chosen[threadIdx.x]);
  }
  const bool has_dims = 8 * lane < a.head_dim;
  const uint4 zeros = make_uint4(0, 0, 0, 0);
  float q[kHeads][8];
#pragma unroll
  for (int h = 0; h < kHeads; h++) {
    const __half *from =
        (const __half *)a.q + (size_t)row * a.q_stride + (first_head + h) * a.head_dim + 8 * lane;
    unpack_halves(q[h], has_dims && h < n_heads ? *(const uint4 *)from : zeros);
  }
  __syncthreads();

  WarpState<kHeads> state = {-INFINITY, 0, {}};
  const __half *k = (const __half *)a.k + 8 * lane, *v = (const __half *)a.v + 8 * lane;
  for (int at = warp * kKeys; at < n; at += kWarps * kKeys) {
    uint4 keys[kKeys], values[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; i++) {
      const bool exists = has_dims && at + i < n;
      const size_t from = exists ? m.rows[at + i] * a.head_dim : 0;
      keys[i] = exists ? *(const uint4 *)(k + from) : zeros;
      values[i] = exists ? *(const uint4 *)(v + from) : zeros;
    }
    const float score = multiply_keys<kHeads>(q, keys) * (a.scale * kLog2E);
    state.add(at + lane / 8 < n ? score : -INFINITY, values);
  }
#pragma unroll
  for (int h = 0; h < kHeads; h++) {
    if (has_dims) {
      float(&o)[8] = state.output[h];
      m.outputs[warp][h][2 * lane] = make_float4(o[0], o[1], o[2], o[3]);
      m.outputs[warp][h][2 * lane + 1] = make_float4(o[4], o[5], o[6], o[7]);
    }
    if (lane == h * (8 / kHeads)) m.maxima[warp][h] = state.maximum, m.sums[warp][h] = state.sum;
  }
  __syncthreads();
  write_part(m, a, parts, first_head, n_heads, blockIdx.x);
}

constexpr int kMergeThreads = kMostDims / 4;

/* Merges a row's parts. Block (head, row). Each warp finds the maximum and the sum of all parts for itself;
 * then a thread takes four dimensions. */
__global__ void __launch_bounds__(kMergeThreads)
    merge_parts_kernel(ChosenAttention a, Parts parts, int first_row) {
  begin_overlapping();
  const int head = blockIdx.x, row = first_row + (int)blockIdx.y, lane = threadIdx.x % 32;
  if (a.pos[row] < 0) return;
  const int n = (a.n_chosen[row] + kPart - 1) / kPart, chunks = a.head_dim / 4, chunk = threadIdx.x;
  const size_t first = ((size_t)blockIdx.y * a.n_heads + head) * parts.n;
  const float2 *states = parts.states + first;
  float high = -INFINITY, total = 0;
  for (int p = lane; p < n; p += 32) high = fmaxf(high, states[p].x);
  high = lanes_max<16, 8, 4, 2, 1>(high);
  if (high == -INFINITY) high = 0; /* all scores are NaN or -infinity */
  for (int p = lane; p < n; p += 32) total += power_of_2(states[p].x - high) * states[p].y;
  total = warp_sum(total);
  if (chunk >= chunks) return;
  const float4 *outputs = (const float4 *)parts.outputs + first * chunks + chunk;
  float4 value = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int p = 0; p < n; p++) {
    const float weight = power_of_2(states[p].x - high);
    const float4 own = outputs[(size_t)p * chunks];
    value.x += weight * own.x, value.y += weight * own.y;
    value.z += weight * own.z, value.w += weight * own.w;
  }
  const uint2 packed =
      make_uint2(pack_half2(value.x / total, value.y / total), pack_half2(value.z / total, value.w / total));
  __half *to = (__half *)a.out + (size_t)row * a.out_stride + head * a.head_dim;
  *(uint2 *)(to + 4 * chunk) = packed;
}

int parts_of(int most_chosen) {
  return ceil_div(most_chosen, kPart);
}

} // namespace

size_t chosen_workspace_bytes(int n_heads, int head_dim, int most_chosen, int max_rows) {
  const int n_rows = std::min(max_rows, (int)CHOSEN_ROWS), n_parts = parts_of(most_chosen);
  return state_bytes(n_heads, n_parts, n_rows) +
         (size_t)n_rows * n_heads * n_parts * head_dim * sizeof(float);
}

Status chosen_attend(const ChosenAttention *call, int n_rows, cudaStream_t stream, Error *err) {
  const int group = call->n_heads / call->n_kv_heads, head_dim = call->head_dim;
  if (head_dim < 16 || head_dim > kMostDims || head_dim % 16 != 0 || group > 2 * kMostHeads)
    return error_set(err, STATUS_FAILED, "attention to chosen positions: no kernel for %d heads of %d", group,
                     head_dim);
  if (call->q_stride % 8 != 0 || call->out_stride % 8 != 0)
    return error_set(err, STATUS_FAILED, "attention to chosen positions: rows are not 16-byte aligned");
  auto kernel = group > 4   ? attend_part_kernel<8>
                : group > 2 ? attend_part_kernel<4>
                : group > 1 ? attend_part_kernel<2>
                            : attend_part_kernel<1>;
  const int groups_of_head = ceil_div(group, kMostHeads), n_parts = parts_of(call->most_chosen);
  /* The same layout for all launches; the first has the most rows. */
  const size_t states = state_bytes(call->n_heads, n_parts, std::min(n_rows, (int)CHOSEN_ROWS));
  const Parts parts = {(float2 *)call->workspace, (float *)((char *)call->workspace + states), n_parts};
  for (int first = 0; first < n_rows; first += CHOSEN_ROWS) {
    const int n = std::min(n_rows - first, (int)CHOSEN_ROWS);
    TRY(launch(kernel, dim3(n_parts, call->n_kv_heads * groups_of_head, n), kThreads, 0, stream, true,
               "attention to chosen positions", err, *call, parts, first, groups_of_head));
    TRY(launch(merge_parts_kernel, dim3(call->n_heads, n), kMergeThreads, 0, stream, true,
               "attention to chosen positions", err, *call, parts, first));
  }
  return STATUS_OK;
}
