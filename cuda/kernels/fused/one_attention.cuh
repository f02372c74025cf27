/* one_attention.cuh - attention of one KV head by the eight blocks of a cluster, for one token.
 *
 *   a[h] = softmax(scale q[h] k) v,  h < heads_per_kv, over the `pos` positions in the cache and the new one
 *
 * Each block has all queries. Stages of kKeys positions go to the blocks in turn, stage i to rank i % 8, and
 * in a block to four sets of warps in turn, 16 keys a warp (attend.cuh).
 *
 * A block merges its warps' states, {maximum, sum, output in fp16}, and sends the result to the cluster. Each
 * block merges the eight results. The last block takes the new key and value as one more warp's state, and
 * also appends them to the cache. All orders are fixed.
 * READS  4 * pos * kDim bytes a cluster (latents: 2 * pos * kDim), or half as many and the scales if the
 *        cache has 8 bits. With a window only the stages that overlap the window are read. */
#pragma once

#include "cuda/kernels/fused/attend.cuh"
#include "cuda/kernels/fused/one_matmul.cuh"
#include "cuda/kernels/fused/one_residual.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace step::one {

constexpr int kHeads = STEP_MAX_SHARED_HEADS, kKeySets = STEP_KEY_SETS;
constexpr int kAppender = STEP_BLOCKS - 1; /* the block with the fewest keys has the new key */

template <class B> __device__ __forceinline__ States warp_states(const B &b) {
  const StepPlan &p = b.plan;
  __half *values = (__half *)b.x();
  return {values, (float2 *)(values + p.states * p.heads_per_kv * B::kStateDim)};
}

template <class B> __device__ __forceinline__ States block_states(const B &b) {
  __half *values = (__half *)(b.smem + b.plan.off.attention);
  return {values, (float2 *)(values + STEP_BLOCKS * b.plan.heads_per_kv * B::kStateDim)};
}

/* --- q, k and v */

/* Sends this block's 16 outputs of each pack to the cluster. */
template <class B> __device__ __forceinline__ void send_projections(B &b) {
  const StepPlan &p = b.plan;
  const Share &share = b.share(QKV);
  const int peer = b.lane() & 7;
#pragma unroll 1
  for (int item = b.thread() >> 3; item < 4 * (B::kHybrid || B::kLatent ? share.n_rows : p.qkv_packs);
       item += STEP_THREADS / 8) {
    const float4 v = four_rows(b, share, item * 4);
    const float *to = b.exchange() + (item >> 2) * STEP_PACK + b.rank() * 16 + (item & 3) * 4;
    send_16(peer_address(to, peer), bits_of(v), peer_address(&b.barriers().projections, peer));
  }
}

/* Bias and norm weights of the lane's four outputs of a pack, lane + 32 i. They are read while the outputs of
 * the matmul are under way. */
struct HeadFactors {
  float bias[4], norm[4];
};

template <class B> __device__ __forceinline__ HeadFactors head_factors(const B &b) {
  const Vectors vectors = b.vectors();
  constexpr int kOwn = B::kDim / 32; /* the lane's dimensions of a head */
  const int pack = b.warp(), queries = b.plan.heads_per_kv;
  HeadFactors f = {{0, 0, 0, 0}, {1, 1, 1, 1}};
  if (pack >= b.plan.qkv_packs) return f;
#pragma unroll
  for (int i = 0; i < B::kPackHeads; i++) {
    const int head = pack * B::kPackHeads + i;
    const float *bias = vectors.bias + head_of_qkv(b, head) * B::kDim + b.lane();
#pragma unroll
    for (int j = 0; j < kOwn; j++) {
      if (b.args.bias) f.bias[i * kOwn + j] = __ldg(bias + 32 * j);
      if (b.args.head_norms && head <= queries)
        f.norm[i * kOwn + j] = __ldg((head < queries ? vectors.q_norm : vectors.k_norm) + b.lane() + 32 * j);
    }
  }
  return f;
}

/* Normalises the heads of a pack. A lane has the pack's outputs lane + 32 i. */
template <class B>
__device__ __forceinline__ void norm_heads(const B &b, float (&v)[4], const float (&norm)[4]) {
  constexpr int kOwn = B::kDim / 32; /* the lane's dimensions of a head */
#pragma unroll
  for (int i = 0; i < 4; i += kOwn) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kOwn; j++) squares += v[i + j] * v[i + j];
    const float scale = inverse_of_squares<B::kDim>(warp_sum(squares), b.args.norm_eps);
#pragma unroll
    for (int j = 0; j < kOwn; j++) v[i + j] *= scale * norm[i + j];
  }
}

/* Rounds the new key, value or both of a pack to what a cache in 8 bits holds; one block appends them. */
template <class B> __device__ __forceinline__ void append_q8(const B &b, int pack, float (&v)[4]) {
  constexpr int kDim = B::kDim, kOwn = kDim / 32;
  const StepCall &c = b.args.call;
  const size_t row = b.new_cache_row();
#pragma unroll
  for (int i = 0; i < B::kPackHeads; i++) {
    const bool is_key = kDim == 128 ? pack == b.plan.o_packs : i == 0;
    float own[kOwn];
#pragma unroll
    for (int j = 0; j < kOwn; j++) own[j] = v[i * kOwn + j];
    store_q8(own, kDim, is_key, b.rank() == kAppender, (uint8_t *)(is_key ? c.k : c.v) + row * kDim,
             (__half *)(is_key ? c.k_scales : c.v_scales) + row * (is_key ? key_scales(kDim) : 1), b.lane());
#pragma unroll
    for (int j = 0; j < kOwn; j++) v[i * kOwn + j] = own[j];
  }
}

/* Applies norm and rope to the cluster's heads, one warp a pack. Queries, new key and new value go to shared
 * memory as halves, key and value also to the cache. */
template <class B> __device__ __forceinline__ void make_head(const B &b, const HeadFactors &f) {
  const StepPlan &p = b.plan;
  constexpr int kDim = B::kDim;
  const int pack = b.warp(), lane = b.lane();
  if (pack >= p.qkv_packs) return;
  const float *from = b.exchange() + pack * STEP_PACK + lane;
  float v[4]; /* rope rotates v[0] with v[2], v[1] with v[3]; in heads of 64 v[0] with v[1], v[2] with v[3] */
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = from[32 * i] * b.vars().inverse + f.bias[i];
  if (kDim == 128 ? pack <= p.o_packs : pack < p.o_packs) {
    if (b.args.head_norms) norm_heads(b, v, f.norm);
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (kDim == 128)
        rotate(v[i], v[i + 2], b.rope()[lane + 32 * i]);
      else
        rotate(v[2 * i], v[2 * i + 1], b.rope()[lane]);
  } else if (kDim == 64) { /* a key and a value */
    const float value[2] = {v[2], v[3]};
    if (b.args.head_norms) norm_heads(b, v, f.norm);
    rotate(v[0], v[1], b.rope()[lane]);
    v[2] = value[0], v[3] = value[1];
  }
  const bool is_query = pack < p.o_packs;
  if (!B::kQ8 && !is_query)
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = finite_value(v[i]);
  if (B::kQ8 && !is_query) append_q8(b, pack, v);
  __half *to = b.heads() + (is_query ? 0 : kHeads * kDim - p.o_packs * STEP_PACK) + pack * STEP_PACK + lane;
#pragma unroll
  for (int i = 0; i < 4; i++) to[32 * i] = __float2half_rn(v[i]);
  if (B::kQ8 || is_query || b.rank() != kAppender) return;
  const StepCall &c = b.args.call;
  const size_t at = lane + b.new_cache_row() * kDim;
#pragma unroll
  for (int i = 0; i < B::kPackHeads; i++) {
    const bool is_key = kDim == 128 ? pack == p.o_packs : i == 0;
    __half *cache = (__half *)(is_key ? c.k : c.v) + at;
#pragma unroll
    for (int j = 0; j < kDim / 32; j++) cache[32 * j] = __float2half_rn(v[i * (kDim / 32) + j]);
  }
}

/* Stores the new key and value as a state: the maximum is the score, the sum is 1. For one warp. */
template <class B> __device__ __forceinline__ void attend_new(const B &b, int state) {
  constexpr int kDim = B::kDim;
  static_assert(kDim <= 128, "hybrid/attention.cuh has its own");
  const States to = warp_states(b);
  const int n_heads = b.plan.heads_per_kv, dim = 4 * b.lane();
  const bool has = kDim == 128 || dim < kDim; /* this lane has four dimensions */
  const __half *key = b.heads() + kHeads * kDim + dim;
  const uint2 k = has ? *(const uint2 *)key : make_uint2(0, 0), v = *(const uint2 *)(key + (has ? kDim : 0));
#pragma unroll 1
  for (int head = 0; head < n_heads; head++) {
    const uint2 q = has ? *(const uint2 *)(b.heads() + head * kDim + dim) : make_uint2(0, 0);
    const float s = warp_sum(f16_low(q.x) * f16_low(k.x) + f16_high(q.x) * f16_high(k.x) +
                             f16_low(q.y) * f16_low(k.y) + f16_high(q.y) * f16_high(k.y));
    if (has) *(uint2 *)(to.values + (state * n_heads + head) * kDim + dim) = v;
    if (b.lane() == 0) to.weights[state * n_heads + head] = make_float2(s * b.args.scale_log2, 1);
  }
}

/* Latents: the scores of a warpgroup's 16 keys, for all its warps. Each warp multiplies some dimensions. */
template <class Softmax, class B>
__device__ __forceinline__ void score_latents(const B &b, const unsigned char *keys, float (&s)[4]) {
  constexpr int kSteps = B::kDim / 64;
  const int own = b.warp() & 3, lane = opaque(b.lane());
  Softmax::score_halves(b.heads(), keys, s, lane, (own * kSteps + 3) / 4 * 2,
                        ((own + 1) * kSteps + 3) / 4 * 2);
  float4 *all = (float4 *)b.exchange() + (b.warp() & ~3) * 32 + lane;
  sync_warpgroup(b.warp() >> 2); /* all warps have read the sums of the stage before */
  all[own * 32] = make_float4(s[0], s[1], s[2], s[3]);
  sync_warpgroup(b.warp() >> 2);
  s[0] = s[1] = s[2] = s[3] = 0;
#pragma unroll
  for (int i = 0; i < STEP_WARPGROUP_WARPS; i++) {
    const float4 part = all[i * 32];
    s[0] += part.x, s[1] += part.y, s[2] += part.z, s[3] += part.w;
  }
}

/* Attends to this block's keys. Returns how many softmax states its warps left. */
template <class B> __device__ __forceinline__ int attend_keys(B &b) {
  using Softmax = OnlineSoftmax<B::kDim, B::kQ8>;
  constexpr int kKeys = B::kKeys, kRow = Softmax::kRow, kHalves = B::kStateDim / Softmax::kValues,
                kStageStates = kKeys / 16, kStageWarps = kStageStates * kHalves,
                kArrivals = STEP_WARPGROUP_WARPS / kStageWarps, kLogWarps = kStageWarps == 4 ? 2 : 1;
  static_assert(kHalves == 1 || kStageStates == 1,
                "a set shares a stage by keys, or by dimensions of values");
  const StepPlan &p = b.plan;
  /* The warp's first key; other keys of the stage are for the other warps of the set. */
  int first =
      (b.rank() + (b.warp() >> kLogWarps) * STEP_BLOCKS) * kKeys + (b.warp() & (kStageStates - 1)) * 16;
  const int begin = B::kVaried ? b.first_position(b.vars().pos) : 0; /* the first key that is seen */
  if constexpr (B::kVaried) first += unseen_key_stages(b, b.vars().pos) * STEP_BLOCKS * kKeys;
  const int half = b.warp() & (kHalves - 1);
  if (b.warp() < kStageWarps * kKeySets && (first & -kKeys) < b.vars().pos) {
    Softmax softmax;
    softmax.reset();
    if constexpr (B::kQ8) softmax.take_queries(b.heads(), b.lane());
    RingCursor cursor = b.next();
    cursor.move(b.warp() >> kLogWarps, p.n_slots);
#pragma unroll 1
    for (; (first & -kKeys) < b.vars().pos; first += kKeySets * STEP_BLOCKS * kKeys) {
      const int n = min(16, b.vars().pos - first);
      b.wait_for_stage(cursor);
      const int key0 = (b.warp() & (kStageStates - 1)) * 16;
      const unsigned char *stage = b.stage(cursor), *keys = stage + key0 * kRow;
      const uint32_t empty = b.empty_at(cursor); /* it expects four arrivals */
      if (n > 0 && (!B::kVaried || first + n > begin)) {
        float s[4], weights[4];
        if constexpr (B::kLatent)
          score_latents<Softmax>(b, keys, s);
        else
          softmax.score(b.heads(), keys, Softmax::scales_of_keys(stage, key0), s, opaque(b.lane()));
        if constexpr (B::kVaried) {
#pragma unroll
          for (int i = 0; i < 4; i++)
            if (first + (b.lane() >> 2) + i / 2 * 8 < begin) s[i] = -INFINITY;
        }
        softmax.to_weights(s, weights, n, b.args.scale_log2, opaque(b.lane()));
        constexpr int kToValues = B::kLatent ? STEP_LATENT_ROPE * 2 : kKeys * kRow;
        softmax.accumulate(keys + kToValues + half * Softmax::kValues * 2,
                           Softmax::scales_of_values(stage, key0), weights, n, opaque(b.lane()), [&] {
                             __syncwarp();
                             if (b.lane() < kArrivals) barrier_arrive(empty);
                           });
      } else if (b.lane() < kArrivals) {
        barrier_arrive(empty);
      }
      cursor.move(kKeySets, p.n_slots);
    }
    States to = warp_states(b);
    if (half) to.values += (kHalves == 2 ? 1 : half) * Softmax::kValues, to.weights = NULL;
    softmax.store(to, b.warp() / kHalves, p.heads_per_kv, p.heads_per_kv, b.lane());
  }
  const int n_stages = seen_key_stages(b, b.vars().pos);
  b.advance(B::kVaried ? run_of(n_stages, p.n_slots) : b.vars().keys_run);
  const int n_states = kStageStates * min(kKeySets, n_stages);
  if (b.rank() != kAppender) return n_states;
  if (b.warp() == STEP_WARPS - 1) {
    if constexpr (B::kHybrid)
      attend_new_wide(b, n_states);
    else if constexpr (B::kLatent)
      attend_new_latent(b, n_states);
    else
      attend_new(b, n_states);
  }
  return n_states + 1;
}

/* Merges the states of the block's warps, and sends the result to the cluster. A thread has eight dimensions
 * of a head. As few warps as possible take part: more would slow each other down. */
template <class B> __device__ __forceinline__ void send_states(B &b, int n_states) {
  constexpr int kDim = B::kStateDim, kItems = kDim / 8; /* items of a head */
  const int n_heads = b.plan.heads_per_kv, item = b.thread();
  static_assert(STEP_MAX_SHARED_HEADS * kItems <= STEP_THREADS, "a thread has one");
  if (item >= n_heads * kItems) return;
  const States from = warp_states(b), to = block_states(b);
  const int head = item / kItems, dim = item % kItems * 8;
  const MergedState merged = merge_states<kDim>(from, n_states, n_heads, head, dim);
#pragma unroll
  for (int peer = 0; peer < STEP_BLOCKS; peer++) {
    const uint32_t barrier = peer_address(&b.barriers().states, peer);
    send_16(peer_address(to.values + (b.rank() * n_heads + head) * kDim + dim, peer), merged.values, barrier);
    if (dim == 0) send_8(peer_address(to.weights + b.rank() * n_heads + head, peer), merged.weight, barrier);
  }
}

/* Waits for the cluster's softmax states or, in layers of the delta rule, its outputs. */
template <class B> __device__ __forceinline__ void wait_for_states(const B &b) {
  if constexpr (B::kHybrid)
    b.wait_again(b.barriers().states, b.layers_with_heads(), b.states_bytes_from(b.layer() + 1),
                 STEP_AT_STATES);
  else
    b.wait_again(b.barriers().states, b.layer(), b.states_bytes(), STEP_AT_STATES);
}

/* Merges the states of the cluster's blocks into outputs of the warp's pack; in a hybrid also multiplies
 * these by their gates. Lane 4 g + t has outputs 16 g + 2 t, + 8, + 1 and + 9. sink: with varied experts the
 * attention sink of the lane's head, times log2(e). */
template <class B>
__device__ __forceinline__ void merge_blocks(const B &b, float (&v)[4], float sink = -INFINITY) {
  constexpr int kDim = B::kDim;
  const int pack = b.warp(), lane = b.lane(), n_heads = b.plan.heads_per_kv;
  const States from = block_states(b);
  const int head = B::kHybrid ? pack / 2 : pack * B::kPackHeads + (kDim == 64 ? lane >> 4 : 0);
  const __half *values = from.values + pack * STEP_PACK + (lane >> 2) * 16 + (lane & 3) * 2;
  float2 weight[STEP_BLOCKS];
  uint32_t low[STEP_BLOCKS], high[STEP_BLOCKS];
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i++) {
    weight[i] = from.weights[i * n_heads + head];
    low[i] = *(const uint32_t *)(values + i * n_heads * kDim);
    high[i] = *(const uint32_t *)(values + i * n_heads * kDim + 8);
  }
  float maximum = -INFINITY, total = 0;
  v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i++) maximum = fmaxf(maximum, weight[i].x);
  if constexpr (B::kVaried) maximum = fmaxf(maximum, sink), total = power_of_2(sink - maximum);
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
  if constexpr (B::kHybrid) multiply_gates(b, pack, v);
}

/* With experts: keeps a group of 128 outputs for the folded router. Lane 4 g + t has outputs 16 g + 2 t, + 8,
 * + 1 and + 9. */
template <class B> __device__ __forceinline__ void keep_outputs(const B &b, int group, const float (&v)[4]) {
  if constexpr (B::kExperts) {
    float *to = b.outputs() + group * STEP_PACK + (b.lane() >> 2) * 16 + (b.lane() & 3) * 2;
    *(float2 *)to = make_float2(v[0], v[2]), *(float2 *)(to + 8) = make_float2(v[1], v[3]);
  }
}

/* Waits for the states of the cluster's blocks, and quantises attention's output, one warp a pack, into the
 * area of q, k and v. */
template <class B> __device__ __forceinline__ void take_states(B &b) {
  float sink = -INFINITY;
  if constexpr (B::kVaried) { /* read while states are under way */
    const int head = min(b.warp() * B::kPackHeads + (b.lane() >> 4), b.plan.heads_per_kv - 1);
    sink = __ldg(b.sinks() + b.cluster() * b.plan.heads_per_kv + head) * 1.44269504f;
  }
  wait_for_states(b);
  b.mark(STEP_MARK_STATES);
  const int pack = b.warp(), lane = b.lane();
  if constexpr (kIsInt8<B::kParts>) {
    float v[4] = {};
    if (pack < b.plan.o_packs) merge_blocks(b, v);
    const float scale = int8_scale(b, O, magnitude_bits(v), 1);
    if (pack < b.plan.o_packs) store_int8(v, 1, scale, b.value_planes() + pack * kPlaneBytes, lane);
    if (b.thread() == 0) b.value_scales()->x = scale;
  } else if (pack < b.plan.o_packs) {
    float v[4];
    merge_blocks(b, v, sink);
    keep_outputs(b, pack, v);
    store_group<B::kParts>(v, b.value_planes() + pack * kPlaneBytes + word_at<B::kParts>(lane, STEP_GROUP),
                           64, b.value_scales() + pack * kXScales<B::kParts>, 1, lane);
  }
  b.mark(STEP_MARK_MERGED);
}

/* Waits for the cluster's q, k and v, attends to this block's keys, and sends the states to the cluster. */
template <class B> __device__ __forceinline__ void attend(B &b) {
  const HeadFactors factors = head_factors(b);
  b.mark(STEP_MARK_QKV_SENT);
  b.wait_again(b.barriers().projections, b.layer(), b.projection_bytes(), STEP_AT_PROJECTIONS);
  b.mark(STEP_MARK_PROJECTIONS);
  make_head(b, factors);
  b.sync();
  attend_with_heads(b);
}

} // namespace step::one
