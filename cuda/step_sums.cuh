/* step_sums.cuh - the residual stream: sums over all clusters, and the normalised row to the blocks of a
 * cluster.
 *
 * A block of rank r keeps columns r * slice .. of the residual stream, warp i chunks i and i + 16 of 32, the
 * same bits in every cluster. What a cluster's share of o or down adds goes through L2 to the blocks of that
 * rank in all clusters:
 *
 *     o     [n_kv_heads][hidden] float                      down  [2][n_clusters][hidden] float, by turns
 *
 * A value carries its own tag: its lowest bit, which is another one from use to use of the same place. All
 * zero before the first launch, the first use has 1. A place is used again only after every reader has given
 * what its writer needed since: of o one place is enough, since its readers all give to down before the next
 * o; of down it takes two, as clusters without a KV head give nothing to o. Each warp reads what is its own
 * until it is there, and again only what was not.
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

static_assert(kChunks <= 2, "add_and_send() has the norm of a second chunk, and of no third");

/* The values of one sum: of matrix O or DOWN in a layer. */
struct Sum {
  int at; /* float [givers][hidden] of Args.partials, from this one on */
  int givers;
  uint32_t tag; /* the bit that they carry */
};

/* What of tags is the same for a whole launch: the lowest bits of how often places were used before it, of
 * o's (bit 0) and of down's in even and odd layers (1, 2). */
__device__ __forceinline__ unsigned tags_of(unsigned launches, int n_layers) {
  const unsigned even = (n_layers + 1) / 2, odd = n_layers / 2;
  return (launches * n_layers & 1) | (launches * even & 1) << 1 | (launches * odd & 1) << 2;
}

template <bool kDebug> __device__ __forceinline__ Sum sum_of(const Block<kDebug> &b, int matrix, int layer) {
  const StepShape &s = b.args().plan.shape;
  const unsigned turn = layer & 1, tags = b.tags();
  if (matrix == O) return {0, s.n_kv_heads, (tags ^ layer ^ 1) & 1};
  return {(int)(s.n_kv_heads + turn * s.n_clusters) * s.hidden, s.n_clusters,
          (tags >> (1 + turn) ^ layer >> 1 ^ 1) & 1};
}

__device__ __forceinline__ uint32_t tagged(float v, uint32_t tag) {
  return (__float_as_uint(v) & ~1u) | tag;
}

/* 0 in the lowest bit where all of `v` carry the tag. */
__device__ __forceinline__ uint32_t without_tag(const ulonglong2 &v, uint32_t tag) {
  return (uint32_t)v.x ^ tag | (uint32_t)(v.x >> 32) ^ tag | (uint32_t)v.y ^ tag |
         (uint32_t)(v.y >> 32) ^ tag;
}

/* Four neighbouring rows of a product, added up over the warps along k. */
template <bool kDebug>
__device__ __forceinline__ float4 four_rows(const Block<kDebug> &b, const Share &share, int row) {
  const int warps = share.parts << share.log_k_warps, stride = share.sums_stride;
  const float *from = b.sums(share) + row;
  float4 v = *(const float4 *)from;
#pragma unroll 4
  for (int k = 1; k < warps; k++) {
    const float4 more = *(const float4 *)(from += stride);
    v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
  }
  return v;
}

/* Stores this cluster's part of the sum, once the product's sums are there: four rows a thread. */
template <bool kDebug>
__device__ __forceinline__ void give_sum(const Block<kDebug> &b, int matrix, const Sum &sum) {
  const StepPlan &p = b.args().plan;
  const Share &share = b.share(matrix);
  float *to = b.args().partials + (sum.at + b.cluster() * p.shape.hidden + b.rank() * p.slice);
  const int i = b.thread();
  static_assert(STEP_MAX_HIDDEN / STEP_BLOCKS / 4 <= STEP_THREADS, "a thread has four columns at most");
  if (i >= p.slice >> 2) return;
  const float4 v = four_rows(b, share, 4 * i);
  ulonglong2 out;
  out.x = (uint64_t)tagged(v.y, sum.tag) << 32 | tagged(v.x, sum.tag);
  out.y = (uint64_t)tagged(v.w, sum.tag) << 32 | tagged(v.z, sum.tag);
  store_relaxed_16(to + 4 * i, out);
}

__device__ __forceinline__ float untagged(uint64_t v) {
  return __uint_as_float((uint32_t)v & ~1u);
}

/* The sum over clusters of column 4 q + s of a chunk of 32, q = lane / 4, s = lane % 4. Lane s reads four
 * columns of clusters s, s + 4, ..., and the four lanes exchange. */
template <bool kDebug>
__device__ __forceinline__ float take_sum(const Block<kDebug> &b, const Sum &sum, int column) {
  constexpr int kMost = STEP_MAX_CLUSTERS / 4;
  const int s = b.lane() & 3, hidden = b.args().plan.shape.hidden;
  const float *from = b.args().partials + (sum.at + s * hidden + column - s);
  ulonglong2 v[kMost];
  uint32_t missing;
  const long long since = kDebug ? clock64() : 0;
#pragma unroll
  for (int i = 0; i < kMost; i++) {
    v[i].x = v[i].y = sum.tag ? 0x0000000100000001ull : 0; /* zeros from those that there are not */
    if (s + 4 * i < sum.givers) v[i] = load_relaxed_16(from + 4 * i * hidden);
  }
  for (;;) { /* reads again what was not there, and that alone */
    missing = 0;
#pragma unroll
    for (int i = 0; i < kMost; i++) missing |= without_tag(v[i], sum.tag);
    if (__all_sync(~0u, !(missing & 1))) break;
    if (kDebug && missing & 1) b.look_at_clock(since, STEP_AT_VALUES, column, (int)sum.tag);
    rest();
#pragma unroll
    for (int i = 0; i < kMost; i++)
      if (without_tag(v[i], sum.tag) & 1) v[i] = load_relaxed_16(from + 4 * i * hidden);
  }
  float total[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kMost; i++) {
    total[0] += untagged(v[i].x), total[1] += untagged(v[i].x >> 32);
    total[2] += untagged(v[i].y), total[3] += untagged(v[i].y >> 32);
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
 * x = residual * norm of this block's columns to the cluster's blocks, if anybody there wants it. norm: of
 * Args.vectors, from this one on. */
template <bool kDebug>
__device__ __forceinline__ void add_and_send(Block<kDebug> &b, int matrix, int layer, int norm, bool send) {
  const StepPlan &p = b.args().plan;
  const int chunks = p.slice / kChunk, first_column = b.rank() * p.slice + b.lane();
  float weight[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; i++) {
    const int chunk = b.warp() + i * STEP_WARPS;
    weight[i] = chunk < chunks ? __ldg(b.args().vectors + (norm + first_column + chunk * kChunk)) : 0;
  }
  Sum sum = {};
  if (layer >= 0) sum = sum_of(b, matrix, layer);
  b.mark(matrix == O ? STEP_MARK_SUM_O : STEP_MARK_SUM);
#pragma unroll 1
  for (int chunk = b.warp(); chunk < chunks; chunk += STEP_WARPS) {
    const int column = first_column + chunk * kChunk;
    float *kept = b.residual() + chunk * kChunk + b.lane();
    const float residual = layer < 0 ? embedded(b.args(), column) : *kept + take_sum(b, sum, column);
    *kept = residual;
    if (!send) continue;
    const float x = residual * weight[0];
    weight[0] = weight[kChunks - 1];
    const int quad = b.lane() & 7;
    uint4 v;
    v.x = __float_as_uint(__shfl_sync(~0u, x, 4 * quad));
    v.y = __float_as_uint(__shfl_sync(~0u, x, 4 * quad + 1));
    v.z = __float_as_uint(__shfl_sync(~0u, x, 4 * quad + 2));
    v.w = __float_as_uint(__shfl_sync(~0u, x, 4 * quad + 3));
    const float *to = b.x() + column - b.lane() + 4 * quad;
#pragma unroll
    for (int i = 0; i < STEP_BLOCKS; i += 4) {
      const int peer = (b.lane() >> 3) + i;
      send_16(peer_address(to, peer), v, peer_address(&b.barriers()->x, peer));
    }
    float squares = residual * residual;
#pragma unroll
    for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
    if (b.lane() < STEP_BLOCKS)
      send_4(peer_address(b.squares() + b.rank() * chunks + chunk, b.lane()), __float_as_uint(squares),
             peer_address(&b.barriers()->x, b.lane()));
  }
  b.mark(matrix == O ? STEP_MARK_X_SENT_O : STEP_MARK_X_SENT);
}

/* Waits for the n-th x of this block. */
template <bool kDebug> __device__ __forceinline__ void wait_for_x(Block<kDebug> &b, int n) {
  b.wait(&b.barriers()->x, n & 1, STEP_AT_X);
  if (b.thread() == 0) barrier_expect(&b.barriers()->x, x_bytes(b.args().plan));
}

/* What the x that came last, or its product, is to be multiplied by: 1 / rms. For whole warps. */
template <bool kDebug> __device__ __forceinline__ float inverse_of_x(const Block<kDebug> &b) {
  const StepPlan &p = b.args().plan;
  float squares = 0;
#pragma unroll 1
  for (int i = 4 * b.lane(); i < p.shape.hidden / kChunk; i += 128) {
    const float4 v = *(const float4 *)(b.squares() + i);
    squares += (v.x + v.y) + (v.z + v.w);
  }
#pragma unroll
  for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  return rsqrtf(__fdividef(squares, small_float(p.shape.hidden)) + b.args().norm_eps);
}

__device__ __forceinline__ uint4 bits_of(const float4 &v) {
  return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w));
}

/* Gives the cluster's blocks this block's features of the gated product: 8 lanes make the same four, one for
 * each peer. */
template <bool kDebug> __device__ __forceinline__ void send_gated(Block<kDebug> &b) {
  const float inverse = b.inverse();
  const Share &share = b.share(GATE_UP);
  const int peer = b.lane() & 7, quads = 2 * share.n_rows;
#pragma unroll 1
  for (int item = b.thread() >> 3; item < quads; item += STEP_THREADS / 8) {
    const int row = (item >> 1) * 16 + (item & 1) * 4;
    float4 gate = four_rows(b, share, row), up = four_rows(b, share, row + 8), v;
    auto gated = [&](float g, float u) {
      g *= inverse;
      return __fdividef(g, 1.0f + __expf(-g)) * (u * inverse);
    };
    v.x = gated(gate.x, up.x), v.y = gated(gate.y, up.y), v.z = gated(gate.z, up.z),
    v.w = gated(gate.w, up.w);
    const float *to = b.exchange() + (item >> 2) * STEP_GROUP + b.rank() * 16 + (item & 3) * 4;
    send_16(peer_address(to, peer), bits_of(v), peer_address(&b.barriers()->gated, peer));
  }
}

} // namespace step

#endif
