/* few_attention.cuh - attention of one KV head by the eight blocks of a cluster, for several tokens.
 *
 *   a[r][h] = softmax(scale q[r][h] k) v,  over the `pos` positions in the cache and new ones up to token r
 *
 * A query is one head of one token. Eight queries are the columns of an mma (attend.cuh); where there
 * are more, other warps take the other columns for the same keys. Stages of keys go to the blocks in
 * turn, stage i to rank i % 8, and in a block to four sets of warps in turn. A block merges its warps'
 * states and sends query i's to block i % 8. That block merges all eight with the new keys and values,
 * and sends the quantised output, x of o, to the cluster. All orders are fixed. */
#ifndef AUK_CUDA_FUSED_FEW_ATTENTION_CUH
#define AUK_CUDA_FUSED_FEW_ATTENTION_CUH

#include "cuda/fused/attend.cuh"
#include "cuda/fused/few_residual.cuh"
#include "cuda/fused/few_ring.cuh"
#include "cuda/ptx/lanes.cuh"

namespace step {
namespace rows {

template <int kR, bool kDebug> __device__ __forceinline__ States warp_states(const Block<kR, kDebug> &b) {
  const StepPlan &p = b.args().plan;
  return {(__half *)(b.state + p.at.warp_values), (float2 *)(b.state + p.at.warp_weights)};
}

/* States of this block's queries: [query / 8][block][128]. */
template <int kR, bool kDebug> __device__ __forceinline__ States block_states(const Block<kR, kDebug> &b) {
  const int owned = (b.args().plan.queries + STEP_BLOCKS - 1) / STEP_BLOCKS;
  __half *values = (__half *)(b.state + b.places().states);
  return {values, (float2 *)(values + owned * STEP_BLOCKS * kDim)};
}

/* Attends to this block's keys. Returns how many states its warps left. */
template <int kR, bool kDebug> __device__ __forceinline__ int attend(Block<kR, kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const int pos = b.pos(), pieces = key_pieces(pos, b.rank()), sets = min(STEP_TEAMS, pieces);
  /* A member of a set has one column of queries, and all keys of a stage or half of them. */
  const int log_members = log_2(p.members), log_columns = log_2(p.columns);
  const int members = p.members, set = b.warp() >> log_members, member = b.warp() & (members - 1);
  const int column = member & (p.columns - 1), half = member >> log_columns, halves = members >> log_columns;
  if (set < sets) {
    Attending attending;
    attending.begin();
    RingAt at = b.next();
    at.move(set, p.n_slots);
#pragma unroll 1
    for (int i = set; i < pieces; i += STEP_TEAMS) {
      const int first = (b.rank() + i * STEP_BLOCKS) * STEP_KEYS;
      b.take_piece(at);
      const unsigned char *keys = b.slot(at.slot);
#pragma unroll 1
      for (int part = half * 16; part < min((int)STEP_KEYS, pos - first); part += halves * 16) {
        const int n = min(16, pos - first - part);
        float s[4], weights[4];
        Attending::score(b.heads() + column * 8 * kDim, keys + part * 256, s, forgotten(b.lane()));
        attending.weigh(s, weights, n, b.args().scale_log2, forgotten(b.lane()));
        attending.add(keys + (STEP_KEYS + part) * 256, weights, n, forgotten(b.lane()), [] {});
      }
      __syncwarp();
      if (b.lane() < STEP_TEAM_WARPS >> log_members) barrier_arrive(&b.barriers()->empty[at.slot]);
      at.move(STEP_TEAMS, p.n_slots);
    }
    States to = warp_states(b);
    to.values += column * 8 * kDim, to.weights += column * 8;
    attending.store(to, set * halves + half, p.queries, p.queries - column * 8, b.lane());
  }
  b.advance(b.keys_run());
  return sets * halves;
}

/* Merges the states of the block's warps, and sends each query's to the block that has the query. */
template <int kR, bool kDebug>
__device__ __forceinline__ void send_states(const Block<kR, kDebug> &b, int n_states) {
  const int queries = b.args().plan.queries;
  const States from = warp_states(b), to = block_states(b);
#pragma unroll 1
  for (int item = b.thread(); item < queries * (kDim / 8); item += STEP_THREADS) {
    const int query = item >> 4, dim = (item & 15) * 8, peer = query % STEP_BLOCKS,
              place = query / STEP_BLOCKS * STEP_BLOCKS + b.rank();
    const uint32_t barrier = peer_address(&b.barriers()->states, peer);
    float v[8];
    float2 weight;
    add_states(from, n_states, queries, query, dim, v, weight);
    send_16(peer_address(to.values + place * kDim + dim, peer),
            make_uint4(pack_half2(v[0], v[1]), pack_half2(v[2], v[3]), pack_half2(v[4], v[5]),
                       pack_half2(v[6], v[7])),
            barrier);
    if (dim == 0)
      send_8(peer_address(to.weights + place, peer),
             make_uint2(__float_as_uint(weight.x), __float_as_uint(weight.y)), barrier);
  }
}

/* Four halves of a lane: k and k + 1, k + 8 and k + 9 (send_group()). */
struct Four {
  uint32_t near, far;
  __device__ __forceinline__ float times(const Four &o) const {
    return (scale_low(near) * scale_low(o.near) + scale_high(near) * scale_high(o.near)) +
           (scale_low(far) * scale_low(o.far) + scale_high(far) * scale_high(o.far));
  }
  __device__ __forceinline__ void add_to(float (&v)[4], float share) const {
    v[0] += share * scale_low(near), v[1] += share * scale_low(far);
    v[2] += share * scale_high(near), v[3] += share * scale_high(far);
  }
};

__device__ __forceinline__ Four four_of(const __half *from, int lane) {
  from += (lane >> 2) * 16 + 2 * (lane & 3);
  return {*(const uint32_t *)from, *(const uint32_t *)(from + 8)};
}

/* Merges the states of this block's queries, one warp each, with the new keys and values up to the
 * query's token, and sends the output. For the warps that have a query. */
template <int kR, bool kDebug> __device__ __forceinline__ void merge_states(const Block<kR, kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const int place = b.warp(), query = b.rank() + place * STEP_BLOCKS, lane = b.lane();
  const int row = query / p.heads_per_kv, head = query - row * p.heads_per_kv;
  const Four q = four_of(b.heads() + query * kDim, lane);
  float score[kR], maximum = -INFINITY;
#pragma unroll
  for (int i = 0; i < kR; i++) {
    const float s = warp_sum(q.times(four_of(b.new_keys() + i * kDim, lane)));
    score[i] = i <= row ? s * b.args().scale_log2 : -INFINITY;
    maximum = fmaxf(maximum, score[i]);
  }
  b.wait_again(&b.barriers()->states, b.layer(), states_bytes(b), STEP_AT_STATES);
  b.mark(STEP_MARK_STATES);
  const States from = block_states(b);
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i++) maximum = fmaxf(maximum, from.weights[place * STEP_BLOCKS + i].x);
  float v[4] = {0, 0, 0, 0}, total = 0;
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i++) {
    const float2 w = from.weights[place * STEP_BLOCKS + i];
    const float share = power_of_2(w.x - maximum) * w.y;
    total += share;
    four_of(from.values + (place * STEP_BLOCKS + i) * kDim, lane).add_to(v, share);
  }
#pragma unroll
  for (int i = 0; i < kR; i++) {
    if (i > row) break; /* a weight of 0 would not do: a later token's values may be infinite */
    const float share = power_of_2(score[i] - maximum);
    total += share;
    four_of(b.new_values() + i * kDim, lane).add_to(v, share);
  }
  const float over = __fdividef(1, total);
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] *= over;
  send_group(b, v, p.at.in + head * Planes<kR>::kGroup, p.at.in_notes + head * kR * 8, row,
             &b.barriers()->values);
}

/* From q, k and v, under way to the cluster, to x of o, on its way to the cluster. */
template <int kR, bool kDebug> __device__ __forceinline__ void attention(Block<kR, kDebug> &b) {
  b.mark(STEP_MARK_QKV_SENT);
  b.wait_again(&b.barriers()->projections, b.layer(), projection_bytes(b), STEP_AT_PROJECTIONS);
  b.mark(STEP_MARK_PROJECTIONS);
  b.mark(STEP_MARK_HEADS);
  const int n_states = attend(b);
  b.mark_waited(STEP_WAITED_KEYS);
  b.sync();
  b.mark(STEP_MARK_KEYS);
  send_states(b, n_states);
  b.mark(STEP_MARK_STATES_SENT);
  if (b.warp() < own_queries(b)) merge_states(b);
  b.mark(STEP_MARK_MERGED);
}

} // namespace rows
} // namespace step

#endif
