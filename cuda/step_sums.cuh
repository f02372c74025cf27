/* step_sums.cuh - the residual stream: sums over all clusters, and the normalised row to the blocks of a
 * cluster.
 *
 * A block of rank r keeps columns r * slice .. of the residual stream in registers, thread i of its warps
 * columns i and i + 512 of them, the same bits in every cluster. What a cluster's share of o or down adds
 * goes through L2 to the blocks of that rank in all clusters:
 *
 *     o     [n_kv_heads][hidden] float                      down  [2][n_clusters][hidden] float, by turns
 *
 * A value carries its own tag: its lowest bit, which is another one from use to use of the same place. All
 * zero before the first launch, the first use has 1. A place is used again only after every reader has given
 * what its writer needed since: of o one place is enough, since its readers all give to down before the next
 * o; of down it takes two, as clusters without a KV head give nothing to o. One warp looks for the others'
 * values (step_look()), since many would flood L2; when it has seen samples of each, all read.
 *
 * Sums of squares and x = residual * norm go to the cluster's blocks at once, the division by the root of the
 * mean follows after the product.  Order of additions: fixed, by cluster. */
#ifndef AUK_CUDA_STEP_SUMS_CUH
#define AUK_CUDA_STEP_SUMS_CUH

#include <cuda_bf16.h>

#include "cuda/step_block.cuh"

namespace step {

constexpr int kChunk = 32;
constexpr int kChunks =
    (STEP_MAX_HIDDEN / STEP_BLOCKS / kChunk + STEP_WARPS - 1) / STEP_WARPS; /* of a warp */

/* The values of one sum: of matrix O or DOWN in a layer. */
struct Sum {
  float *values; /* [givers][hidden] */
  int givers;
  uint32_t tag; /* the bit that they carry */
};

template <bool kDebug> __device__ __forceinline__ Sum sum_of(const Block<kDebug> &b, int matrix, int layer) {
  const StepShape &s = b.args().plan.shape;
  const unsigned launches = b.args().n_launches;
  if (matrix == O) {
    const unsigned use = launches * s.n_layers + layer;
    return {b.args().partials, s.n_kv_heads, (use + 1) & 1};
  }
  const unsigned turn = layer % 2, uses = (s.n_layers + 1 - turn) / 2, use = launches * uses + layer / 2;
  return {b.args().partials + (size_t)(s.n_kv_heads + turn * s.n_clusters) * s.hidden, s.n_clusters,
          (use + 1) & 1};
}

__device__ __forceinline__ uint32_t tagged(float v, uint32_t tag) {
  return (__float_as_uint(v) & ~1u) | tag;
}

__device__ __forceinline__ bool all_tagged(const ulonglong2 &v, uint32_t tag) {
  const uint64_t both = tag ? v.x & v.y : ~(v.x | v.y);
  return (both & 0x0000000100000001ull) == 0x0000000100000001ull;
}

/* Stores this cluster's part of the sum, once the product's sums are there: four rows a thread. */
template <bool kDebug>
__device__ __forceinline__ void give_sum(const Block<kDebug> &b, const Sum &sum, const StepCut &cut) {
  const StepPlan &p = b.args().plan;
  const int warps = cut.parts * cut.k_warps, stride = p.stride_slice;
  float *to = sum.values + (size_t)b.cluster() * p.shape.hidden + b.rank() * p.slice;
  for (int i = b.thread(); i < p.slice / 4; i += STEP_THREADS) {
    float4 v = ((const float4 *)b.sums())[i];
    for (int k = 1; k < warps; k++) {
      const float4 more = ((const float4 *)(b.sums() + k * stride))[i];
      v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
    }
    ulonglong2 out;
    out.x = (uint64_t)tagged(v.y, sum.tag) << 32 | tagged(v.x, sum.tag);
    out.y = (uint64_t)tagged(v.w, sum.tag) << 32 | tagged(v.z, sum.tag);
    store_relaxed_16(to + 4 * i, out);
  }
}

/* The looking warp: for each sum of the step, waits until samples from every cluster are there. */
template <bool kDebug> __device__ __forceinline__ void look_for_sums(Block<kDebug> &b) {
  const StepPlan &p = b.args().plan;
  for (int n = 0; n < 2 * p.shape.n_layers; n++) {
    b.layer = n / 2;
    const Sum sum = sum_of(b, n % 2 ? DOWN : O, b.layer);
    if (n > 0) b.wait(&b.barriers()->taken, (n - 1) & 1, STEP_AT_TAKEN, n);
    const int quads = p.slice / 4, samples = min(32 / sum.givers, quads);
    const int sample = min(b.lane / sum.givers, samples - 1);
    const float *at = sum.values + (size_t)(b.lane % sum.givers) * p.shape.hidden + b.rank() * p.slice +
                      ((sample + 1) * quads / samples - 1) * 4;
    const long long since = kDebug ? clock64() : 0;
    bool there = false; /* a lane reads until its sample is there, and not again */
    do {
      there = there || all_tagged(load_relaxed_16(at), sum.tag);
      if (kDebug && !there) b.look_at_clock(since, STEP_AT_OTHERS, n, (int)sum.tag);
    } while (!__all_sync(~0u, there));
    if (b.lane == 0) barrier_arrive(&b.barriers()->sum);
  }
}

/* The sum over clusters of column 4 q + s of a chunk of 32, q = lane / 4, s = lane % 4. Lane s reads four
 * columns of clusters s, s + 4, ..., and the four lanes exchange. */
template <bool kDebug>
__device__ __forceinline__ float take_sum(const Block<kDebug> &b, const Sum &sum, int column) {
  constexpr int kMost = STEP_MAX_CLUSTERS / 4;
  const int s = b.lane % 4, hidden = b.args().plan.shape.hidden;
  const float *from = sum.values + (size_t)s * hidden + column - s;
  ulonglong2 v[kMost];
  bool there;
  const long long since = kDebug ? clock64() : 0;
#pragma unroll
  for (int i = 0; i < kMost; i++) v[i].x = v[i].y = sum.tag ? 0 : ~0ull; /* none is there */
  do {
    there = true;
#pragma unroll
    for (int i = 0; i < kMost; i++)
      if (s + 4 * i < sum.givers && !all_tagged(v[i], sum.tag))
        v[i] = load_relaxed_16(from + (size_t)(4 * i) * hidden);
#pragma unroll
    for (int i = 0; i < kMost; i++)
      if (s + 4 * i < sum.givers) there = there && all_tagged(v[i], sum.tag);
    if (kDebug && !there) b.look_at_clock(since, STEP_AT_VALUES, column, (int)sum.tag);
  } while (!__all_sync(~0u, there));
  float total[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kMost; i++) {
    if (s + 4 * i >= sum.givers) continue;
    total[0] += __uint_as_float((uint32_t)v[i].x & ~1u);
    total[1] += __uint_as_float((uint32_t)(v[i].x >> 32) & ~1u);
    total[2] += __uint_as_float((uint32_t)v[i].y & ~1u);
    total[3] += __uint_as_float((uint32_t)(v[i].y >> 32) & ~1u);
  }
  /* Lanes 0 and 1 keep columns 0 and 1 of what they and lanes 2 and 3 have, and these the others. */
  const bool upper = s & 2, odd = s & 1;
  float keep[2] = {upper ? total[2] : total[0], upper ? total[3] : total[1]};
  keep[0] += __shfl_xor_sync(~0u, upper ? total[0] : total[2], 2);
  keep[1] += __shfl_xor_sync(~0u, upper ? total[1] : total[3], 2);
  return (odd ? keep[1] : keep[0]) + __shfl_xor_sync(~0u, odd ? keep[0] : keep[1], 1);
}

/* The row's embedding, one column. */
__device__ __forceinline__ float embedded(const Args &a, int column) {
  const size_t at = (size_t)a.call.ids[0] * a.embedding_stride + column;
  const float v = a.embedding_type == DTYPE_F16   ? __half2float(((const __half *)a.embedding)[at])
                  : a.embedding_type == DTYPE_F32 ? ((const float *)a.embedding)[at]
                                                  : (float)((const __nv_bfloat16 *)a.embedding)[at];
  return v * a.embedding_scale;
}

/* Bytes of x and of its sums of squares, one of each 32 columns. */
__device__ __forceinline__ int x_bytes(const StepPlan &p) {
  return p.shape.hidden * 4 + p.shape.hidden / kChunk * 4;
}

/* Adds what came out of `matrix` in `layer` (below 0: the embedding begins) to the residual stream, and sends
 * x = residual * norm of this block's columns to the cluster's blocks, if anybody there wants it. */
template <bool kDebug>
__device__ __forceinline__ void add_and_send(Block<kDebug> &b, int matrix, int layer, const float *norm,
                                             bool send) {
  const StepPlan &p = b.args().plan;
  const int chunks = p.slice / kChunk;
  float weight[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; i++) {
    const int chunk = b.warp + i * STEP_WARPS;
    weight[i] = chunk < chunks ? __ldg(norm + b.rank() * p.slice + chunk * kChunk + b.lane) : 0;
  }
  Sum sum = {};
  if (layer >= 0) {
    sum = sum_of(b, matrix, layer);
    b.wait(&b.barriers()->sum, matrix == DOWN, STEP_AT_SUM); /* O and DOWN by turns */
  }
  b.mark(matrix == O ? STEP_MARK_SUM_O : STEP_MARK_SUM);
#pragma unroll
  for (int i = 0; i < kChunks; i++) {
    const int chunk = b.warp + i * STEP_WARPS, column = b.rank() * p.slice + chunk * kChunk + b.lane;
    if (chunk >= chunks) continue;
    float *kept = b.residual() + chunk * kChunk + b.lane;
    const float residual = layer < 0 ? embedded(b.args(), column) : *kept + take_sum(b, sum, column);
    *kept = residual;
    if (!send) continue;
    float squares = residual * residual;
    for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
    const float x = residual * weight[i];
    const int quad = b.lane % 8;
    uint4 v;
    v.x = __float_as_uint(__shfl_sync(~0u, x, 4 * quad));
    v.y = __float_as_uint(__shfl_sync(~0u, x, 4 * quad + 1));
    v.z = __float_as_uint(__shfl_sync(~0u, x, 4 * quad + 2));
    v.w = __float_as_uint(__shfl_sync(~0u, x, 4 * quad + 3));
    const float *to = b.x() + column - b.lane + 4 * quad;
#pragma unroll
    for (int peer = b.lane / 8; peer < STEP_BLOCKS; peer += 4)
      send_16(peer_address(to, peer), v, peer_address(&b.barriers()->x, peer));
    if (b.lane < STEP_BLOCKS)
      send_4(peer_address(b.squares() + b.rank() * chunks + chunk, b.lane), __float_as_uint(squares),
             peer_address(&b.barriers()->x, b.lane));
  }
  if (layer >= 0) {
    __syncwarp();
    if (b.lane == 0) barrier_arrive(&b.barriers()->taken);
  }
  b.mark(matrix == O ? STEP_MARK_X_SENT_O : STEP_MARK_X_SENT);
}

/* Waits for the n-th x of this block, and returns what it is to be multiplied by: 1 / rms. */
template <bool kDebug> __device__ __forceinline__ float wait_for_x(Block<kDebug> &b, int n) {
  const StepPlan &p = b.args().plan;
  b.wait(&b.barriers()->x, n & 1, STEP_AT_X);
  if (b.thread() == 0) barrier_expect(&b.barriers()->x, x_bytes(p));
  float squares = 0;
  for (int i = b.lane; i < p.shape.hidden / kChunk; i += 32) squares += b.squares()[i];
  for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  return rsqrtf(squares / p.shape.hidden + b.args().norm_eps);
}

/* Four neighbouring rows of a product, added up over the warps along k, the same in each of eight lanes. */
template <bool kDebug>
__device__ __forceinline__ float4 four_rows(const Block<kDebug> &b, int warps, int stride, int row) {
  const int j = b.lane % 8;
  float4 v = make_float4(0, 0, 0, 0);
  for (int k = j; k < warps; k += 8) {
    const float4 more = *(const float4 *)(b.sums() + k * stride + row);
    v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
  }
#pragma unroll
  for (int step = 1; step < 8; step *= 2) {
    v.x += __shfl_xor_sync(~0u, v.x, step), v.y += __shfl_xor_sync(~0u, v.y, step);
    v.z += __shfl_xor_sync(~0u, v.z, step), v.w += __shfl_xor_sync(~0u, v.w, step);
  }
  return v;
}

__device__ __forceinline__ uint4 bits_of(const float4 &v) {
  return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w));
}

/* Gives the cluster's blocks this block's features of the gated product: 8 lanes have the same four, one a
 * peer. */
template <bool kDebug> __device__ __forceinline__ void send_gated(Block<kDebug> &b, float inverse) {
  const StepPlan &p = b.args().plan;
  const StepShare &mine = p.shares[b.cluster()];
  const int warps = p.full.parts * p.full.k_warps, peer = b.lane % 8, quads = 4 * mine.n_units;
  for (int item = b.thread() / 8; item < quads; item += STEP_THREADS / 8) {
    const int row = item / 2 * 16 + item % 2 * 4;
    float4 gate = four_rows(b, warps, mine.stride, row), up = four_rows(b, warps, mine.stride, row + 8), v;
    auto gated = [&](float g, float u) {
      g *= inverse;
      return __fdividef(g, 1.0f + __expf(-g)) * (u * inverse);
    };
    v.x = gated(gate.x, up.x), v.y = gated(gate.y, up.y), v.z = gated(gate.z, up.z),
    v.w = gated(gate.w, up.w);
    const float *to = b.exchange() + item / 4 * STEP_GROUP + b.rank() * 16 + item % 4 * 4;
    send_16(peer_address(to, peer), bits_of(v), peer_address(&b.barriers()->gated, peer));
  }
}

} // namespace step

#endif
