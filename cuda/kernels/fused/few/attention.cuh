/* few/attention.cuh - attention of one KV head by the eight blocks of a cluster, for several tokens.
 *
 *   a[r][h] = softmax(scale q[r][h] k) v,  over the positions of r's sequence: those in the cache, and the
 *                                           new ones up to token r
 *
 * A query is one head of one token. Eight queries are the columns of an mma (attend.cuh); if there are more,
 * other warps take further queries for the same keys. Stages of a sequence's keys go to the blocks in turn,
 * and in a block to four sets of warps in turn (KeyWalk has the order). Eight queries may be of two sequences
 * or more. Keys of one sequence have weight 0 for queries of another, and values are finite (finite_value(),
 * keep_finite()). A block merges its warps' states. It sends those of pack i (a query of 128, or two of 64)
 * to block i % 8. That block merges the states of all eight blocks with the new keys and values, and sends
 * the quantised output, x of o, to the cluster. All orders are fixed. */
#pragma once

#include "cuda/kernels/fused/attend.cuh"
#include "cuda/kernels/fused/few/residual.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace step::few {

template <class B> __device__ __forceinline__ States warp_states(const B &b) {
  const StepOffsets &off = b.plan.off;
  return {(__half *)(b.smem + off.warp_values), (float2 *)(b.smem + off.warp_weights)};
}

/* States of this block's packs of queries: [pack / 8][block][128]. */
template <class B> __device__ __forceinline__ States block_states(const B &b) {
  const int owned = (b.plan.o_packs * B::kTokens + STEP_BLOCKS - 1) / STEP_BLOCKS;
  __half *values = (__half *)(b.smem + b.plan.off.states);
  return {values, (float2 *)(values + owned * STEP_BLOCKS * STEP_PACK)};
}

/* A warp's place among those that attend. The warps of a set share a stage of keys. Queries are taken in
 * eights: a warp has the eight of number `column`, with all keys of the stage or with 16 of every 32. */
struct Attendant {
  int set, column, half, halves;
  __device__ __forceinline__ Attendant(const StepPlan &p, int warp) {
    const int log_columns = log_2(p.columns), member = warp & (p.members - 1);
    set = warp >> log_2(p.members), column = member & (p.columns - 1);
    half = member >> log_columns, halves = p.members >> log_columns;
  }
};

/* Attends to the warp's part of the stage at `cursor`, of n_keys positions. own: in a step of several
 * sequences bit c is set if query 2 t + c of the warp's eight attends to these positions. */
template <class B, class Softmax>
__device__ __forceinline__ void attend_stage(B &b, Softmax &softmax, const Attendant &w,
                                             const RingCursor &cursor, int n_keys, int own) {
  constexpr int kDim = B::kDim, kKeys = B::kKeys, kRow = Softmax::kRow;
  b.wait_for_stage(cursor);
  const unsigned char *stage = b.stage(cursor);
#pragma unroll 1
  for (int key0 = w.half * 16; key0 < n_keys; key0 += w.halves * 16) {
    const int n = min(16, n_keys - key0),
              valid[2] = {!B::kSeveral || own & 1 ? n : 0, !B::kSeveral || own & 2 ? n : 0};
    float s[4], weights[4];
    softmax.score(b.heads() + w.column * 8 * kDim, stage + key0 * kRow, Softmax::scales_of_keys(stage, key0),
                  s, opaque(b.lane()));
    softmax.to_weights(s, weights, valid, b.args.scale_log2, opaque(b.lane()));
    softmax.accumulate(
        stage + (kKeys + key0) * kRow, Softmax::scales_of_values(stage, key0), weights, n, opaque(b.lane()),
        [] {}, own);
  }
  __syncwarp();
}

/* Attends to the stages of the only sequence: the warp's set takes every fourth stage. */
template <class B, class Softmax>
__device__ __forceinline__ void attend_alone(B &b, Softmax &softmax, const Attendant &w, int stages) {
  const StepPlan &p = b.plan;
  const int pos = b.args.call.parts[0].pos;
  RingCursor cursor = b.next();
  cursor.move(w.set, p.n_slots);
#pragma unroll 1
  for (int i = w.set; i < stages; i += STEP_WARPGROUPS) {
    const int first = (b.rank() + i * STEP_BLOCKS) * B::kKeys;
    attend_stage(b, softmax, w, cursor, min(B::kKeys, pos - first), 0);
    if (b.lane() < STEP_WARPGROUP_WARPS >> log_2(p.members)) barrier_arrive(&b.barriers().empty[cursor.slot]);
    cursor.move(STEP_WARPGROUPS, p.n_slots);
  }
}

/* Waits until loads of the step's stage `number` have begun. A wait for a barrier sees only the parity of a
 * phase. A warp that has passed over many stages could be two phases ahead of the barrier. It would then take
 * an earlier stage in the slot for its own. */
template <class B> __device__ __forceinline__ void wait_until_loading(const B &b, unsigned number) {
  const long long since = B::kIsDebug ? clock64() : 0;
  while (!__all_sync(~0u, *(volatile const unsigned *)&b.vars().loaded > number)) {
    __nanosleep(20);
    if (B::kIsDebug) b.check_patience(since, STEP_AT_LIMIT, 0, 0);
  }
}

/* Attends to the stages of several sequences. Set number (round + part) % 4 of the warps takes a stage; its
 * warps without queries of the sequence skip it. */
template <class B, class Softmax>
__device__ __forceinline__ void attend_apart(B &b, Softmax &softmax, const Attendant &w, int stages) {
  const StepPlan &p = b.plan;
  const int query = w.column * 8 + 2 * (b.lane() & 3), last = B::kTokens - 1,
            own = b.first_row_of(min(query / p.heads_per_kv, last)) |
                  b.first_row_of(min((query + 1) / p.heads_per_kv, last)) << 8;
  RingCursor cursor = b.next();
  KeyWalk<B> walk(b);
  /* Stages before this layer's first stage of keys. */
  unsigned before = (unsigned)(b.layer() * stages + b.share(QKV).stages);
  for (int i = QKV; i < MATRICES; i++) before += (unsigned)(b.layer() * b.share(i).stages);
#pragma unroll 1
  for (int i = 0; i < stages; i++, cursor.move(1, p.n_slots)) {
    walk.next(b);
    const KeySpan span = b.spans().of[walk.part];
    const int arrivals = span.arrivals >> 4 * w.column & 15;
    if (arrivals == 0 || (walk.round + walk.part) % STEP_WARPGROUPS != w.set) continue;
    wait_until_loading(b, before + i);
    attend_stage(b, softmax, w, cursor, min(B::kKeys, span.pos - walk.position(b)),
                 ((own & 255) == span.first_row) | ((own >> 8) == span.first_row) << 1);
    if (b.lane() < arrivals) barrier_arrive(&b.barriers().empty[cursor.slot]);
  }
}

/* Attends to this block's keys. Returns how many softmax states its warps left. */
template <class B> __device__ __forceinline__ int attend_keys(B &b) {
  const StepPlan &p = b.plan;
  const int stages = all_key_stages(b),
            sets = min(STEP_WARPGROUPS, B::kSeveral ? stages + b.args.call.n_parts - 1 : stages);
  const Attendant w(p, b.warp());
  if (w.set < sets) {
    OnlineSoftmax<B::kDim, B::kQ8, B::kSeveral> softmax;
    softmax.reset();
    if constexpr (B::kQ8) softmax.take_queries(b.heads() + w.column * 8 * B::kDim, b.lane());
    if constexpr (B::kSeveral)
      attend_apart(b, softmax, w, stages);
    else
      attend_alone(b, softmax, w, stages);
    States to = warp_states(b);
    to.values += w.column * 8 * B::kDim, to.weights += w.column * 8;
    softmax.store(to, w.set * w.halves + w.half, p.queries, p.queries - w.column * 8, b.lane());
  }
  b.advance(b.vars().keys_run);
  return sets * w.halves;
}

/* Merges the states of the block's warps, and sends each query's result to the block that has the query's
 * pack. */
template <class B> __device__ __forceinline__ void send_states(const B &b, int n_states) {
  constexpr int kDim = B::kDim, kItems = kDim / 8, kPackHeads = B::kPackHeads;
  const int queries = b.plan.queries;
  const States from = warp_states(b), to = block_states(b);
#pragma unroll 1
  for (int item = b.thread(); item < queries * kItems; item += STEP_THREADS) {
    const int query = item / kItems, dim = item % kItems * 8, pack = query / kPackHeads,
              peer = pack % STEP_BLOCKS, own_pack = pack / STEP_BLOCKS * STEP_BLOCKS + b.rank();
    const int at = own_pack * kPackHeads + query % kPackHeads;
    const uint32_t barrier = peer_address(&b.barriers().states, peer);
    const MergedState merged = merge_states<kDim>(from, n_states, queries, query, dim);
    send_16(peer_address(to.values + at * kDim + dim, peer), merged.values, barrier);
    if (dim == 0) send_8(peer_address(to.weights + at, peer), merged.weight, barrier);
  }
}

/* Four halves of a lane. near: k and k + 1; far: k + 8 and k + 9 (send_group()). */
struct Four {
  uint32_t near, far;
  __device__ __forceinline__ float times(const Four &o) const {
    return (f16_low(near) * f16_low(o.near) + f16_high(near) * f16_high(o.near)) +
           (f16_low(far) * f16_low(o.far) + f16_high(far) * f16_high(o.far));
  }
  __device__ __forceinline__ void add_to(float (&v)[4], float factor) const {
    v[0] += factor * f16_low(near), v[1] += factor * f16_low(far);
    v[2] += factor * f16_high(near), v[3] += factor * f16_high(far);
  }
};

/* The lane's four numbers of a pack at `from` (kDim 128). With kDim 64, `from` is one head, which both halves
 * of the warp read. */
template <int kDim> __device__ __forceinline__ Four four_of(const __half *from, int lane) {
  from += ((lane >> 2) * 16 + 2 * (lane & 3)) % kDim;
  return {*(const uint32_t *)from, *(const uint32_t *)(from + 8)};
}

/* Merges the states of this block's packs of queries, one warp each, with the new keys and values up to the
 * query's token, and sends the output. For the warps that have a pack. */
template <class B> __device__ __forceinline__ void merge_queries(const B &b) {
  constexpr int kTokens = B::kTokens, kDim = B::kDim, kPackHeads = B::kPackHeads;
  const StepPlan &p = b.plan;
  const int own_pack = b.warp(), index = b.rank() + own_pack * STEP_BLOCKS, lane = b.lane();
  const int token = index / p.o_packs, pack = index - token * p.o_packs, head = kDim == 64 ? lane >> 4 : 0,
            first = b.first_row_of(token);
  const Four q = four_of<STEP_PACK>(b.heads() + index * STEP_PACK, lane);
  float score[kTokens], maximum = -INFINITY;
#pragma unroll
  for (int i = 0; i < kTokens; i++) {
    const float own = q.times(four_of<kDim>(b.new_keys() + i * kDim, lane)),
                s = kDim == 64 ? lanes_sum<1, 2, 4, 8>(own) : warp_sum(own);
    score[i] = first <= i && i <= token ? s * b.args.scale_log2 : -INFINITY;
    maximum = fmaxf(maximum, score[i]);
  }
  b.wait_again(b.barriers().states, b.layer(), b.states_bytes(), STEP_AT_STATES);
  b.mark(STEP_MARK_STATES);
  const States from = block_states(b);
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i++)
    maximum = fmaxf(maximum, from.weights[(own_pack * STEP_BLOCKS + i) * kPackHeads + head].x);
  float v[4] = {0, 0, 0, 0}, total = 0;
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i++) {
    const float2 w = from.weights[(own_pack * STEP_BLOCKS + i) * kPackHeads + head];
    const float factor = power_of_2(w.x - maximum) * w.y;
    total += factor;
    four_of<STEP_PACK>(from.values + (own_pack * STEP_BLOCKS + i) * STEP_PACK, lane).add_to(v, factor);
  }
#pragma unroll
  for (int i = 0; i < kTokens; i++) {
    if (i > token) break; /* a weight of 0 would not do: later values may be infinite */
    if (i < first) continue;
    const float factor = power_of_2(score[i] - maximum);
    total += factor;
    four_of<kDim>(b.new_values() + i * kDim, lane).add_to(v, factor);
  }
  const float over = __fdividef(1, total);
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] *= over;
  send_group(b, v, p.off.in, p.off.in_scales, pack, token, b.barriers().values);
}

/* Waits for the cluster's q, k and v, attends, and sends x of o to the cluster. */
template <class B> __device__ __forceinline__ void attend(B &b) {
  b.mark(STEP_MARK_QKV_SENT);
  b.wait_again(b.barriers().projections, b.layer(), b.projection_bytes(), STEP_AT_PROJECTIONS);
  attend_with_heads(b);
  if (b.warp() < b.own_packs()) merge_queries(b);
  b.mark(STEP_MARK_MERGED);
}

} // namespace step::few
