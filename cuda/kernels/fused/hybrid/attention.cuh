/* attention.cuh - parts of a hybrid's layers of attention, in a step of one token: heads of 256
 * (STEP_WIDE_HEAD) with norms, rope over their first 64 dimensions (STEP_ROTARY_DIM), and a gate for each
 * number of attention's output.
 *
 *   a[h] = softmax(scale q[h] k) v sigmoid(gate[h])
 *
 * A cluster has n query heads of one KV head (step_mix()). Its packs, two for each head, in the order of the
 * rows of q:
 *
 *     | q 0 (2) | gate 0 (2) | q 1 (2) | gate 1 (2) | ... | k (2) | v (2) |
 *
 * one_attention.cuh does the rest. Clusters with the same KV head store the same bits of key and value. */
#pragma once

#include "cuda/kernels/fused/one_attention.cuh"

namespace step::one {

constexpr int kWideOwn = STEP_WIDE_HEAD / 32; /* the lane's dimensions of a head: lane + 32 i */

/* The part of the projections that a warp makes. */
enum WideRole { WIDE_QUERY, WIDE_GATE, WIDE_KEY, WIDE_VALUE, WIDE_NONE };
struct WideHead {
  WideRole role;
  int head, pack; /* head: of a query or gate; pack: the head's first pack */
};

template <class B> __device__ __forceinline__ WideHead wide_head(const B &b) {
  const int n = b.mix().n, i = b.warp();
  if (i < n) return {WIDE_QUERY, i, 4 * i};
  if (i < 2 * n) return {WIDE_GATE, i - n, 4 * (i - n) + 2};
  if (i < 2 * n + 2) return {i == 2 * n ? WIDE_KEY : WIDE_VALUE, 0, 4 * n + 2 * (i - 2 * n)};
  return {WIDE_NONE, 0, 0};
}

/* Norm weights of the warp's head. They are read while the projections are under way. */
struct WideFactors {
  float norm[kWideOwn];
};

template <class B> __device__ __forceinline__ WideFactors wide_factors(const B &b) {
  const WideRole role = wide_head(b).role;
  const Vectors vectors = b.vectors();
  WideFactors f = {};
  if (role == WIDE_NONE) return f;
#pragma unroll
  for (int i = 0; i < kWideOwn; i++)
    f.norm[i] = __ldg((role == WIDE_KEY ? vectors.k_norm : vectors.q_norm) + b.lane() + 32 * i);
  return f;
}

/* Makes the cluster's heads (norm, rope, rounding), and the sigmoids of its gates. */
template <class B> __device__ __forceinline__ void make_wide_heads(const B &b, const WideFactors &f) {
  const WideHead own = wide_head(b);
  if (own.role == WIDE_NONE) return;
  const int lane = b.lane();
  const float *from = b.exchange() + own.pack * STEP_PACK + lane;
  float v[kWideOwn], squares = 0;
  const float inverse = b.vars().inverse;
#pragma unroll
  for (int i = 0; i < kWideOwn; i++) v[i] = from[32 * i] * inverse, squares += v[i] * v[i];
  if (own.role == WIDE_GATE) {
    float *to = b.gates() + own.head * STEP_WIDE_HEAD + lane;
#pragma unroll
    for (int i = 0; i < kWideOwn; i++) to[32 * i] = __fdividef(1, 1 + __expf(-v[i]));
    return;
  }
  if (own.role != WIDE_VALUE) {
    const float scale = inverse_of_squares<STEP_WIDE_HEAD>(warp_sum(squares), b.args.norm_eps);
#pragma unroll
    for (int i = 0; i < kWideOwn; i++) v[i] *= scale * f.norm[i];
    static_assert(STEP_ROTARY_DIM == 64, "a lane has both dimensions of its pair");
    rotate(v[0], v[1], b.rope()[lane]);
  }
  const bool is_key = own.role == WIDE_KEY;
  const int row = own.role == WIDE_QUERY ? own.head : is_key ? kHeads : kHeads + 1;
  __half *to = b.heads() + row * STEP_WIDE_HEAD + lane;
#pragma unroll
  for (int i = 0; i < kWideOwn; i++) to[32 * i] = __float2half_rn(v[i]);
  if (own.role == WIDE_QUERY || b.rank() != kAppender) return;
  const StepCall &c = b.args.call;
  __half *cache = (__half *)(is_key ? c.k : c.v) + b.new_cache_row() * STEP_WIDE_HEAD + lane;
#pragma unroll
  for (int i = 0; i < kWideOwn; i++) cache[32 * i] = __float2half_rn(v[i]);
}

/* attend_new() (one_attention.cuh) for heads of 256: a lane has eight dimensions. */
template <class B> __device__ __forceinline__ void attend_new_wide(const B &b, int state) {
  const States to = warp_states(b);
  const int n_heads = b.plan.heads_per_kv, dim = 8 * b.lane();
  const __half *key = b.heads() + kHeads * STEP_WIDE_HEAD + dim;
  const uint4 k = *(const uint4 *)key, v = *(const uint4 *)(key + STEP_WIDE_HEAD);
  const auto dot = [](uint32_t x, uint32_t y) { return f16_low(x) * f16_low(y) + f16_high(x) * f16_high(y); };
#pragma unroll 1
  for (int head = 0; head < n_heads; head++) {
    const uint4 q = *(const uint4 *)(b.heads() + head * STEP_WIDE_HEAD + dim);
    const float s = warp_sum((dot(q.x, k.x) + dot(q.y, k.y)) + (dot(q.z, k.z) + dot(q.w, k.w)));
    *(uint4 *)(to.values + (state * n_heads + head) * STEP_WIDE_HEAD + dim) = v;
    if (b.lane() == 0) to.weights[state * n_heads + head] = make_float2(s * b.args.scale_log2, 1);
  }
}

/* Lane 4 g + t multiplies a pack's outputs 16 g + 2 t + {0, 8, 1, 9} by their gates. */
template <class B> __device__ __forceinline__ void multiply_gates(const B &b, int pack, float (&v)[4]) {
  const float *from = b.gates() + pack * STEP_PACK + (b.lane() >> 2) * 16 + (b.lane() & 3) * 2;
  const float2 low = *(const float2 *)from, high = *(const float2 *)(from + 8);
  v[0] *= low.x, v[1] *= high.x, v[2] *= low.y, v[3] *= high.y;
}

template <class B> __device__ __forceinline__ void wait_for_projections(const B &b) {
  b.mark(STEP_MARK_QKV_SENT);
  b.wait_again(b.barriers().projections, b.layers_with_heads(), b.projection_bytes_from(b.layer() + 1),
               STEP_AT_PROJECTIONS);
  b.mark(STEP_MARK_PROJECTIONS);
}

/* attend() of a hybrid, after send_projections(). */
template <class B> __device__ __forceinline__ void attend_wide(B &b) {
  const WideFactors factors = wide_factors(b);
  wait_for_projections(b);
  make_wide_heads(b, factors);
  b.sync();
  attend_with_heads(b);
}

} // namespace step::one
