/* step_attention.cuh - one KV head's attention by the eight blocks of a cluster.
 *
 *   a[h] = softmax(scale q[h] k) v,  h < heads_per_kv, over the cache's `pos` positions and the new one
 *
 * Each block has all queries. Positions come in pieces of 32, piece i to the block of rank i % 8, in a block
 * to two warps in turn, 16 keys each; tensor cores take the query heads as columns:
 *     S^T [16 keys x 8 heads] = K [16 x 128] Q^T      O^T [16 dims x 8] += V^T [16 x 16 keys] P^T [16 x 8]
 * K and V lie in the ring as in the cache, rows of 256 bytes without padding. Any order of the 128 dimensions
 * serves a product over them, so lane (g, t) takes whole 16 bytes, chunks 4 s + t of row g, which are operand
 * a of steps 2 s and 2 s + 1; odd rows take their chunks in another order, so that no two lanes meet in a
 * bank. Of V the lane takes chunks 2 g and 2 g + 1 of keys 2t, 2t + 1, 2t + 8, 2t + 9, and dimension j of
 * each is rows g and g + 8 of product j.
 *
 * What a warp made of its keys, {maximum, sum, values over their sum in fp16}, the block adds up and gives to
 * all blocks of the cluster, each of which adds up the eight. The new key and value count as one more warp's
 * of the last block, which also puts them into the cache. All orders are fixed. READS  2 * pos * 256 bytes a
 * cluster. */
#ifndef AUK_CUDA_STEP_ATTENTION_CUH
#define AUK_CUDA_STEP_ATTENTION_CUH

#include "cuda/attention_ptx.cuh"
#include "cuda/step_sums.cuh"

namespace step {

constexpr int kDim = STEP_HEAD_DIM, kHeads = STEP_MAX_SHARED_HEADS, kPairs = STEP_PAIRS;
constexpr int kAppender = STEP_BLOCKS - 1; /* the block with the fewest keys has the new one */

/* A state of attention for each query head of the KV head. */
struct States {
  __half *values;  /* [n][heads][128] */
  float2 *weights; /* [n][heads] {maximum of log2 scores, sum of their powers of 2} */
};

template <bool kDebug> __device__ __forceinline__ States warp_states(const Block<kDebug> &b) {
  const StepPlan &p = b.args().plan;
  __half *values = (__half *)b.x();
  return {values, (float2 *)(values + p.states * p.heads_per_kv * kDim)};
}

template <bool kDebug> __device__ __forceinline__ States block_states(const Block<kDebug> &b) {
  __half *values = (__half *)(b.state + b.args().plan.at.attention);
  return {values, (float2 *)(values + STEP_BLOCKS * b.args().plan.heads_per_kv * kDim)};
}

__device__ __forceinline__ int projection_bytes(const StepPlan &p) {
  return (p.heads_per_kv + 2) * kDim * 4;
}

__device__ __forceinline__ int states_bytes(const StepPlan &p) {
  return STEP_BLOCKS * p.heads_per_kv * (kDim * 2 + 8);
}

/* --- q, k and v */

/* Gives the cluster's blocks this block's 16 rows of each head. */
template <bool kDebug> __device__ __forceinline__ void send_projections(Block<kDebug> &b, const float *bias) {
  const float inverse = inverse_of_x(b);
  const StepPlan &p = b.args().plan;
  const Share &share = b.share(QKV);
  const int peer = b.lane() & 7;
#pragma unroll 1
  for (int item = b.thread() >> 3; item < 4 * (p.heads_per_kv + 2); item += STEP_THREADS / 8) {
    const int head = item >> 2, row = b.rank() * 16 + (item & 3) * 4;
    float4 add = make_float4(0, 0, 0, 0);
    if (bias) add = __ldg((const float4 *)(bias + tile_row(share, head) * 16 + (item & 3) * 4));
    float4 v = four_rows(b, share, item * 4);
    v.x = v.x * inverse + add.x, v.y = v.y * inverse + add.y;
    v.z = v.z * inverse + add.z, v.w = v.w * inverse + add.w;
    const float *to = b.exchange() + head * kDim + row;
    send_16(peer_address(to, peer), bits_of(v), peer_address(&b.barriers()->projections, peer));
  }
}

/* Norm and rope of the cluster's heads, a warp each: queries and the new key and value as halves in shared
 * memory, the latter two also to the cache. `norm`: of this warp's head, NULL: none. */
template <bool kDebug>
__device__ __forceinline__ void make_head(const Block<kDebug> &b, const float (&weight)[4], bool has_norm) {
  const StepPlan &p = b.args().plan;
  const int head = b.warp(), lane = b.lane();
  if (head >= p.heads_per_kv + 2) return;
  const float *from = b.exchange() + head * kDim + lane;
  float v[4] = {from[0], from[32], from[64], from[96]}; /* pairs (lane, lane + 64), (lane + 32, lane + 96) */
  if (head <= p.heads_per_kv) {
    if (has_norm) {
      float squares = v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3];
#pragma unroll
      for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
      const float scale = rsqrtf(squares / kDim + b.args().norm_eps);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] *= scale * weight[i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float2 turn = b.rope()[lane + 32 * i];
      const float turned = v[i] * turn.x - v[i + 2] * turn.y;
      v[i + 2] = v[i + 2] * turn.x + v[i] * turn.y;
      v[i] = turned;
    }
  }
  const bool is_query = head < p.heads_per_kv;
  __half *to = b.heads() + (is_query ? head : kHeads + head - p.heads_per_kv) * kDim + lane;
#pragma unroll
  for (int i = 0; i < 4; i++) to[32 * i] = __float2half_rn(v[i]);
  if (is_query || b.rank() != kAppender) return;
  const StepCall &c = b.args().call;
  __half *cache = (__half *)(head == p.heads_per_kv ? c.k : c.v) + lane +
                  (((size_t)b.at.layer * p.shape.n_kv_heads + b.cluster()) * c.n_ctx + *c.pos) * kDim;
#pragma unroll
  for (int i = 0; i < 4; i++) cache[32 * i] = __float2half_rn(v[i]);
}

/* --- keys and values */

template <class Vector> __device__ __forceinline__ void swap_if(bool swap, Vector &a, Vector &b) {
  const Vector c = a;
  a = swap ? b : a;
  b = swap ? c : b;
}

/* A warp's running state: o[j][c] of dimension 16 g + j for heads 2 t and 2 t + 1 (c = 0, 1), and of 16 g + 8
 * + j (c = 2, 3); of the heads 2 t and 2 t + 1 the maximum, and this lane's part of the sum. */
struct Attending {
  float o[8][4], maximum[2], sum[2];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int j = 0; j < 8; j++) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0;
    maximum[0] = maximum[1] = -INFINITY, sum[0] = sum[1] = 0;
  }

  /* Scores of 16 keys: s[2 h + c] of key g + 8 h for head 2 t + c. Queries, too, come from shared memory: o
   * takes the registers. */
  static __device__ __forceinline__ void score(const __half *queries, const unsigned char *keys,
                                               float (&s)[4], int lane) {
    const int g = lane >> 2, t = lane & 3, odd = g & 1;
    float other[4] = {0, 0, 0, 0};
    s[0] = s[1] = s[2] = s[3] = 0;
#pragma unroll
    for (int i0 = 0; i0 < 4; i0 += 2) {
      uint4 row[2][2];
      loads_begin_here();
#pragma unroll
      for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
          row[h][i] = *(const uint4 *)(keys + (g + 8 * h) * 256 + (4 * (i0 + (i ^ odd)) + t) * 16);
        swap_if(odd, row[h][0], row[h][1]);
      }
#pragma unroll
      for (int i = 0; i < 2; i++) {
        loads_begin_here();
        const uint4 query = *(const uint4 *)(queries + g * kDim + (4 * (i0 + i) + t) * 8);
        const uint32_t a[4] = {row[0][i].x, row[1][i].x, row[0][i].y, row[1][i].y},
                       c[4] = {row[0][i].z, row[1][i].z, row[0][i].w, row[1][i].w};
        mma_f16_m16n8k16(s, a, query.x, query.y);
        mma_f16_m16n8k16(other, c, query.z, query.w);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] += other[i];
  }

  /* Scores of which n of 16 keys count become weights p, relative to the maximum so far, which o follows. */
  __device__ __forceinline__ void weigh(const float (&s)[4], float (&p)[4], int n, float scale_log2,
                                        int lane) {
    const int g = lane >> 2;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      p[c] = g < n ? s[c] * scale_log2 : -INFINITY;
      p[2 + c] = g + 8 < n ? s[2 + c] * scale_log2 : -INFINITY;
      float high = fmaxf(p[c], p[2 + c]);
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 4));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 8));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 16));
      const float now = fmaxf(maximum[c], high), keep = power_of_2(maximum[c] - now);
      p[c] = power_of_2(p[c] - now), p[2 + c] = power_of_2(p[2 + c] - now);
      maximum[c] = now;
      sum[c] = sum[c] * keep + p[c] + p[2 + c];
#pragma unroll
      for (int j = 0; j < 8; j++) o[j][c] *= keep, o[j][2 + c] *= keep;
    }
  }

  /* Adds the values of n of 16 keys, weighted; whatever lies in place of others does not count. Lane (g, t)
   * takes half of chunk 2 g + e of keys {2t, 2t + 1, 2t + 8, 2t + 9}[i] at once, `taken` when it has all. */
  template <class Taken>
  __device__ __forceinline__ void add(const unsigned char *values, const float (&p)[4], int n, int lane,
                                      Taken taken) {
    const int g = lane >> 2, t = lane & 3, odd = t & 1;
    const uint32_t low = transpose_matrix(pack_half2(p[0], p[1])),
                   high = transpose_matrix(pack_half2(p[2], p[3]));
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint2 value[4][2];
      loads_begin_here();
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int key = 2 * t + (i & 1) + (i & 2) * 4;
#pragma unroll
        for (int e = 0; e < 2; e++)
          value[i][e] = *(const uint2 *)(values + key * 256 + (2 * g + (e ^ odd)) * 16 + half * 8);
        swap_if(odd, value[i][0], value[i][1]);
        if (key >= n) value[i][0] = value[i][1] = make_uint2(0, 0);
      }
      if (half == 1) taken();
#pragma unroll
      for (int j = 0; j < 4; j++) { /* halves j % 2 of two keys, dimension 4 half + j of both chunks */
        uint32_t a[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const uint2 &one = value[e / 2 * 2][e % 2], &two = value[e / 2 * 2 + 1][e % 2];
          const uint32_t first = j / 2 ? one.y : one.x, second = j / 2 ? two.y : two.x;
          a[e] = j % 2 ? prmt<0x7632>(first, second) : prmt<0x5410>(first, second);
        }
        mma_f16_m16n8k16(o[4 * half + j], a, low, high);
      }
    }
  }

  __device__ __forceinline__ void store(const States &to, int warp, int n_heads, int lane) const {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float total = sum[c];
      total += __shfl_xor_sync(~0u, total, 4);
      total += __shfl_xor_sync(~0u, total, 8);
      total += __shfl_xor_sync(~0u, total, 16);
      const int head = 2 * t + c;
      if (head >= n_heads) continue;
      const float over = total > 0 ? __fdividef(1, total) : 0;
      uint4 v[2];
#pragma unroll
      for (int h = 0; h < 2; h++)
        v[h] = make_uint4(pack_half2(o[0][2 * h + c] * over, o[1][2 * h + c] * over),
                          pack_half2(o[2][2 * h + c] * over, o[3][2 * h + c] * over),
                          pack_half2(o[4][2 * h + c] * over, o[5][2 * h + c] * over),
                          pack_half2(o[6][2 * h + c] * over, o[7][2 * h + c] * over));
      uint4 *at = (uint4 *)(to.values + (warp * n_heads + head) * kDim + 16 * g);
      at[0] = v[0], at[1] = v[1];
      if (g == 0) to.weights[warp * n_heads + head] = make_float2(maximum[c], total);
    }
  }
};

/* The new key and value as a state: its score is the maximum, its weight 1. For one warp. */
template <bool kDebug> __device__ __forceinline__ void attend_new(const Block<kDebug> &b, int state) {
  const States to = warp_states(b);
  const int n_heads = b.args().plan.heads_per_kv;
  const __half *key = b.heads() + kHeads * kDim + 4 * b.lane();
  const uint2 k = *(const uint2 *)key, v = *(const uint2 *)(key + kDim);
#pragma unroll 1
  for (int head = 0; head < n_heads; head++) {
    const uint2 q = *(const uint2 *)(b.heads() + head * kDim + 4 * b.lane());
    float s = scale_low(q.x) * scale_low(k.x) + scale_high(q.x) * scale_high(k.x) +
              scale_low(q.y) * scale_low(k.y) + scale_high(q.y) * scale_high(k.y);
#pragma unroll
    for (int step = 16; step; step /= 2) s += __shfl_xor_sync(~0u, s, step);
    *(uint2 *)(to.values + (state * n_heads + head) * kDim + 4 * b.lane()) = v;
    if (b.lane() == 0) to.weights[state * n_heads + head] = make_float2(s * b.args().scale_log2, 1);
  }
}

/* How many pieces of the cache are the block's. */
__device__ __forceinline__ int key_pieces(int pos, int rank) {
  return ((pos + STEP_KEYS - 1) / STEP_KEYS - rank + STEP_BLOCKS - 1) / STEP_BLOCKS;
}

/* All keys of this block. Returns how many states its warps left. */
template <bool kDebug> __device__ __forceinline__ int attend(Block<kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const int pos = *b.args().call.pos;
  const int pieces = key_pieces(pos, b.rank()), pair = b.warp() >> 1, n_states = 2 * min(kPairs, pieces);
  if (pair < min(kPairs, pieces)) {
    Attending attending;
    attending.begin();
    RingAt at = b.next();
    at.move(pair, p.n_slots);
#pragma unroll 1
    for (int i = pair; i < pieces; i += kPairs) {
      const int first = (b.rank() + i * STEP_BLOCKS) * STEP_KEYS + (b.warp() & 1) * 16,
                n = min(16, pos - first);
      b.take_piece(at);
      const unsigned char *keys = b.slot(at.slot) + (b.warp() & 1) * 16 * 256;
      uint64_t *empty = &b.barriers()->empty[at.slot]; /* of two warps two arrivals each: a team's are four */
      if (n > 0) {
        float s[4], weights[4];
        Attending::score(b.heads(), keys, s, forgotten(b.lane()));
        attending.weigh(s, weights, n, b.args().scale_log2, forgotten(b.lane()));
        attending.add(keys + STEP_KEYS * 256, weights, n, forgotten(b.lane()), [&] {
          __syncwarp();
          if (b.lane() < 2) barrier_arrive(empty);
        });
      } else if (b.lane() < 2) {
        barrier_arrive(empty);
      }
      at.move(kPairs, p.n_slots);
    }
    attending.store(warp_states(b), b.warp(), p.heads_per_kv, b.lane());
  }
  b.advance(b.keys_run());
  if (b.rank() != kAppender) return n_states;
  if (b.warp() == STEP_WARPS - 1) attend_new(b, n_states);
  return n_states + 1;
}

/* Adds up n states of eight dimensions of a head, the same in any thread. */
__device__ __forceinline__ void add_states(const States &from, int n, int n_heads, int head, int dim,
                                           float (&v)[8], float2 &weight) {
  weight = make_float2(-INFINITY, 0);
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = 0;
#pragma unroll 4
  for (int s = 0; s < n; s++) weight.x = fmaxf(weight.x, from.weights[s * n_heads + head].x);
  const float shift = weight.x == -INFINITY ? 0 : weight.x;
#pragma unroll 4
  for (int s = 0; s < n; s++) {
    const float2 w = from.weights[s * n_heads + head];
    const float share = power_of_2(w.x - shift) * w.y;
    const uint4 o = *(const uint4 *)(from.values + (s * n_heads + head) * kDim + dim);
    weight.y += share;
    v[0] += share * scale_low(o.x), v[1] += share * scale_high(o.x);
    v[2] += share * scale_low(o.y), v[3] += share * scale_high(o.y);
    v[4] += share * scale_low(o.z), v[5] += share * scale_high(o.z);
    v[6] += share * scale_low(o.w), v[7] += share * scale_high(o.w);
  }
  const float over = weight.y > 0 ? __fdividef(1, weight.y) : 0;
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] *= over;
}

/* The block's warps' states as one, to all blocks of the cluster: 8 lanes have the same, one a peer. */
template <bool kDebug> __device__ __forceinline__ void send_states(Block<kDebug> &b, int n_states) {
  const int n_heads = b.args().plan.heads_per_kv, peer = b.lane() & 7;
  const States from = warp_states(b), to = block_states(b);
  const uint32_t barrier = peer_address(&b.barriers()->states, peer);
#pragma unroll 1
  for (int item = b.thread() >> 3; item < n_heads * (kDim / 8); item += STEP_THREADS / 8) {
    const int head = item >> 4, dim = (item & 15) * 8;
    float v[8];
    float2 weight;
    add_states(from, n_states, n_heads, head, dim, v, weight);
    const uint4 packed = make_uint4(pack_half2(v[0], v[1]), pack_half2(v[2], v[3]), pack_half2(v[4], v[5]),
                                    pack_half2(v[6], v[7]));
    send_16(peer_address(to.values + (b.rank() * n_heads + head) * kDim + dim, peer), packed, barrier);
    if (dim == 0)
      send_8(peer_address(to.weights + b.rank() * n_heads + head, peer),
             make_uint2(__float_as_uint(weight.x), __float_as_uint(weight.y)), barrier);
  }
}

/* The cluster's states as attention's values, float [heads][128] where q, k and v were. */
template <bool kDebug> __device__ __forceinline__ void merge_states(const Block<kDebug> &b) {
  const int n_heads = b.args().plan.heads_per_kv;
#pragma unroll 1
  for (int item = b.thread(); item < n_heads * (kDim / 8); item += STEP_THREADS) {
    const int head = item >> 4, dim = (item & 15) * 8;
    float v[8];
    float2 weight;
    add_states(block_states(b), STEP_BLOCKS, n_heads, head, dim, v, weight);
    float4 *to = (float4 *)(b.exchange() + head * kDim + dim);
    to[0] = make_float4(v[0], v[1], v[2], v[3]);
    to[1] = make_float4(v[4], v[5], v[6], v[7]);
  }
}

/* From the sums of qkv to attention's values. */
template <bool kDebug> __device__ __forceinline__ void attention(Block<kDebug> &b, const Layer &layer) {
  const StepPlan &p = b.args().plan;
  const float *norm = b.warp() < p.heads_per_kv ? layer.q_norm : layer.k_norm;
  const bool has_norm = norm && b.warp() <= p.heads_per_kv;
  float weight[4] = {1, 1, 1, 1};
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (has_norm) weight[i] = __ldg(norm + b.lane() + 32 * i);
  send_projections(b, layer.bias);
  b.mark(STEP_MARK_QKV_SENT);
  b.wait(&b.barriers()->projections, b.at.layer & 1, STEP_AT_PROJECTIONS);
  if (b.thread() == 0) barrier_expect(&b.barriers()->projections, projection_bytes(p));
  b.mark(STEP_MARK_PROJECTIONS);
  make_head(b, weight, has_norm);
  b.sync();
  b.mark(STEP_MARK_HEADS);
  const int n_states = attend(b);
  b.mark_waited(STEP_WAITED_KEYS);
  b.sync();
  b.mark(STEP_MARK_KEYS);
  send_states(b, n_states);
  b.mark(STEP_MARK_STATES_SENT);
  b.wait(&b.barriers()->states, b.at.layer & 1, STEP_AT_STATES);
  if (b.thread() == 0) barrier_expect(&b.barriers()->states, states_bytes(p));
  b.mark(STEP_MARK_STATES);
  merge_states(b);
  b.sync();
  b.mark(STEP_MARK_MERGED);
}

} // namespace step

#endif
