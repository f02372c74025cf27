/* one_attention.cuh - attention of one KV head by the eight blocks of a cluster, for one token.
 *
 *   a[h] = softmax(scale q[h] k) v,  h < heads_per_kv, over the `pos` positions in the cache and the new one
 *
 * Each block has all queries. Stages of 32 positions go to the blocks in turn, stage i to rank i % 8, and
 * in a block to pairs of warps in turn, 16 keys a warp (attend.cuh).
 *
 * A block merges its warps' states, {maximum, sum, output in fp16}, and sends the result to the cluster,
 * where each block merges the eight. The last block takes the new key and value as one more warp's
 * state, and also appends them to the cache. All orders are fixed. READS  2 * pos * 256 bytes a cluster. */
#pragma once

#include "cuda/fused/attend.cuh"
#include "cuda/fused/one_matmul.cuh"
#include "cuda/fused/one_residual.cuh"
#include "cuda/ptx/lanes.cuh"

namespace step::one {

constexpr int kHeads = STEP_MAX_SHARED_HEADS, kWarpPairs = STEP_WARP_PAIRS;
constexpr int kAppender = STEP_BLOCKS - 1; /* the block with the fewest keys has the new one */

template <class B> __device__ __forceinline__ States warp_states(const B &b) {
  const StepPlan &p = b.plan;
  __half *values = (__half *)b.x();
  return {values, (float2 *)(values + p.states * p.heads_per_kv * kDim)};
}

template <class B> __device__ __forceinline__ States block_states(const B &b) {
  __half *values = (__half *)(b.smem + b.plan.off.attention);
  return {values, (float2 *)(values + STEP_BLOCKS * b.plan.heads_per_kv * kDim)};
}

/* --- q, k and v */

/* Sends this block's 16 outputs of each head to the cluster. */
template <class B> __device__ __forceinline__ void send_projections(B &b) {
  const StepPlan &p = b.plan;
  const Share &share = b.share(QKV);
  const int peer = b.lane() & 7;
#pragma unroll 1
  for (int item = b.thread() >> 3; item < 4 * (p.heads_per_kv + 2); item += STEP_THREADS / 8) {
    const float4 v = four_rows(b, share, item * 4);
    const float *to = b.exchange() + (item >> 2) * kDim + b.rank() * 16 + (item & 3) * 4;
    send_16(peer_address(to, peer), bits_of(v), peer_address(&b.barriers().projections, peer));
  }
}

/* Factors that make a head of a matmul's outputs, for the lane's four dimensions. They are read while
 * the outputs are under way. */
struct HeadFactors {
  float inverse, bias[4], norm[4]; /* 1 / rms of x */
};

template <class B> __device__ __forceinline__ HeadFactors head_factors(const B &b) {
  const Vectors vectors = b.vectors();
  const int head = b.warp(), queries = b.plan.heads_per_kv;
  const float *bias = vectors.bias + head_of_qkv(b.plan, b.cluster(), head) * kDim + b.lane();
  HeadFactors f = {0, {0, 0, 0, 0}, {1, 1, 1, 1}};
  if (head >= queries + 2) return f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (b.args.bias) f.bias[i] = __ldg(bias + 32 * i);
    if (b.args.head_norms && head <= queries)
      f.norm[i] = __ldg((head < queries ? vectors.q_norm : vectors.k_norm) + b.lane() + 32 * i);
  }
  f.inverse = inverse_of_x(b);
  return f;
}

/* Norm and rope of the cluster's heads, one warp each. Queries, new key and new value go to shared
 * memory as halves, key and value also to the cache. */
template <class B> __device__ __forceinline__ void make_head(const B &b, const HeadFactors &f) {
  const StepPlan &p = b.plan;
  const int head = b.warp(), lane = b.lane();
  if (head >= p.heads_per_kv + 2) return;
  const float *from = b.exchange() + head * kDim + lane;
  float v[4]; /* pairs (lane, lane + 64), (lane + 32, lane + 96) */
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = from[32 * i] * f.inverse + f.bias[i];
  if (head <= p.heads_per_kv) {
    if (b.args.head_norms) {
      const float scale = inverse_of_head(v, b.args.norm_eps);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] *= scale * f.norm[i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) rotate(v[i], v[i + 2], b.rope()[lane + 32 * i]);
  }
  const bool is_query = head < p.heads_per_kv;
  __half *to = b.heads() + (is_query ? head : kHeads + head - p.heads_per_kv) * kDim + lane;
#pragma unroll
  for (int i = 0; i < 4; i++) to[32 * i] = __float2half_rn(v[i]);
  if (is_query || b.rank() != kAppender) return;
  const StepCall &c = b.args.call;
  __half *cache = (__half *)(head == p.heads_per_kv ? c.k : c.v) + lane + b.cache_row(b.vars().pos) * kDim;
#pragma unroll
  for (int i = 0; i < 4; i++) cache[32 * i] = __float2half_rn(v[i]);
}

/* The new key and value as a state: the maximum is the score, the sum is 1. For one warp. */
template <class B> __device__ __forceinline__ void attend_new(const B &b, int state) {
  const States to = warp_states(b);
  const int n_heads = b.plan.heads_per_kv;
  const __half *key = b.heads() + kHeads * kDim + 4 * b.lane();
  const uint2 k = *(const uint2 *)key, v = *(const uint2 *)(key + kDim);
#pragma unroll 1
  for (int head = 0; head < n_heads; head++) {
    const uint2 q = *(const uint2 *)(b.heads() + head * kDim + 4 * b.lane());
    const float s = warp_sum(f16_low(q.x) * f16_low(k.x) + f16_high(q.x) * f16_high(k.x) +
                             f16_low(q.y) * f16_low(k.y) + f16_high(q.y) * f16_high(k.y));
    *(uint2 *)(to.values + (state * n_heads + head) * kDim + 4 * b.lane()) = v;
    if (b.lane() == 0) to.weights[state * n_heads + head] = make_float2(s * b.args.scale_log2, 1);
  }
}

/* Attends to this block's keys. Returns how many states its warps left. */
template <class B> __device__ __forceinline__ int attend_keys(B &b) {
  const StepPlan &p = b.plan;
  /* The warp's first key; the other half of the stage is for the other warp of the pair. */
  int first = (b.rank() + (b.warp() >> 1) * STEP_BLOCKS) * STEP_KEYS + (b.warp() & 1) * 16;
  if (b.warp() < 2 * kWarpPairs && (first & -STEP_KEYS) < b.vars().pos) {
    OnlineSoftmax softmax;
    softmax.reset();
    RingCursor cursor = b.next();
    cursor.move(b.warp() >> 1, p.n_slots);
#pragma unroll 1
    for (; (first & -STEP_KEYS) < b.vars().pos; first += kWarpPairs * STEP_BLOCKS * STEP_KEYS) {
      const int n = min(16, b.vars().pos - first);
      b.wait_for_stage(cursor);
      const unsigned char *keys = b.stage(cursor) + (b.warp() & 1) * 16 * 256;
      const uint32_t empty = b.empty_at(cursor); /* two arrivals a warp: it expects four */
      if (n > 0) {
        float s[4], weights[4];
        OnlineSoftmax::score(b.heads(), keys, s, opaque(b.lane()));
        softmax.to_weights(s, weights, n, b.args.scale_log2, opaque(b.lane()));
        softmax.accumulate(keys + STEP_KEYS * 256, weights, n, opaque(b.lane()), [&] {
          __syncwarp();
          if (b.lane() < 2) barrier_arrive(empty);
        });
      } else if (b.lane() < 2) {
        barrier_arrive(empty);
      }
      cursor.move(kWarpPairs, p.n_slots);
    }
    softmax.store(warp_states(b), b.warp(), p.heads_per_kv, p.heads_per_kv, b.lane());
  }
  b.advance(b.vars().keys_run);
  const int n_states = 2 * min(kWarpPairs, key_stages(b.vars().pos, b.rank()));
  if (b.rank() != kAppender) return n_states;
  if (b.warp() == STEP_WARPS - 1) attend_new(b, n_states);
  return n_states + 1;
}

/* Merges the states of the block's warps, and sends the result to the cluster. A thread has eight
 * dimensions of a head, in as few warps as possible: more would slow these down. */
template <class B> __device__ __forceinline__ void send_states(B &b, int n_states) {
  const int n_heads = b.plan.heads_per_kv, item = b.thread();
  static_assert(STEP_MAX_SHARED_HEADS * kDim / 8 <= STEP_THREADS, "a thread has one");
  if (item >= n_heads * (kDim / 8)) return;
  const States from = warp_states(b), to = block_states(b);
  const int head = item >> 4, dim = (item & 15) * 8;
  const MergedState merged = merge_states(from, n_states, n_heads, head, dim);
#pragma unroll
  for (int peer = 0; peer < STEP_BLOCKS; peer++) {
    const uint32_t barrier = peer_address(&b.barriers().states, peer);
    send_16(peer_address(to.values + (b.rank() * n_heads + head) * kDim + dim, peer), merged.values, barrier);
    if (dim == 0) send_8(peer_address(to.weights + b.rank() * n_heads + head, peer), merged.weight, barrier);
  }
}

/* Waits for the states of the cluster's blocks, merges them, one warp a head, and quantises attention's
 * output into the area of q, k and v. Lane (g, t) has dimensions 16 g + 2 t, + 1, + 8 and + 9. */
template <class B> __device__ __forceinline__ void take_states(B &b) {
  b.wait_again(b.barriers().states, b.layer(), b.states_bytes(), STEP_AT_STATES);
  b.mark(STEP_MARK_STATES);
  const int head = b.warp(), lane = b.lane(), n_heads = b.plan.heads_per_kv;
  if (head < n_heads) {
    const States from = block_states(b);
    const __half *values = from.values + head * kDim + (lane >> 2) * 16 + (lane & 3) * 2;
    float2 weight[STEP_BLOCKS];
    uint32_t low[STEP_BLOCKS], high[STEP_BLOCKS];
#pragma unroll
    for (int i = 0; i < STEP_BLOCKS; i++) {
      weight[i] = from.weights[i * n_heads + head];
      low[i] = *(const uint32_t *)(values + i * n_heads * kDim);
      high[i] = *(const uint32_t *)(values + i * n_heads * kDim + 8);
    }
    float maximum = -INFINITY, total = 0, v[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < STEP_BLOCKS; i++) maximum = fmaxf(maximum, weight[i].x);
#pragma unroll
    for (int i = 0; i < STEP_BLOCKS; i++) { /* in the order of quantise_values() */
      const float factor = power_of_2(weight[i].x - maximum) * weight[i].y;
      total += factor;
      v[0] += factor * f16_low(low[i]), v[2] += factor * f16_high(low[i]);
      v[1] += factor * f16_low(high[i]), v[3] += factor * f16_high(high[i]);
    }
    const float over = __fdividef(1, total); /* not 0, since the new key is included */
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] *= over;
    store_group(v, b.value_planes() + head * kPlaneBytes + word_at(lane, STEP_GROUP), 64,
                b.value_scales() + head, lane);
  }
  b.mark(STEP_MARK_MERGED);
}

/* From the partial sums of qkv to the states of this block's keys, on their way to the cluster. */
template <class B> __device__ __forceinline__ void attend(B &b) {
  send_projections(b);
  const HeadFactors factors = head_factors(b);
  b.mark(STEP_MARK_QKV_SENT);
  b.wait_again(b.barriers().projections, b.layer(), b.projection_bytes(), STEP_AT_PROJECTIONS);
  b.mark(STEP_MARK_PROJECTIONS);
  make_head(b, factors);
  b.sync();
  b.mark(STEP_MARK_HEADS);
  const int n_states = attend_keys(b);
  b.mark_waited(MATRICES);
  b.sync();
  b.mark(STEP_MARK_KEYS);
  send_states(b, n_states);
  b.mark(STEP_MARK_STATES_SENT);
}

} // namespace step::one
