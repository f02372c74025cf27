/* one_residual.cuh - the residual stream of one token: all-reduce across clusters, and the normalised x to
 * the blocks of a cluster.
 *
 * The block of rank r owns columns r * slice .. of the residual stream, and its warp i the spans i and i +
 * 16 of 32 columns, with the same bits in every cluster. It contributes its cluster's partial sums of o or
 * down through L2 (allreduce.cuh), and reads the totals.
 *
 * Sums of squares and x = residual * norm go to the cluster's blocks at once; the division by the rms
 * follows after the matmul. */
#ifndef AUK_CUDA_FUSED_ONE_RESIDUAL_CUH
#define AUK_CUDA_FUSED_ONE_RESIDUAL_CUH

#include "cuda/fused/allreduce.cuh"
#include "cuda/fused/block.cuh"
#include "cuda/ptx/lanes.cuh"

namespace step {

constexpr int kChunk = 32;

template <bool kDebug> __device__ __forceinline__ Sum sum_of(const Block<kDebug> &b, int matrix, int layer) {
  return sum_of(b.args().totals, b.args().plan.shape, 1, matrix == DOWN, layer);
}

/* Four neighbouring outputs of a matmul, added up over the warps along k. */
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

/* Contributes this cluster's partial sums after a matmul, a column a thread. */
template <bool kDebug>
__device__ __forceinline__ void give_sum(const Block<kDebug> &b, int matrix, const Sum &sum) {
  const StepPlan &p = b.args().plan;
  const Share &share = b.share(matrix);
  const int warps = share.parts << share.log_k_warps, stride = share.sums_stride;
  uint64_t *to = sum.totals + b.rank() * p.slice;
#pragma unroll 1
  for (int i = b.thread(); i < p.slice; i += STEP_THREADS) {
    const float *from = b.sums(share) + i;
    float v = *from;
#pragma unroll 4
    for (int k = 1; k < warps; k++) v += *(from += stride);
    give(to + i, v);
  }
}

/* The lane's column, summed over the clusters. */
template <bool kDebug>
__device__ __forceinline__ float take_sum(const Block<kDebug> &b, const Sum &sum, int column) {
  const uint64_t *from = sum.totals + column;
  uint64_t *kept = sum.totals + column + to_last(b.args().plan.shape, 1, b.cluster());
  uint64_t total = load_relaxed_8(from);
  const uint64_t last = *kept;
  const long long since = kDebug ? clock64() : 0;
  for (;;) { /* reads again only what was incomplete */
    const bool whole = all_gave(total, last, sum.givers);
    if (__all_sync(~0u, whole)) break;
    if (kDebug && !whole) b.look_at_clock(since, STEP_AT_VALUES, column, (int)(total - last & 31));
    rest();
    if (!whole) total = load_relaxed_8(from);
  }
  *kept = total;
  return sum_since(total, last, sum.givers);
}

/* Bytes of x and of its sums of squares, one for each 32 columns. */
__device__ __forceinline__ int x_bytes(const StepPlan &p) {
  return p.shape.hidden * 4 + p.shape.hidden / kChunk * 4;
}

/* Adds the output of `matrix` in `layer` to the residual stream (layer < 0: the embedding begins it),
 * and if `send` is set, sends x = residual * norm of this block's columns to the cluster. norm: index in
 * Args.vectors. */
template <bool kDebug>
__device__ __forceinline__ void add_and_send(Block<kDebug> &b, int matrix, int layer, int norm, bool send) {
  const StepPlan &p = b.args().plan;
  const int chunks = p.slice / kChunk, first_column = b.rank() * p.slice + b.lane();
  Sum sum = {};
  if (layer >= 0) sum = sum_of(b, matrix, layer);
  b.mark(matrix == O ? STEP_MARK_SUM_O : STEP_MARK_SUM);
#pragma unroll 1
  for (int chunk = b.warp(); chunk < chunks; chunk += STEP_WARPS) {
    const int column = first_column + chunk * kChunk;
    const float weight = __ldg(b.args().vectors + (norm + column));
    float *kept = b.residual() + chunk * kChunk + b.lane();
    const float residual = layer < 0 ? embedded(b.args(), 0, column) : *kept + take_sum(b, sum, column);
    *kept = residual;
    if (!send) continue;
    const float x = residual * weight;
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
    const float squares = warp_sum(residual * residual);
    if (b.lane() < STEP_BLOCKS)
      send_4(peer_address(b.squares() + b.rank() * chunks + chunk, b.lane()), __float_as_uint(squares),
             peer_address(&b.barriers()->x, b.lane()));
  }
  b.mark(matrix == O ? STEP_MARK_X_SENT_O : STEP_MARK_X_SENT);
}

/* Waits for the n-th x of this block, from 0. */
template <bool kDebug> __device__ __forceinline__ void wait_for_x(Block<kDebug> &b, int n) {
  b.wait(&b.barriers()->x, n & 1, STEP_AT_X);
  if (b.thread() == 0) barrier_expect(&b.barriers()->x, x_bytes(b.args().plan));
}

/* 1 / rms of the x that came last, by which x or the matmul's output is multiplied. For whole warps. */
template <bool kDebug> __device__ __forceinline__ float inverse_of_x(const Block<kDebug> &b) {
  const StepPlan &p = b.args().plan;
  float squares = 0;
#pragma unroll 1
  for (int i = 4 * b.lane(); i < p.shape.hidden / kChunk; i += 128) {
    const float4 v = *(const float4 *)(b.squares() + i);
    squares += (v.x + v.y) + (v.z + v.w);
  }
  squares = warp_sum(squares);
  return rsqrtf(__fdividef(squares, small_float(p.shape.hidden)) + b.args().norm_eps);
}

__device__ __forceinline__ uint4 bits_of(const float4 &v) {
  return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w));
}

/* Sends this block's features of the gated product to the cluster: 8 lanes compute the same four, one
 * for each peer. */
template <bool kDebug> __device__ __forceinline__ void send_gated(Block<kDebug> &b) {
  const float inverse = b.inverse();
  const Share &share = b.share(GATE_UP);
  const int peer = b.lane() & 7, quads = 2 * share.n_rows;
#pragma unroll 1
  for (int item = b.thread() >> 3; item < quads; item += STEP_THREADS / 8) {
    const int row = (item >> 1) * 16 + (item & 1) * 4;
    float4 gate = four_rows(b, share, row), up = four_rows(b, share, row + 8), v;
    auto gated = [&](float g, float u) { return silu(g * inverse) * (u * inverse); };
    v.x = gated(gate.x, up.x), v.y = gated(gate.y, up.y), v.z = gated(gate.z, up.z),
    v.w = gated(gate.w, up.w);
    const float *to = b.exchange() + (item >> 2) * STEP_GROUP + b.rank() * 16 + (item & 3) * 4;
    send_16(peer_address(to, peer), bits_of(v), peer_address(&b.barriers()->gated, peer));
  }
}

} // namespace step

#endif
