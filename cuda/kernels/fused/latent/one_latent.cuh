/* one_latent.cuh - latent attention (LatentConfig) in a step of one token.
 *
 *     c, k = qkv x        c: the queries' latent; k: the new row of the cache, | rotated part | latent |
 *     q[h] = q_b[h] c     | part without a rope | part with a rope |
 *     q'[h] = | rotated part of q[h] | key_halves[h] times the rest |
 *     a[h] = softmax(scale q'[h] k) latents,  o reads value_halves[h] a[h]
 *
 * A cluster that attends has some of the heads. Each of its blocks computes an eighth of each matrix's
 * outputs, over all inputs, and sends them to the cluster. So between norm and o a layer has five exchanges
 * within the cluster and none between clusters:
 *
 *     qkv  ─► latents: norms, rope; a warp quantises 128 numbers of c    (each cluster makes the same)
 *     q_b  ─► queries: rope
 *     key_halves ─► queries in halves, in the cluster's heads()
 *     keys: block r has stages r, r + 8, ...; 16 positions for a warpgroup  ─► softmax states
 *     value_halves ─► x of o
 *
 * key_halves and value_halves are fp16, rows of a head's matrix by its inputs. Tensor cores multiply them by
 * x as the sum of two halves. One cluster appends the new row. */
#pragma once

#include "cuda/kernels/fused/one_attention.cuh"

namespace step::one {

/* Applies the rope to the lane's pair of numbers of a part: 2 l and 2 l + 1, or l and l + 32. number(i)
 * returns number i of the part. */
template <class B, class Number>
__device__ __forceinline__ void rotate_pair(const B &b, __half *to, Number number) {
  const bool neighbours = b.args.latent.neighbours;
  const int low = neighbours ? 2 * b.lane() : b.lane(), high = low + (neighbours ? 1 : STEP_LATENT_ROPE / 2);
  float first = number(low), second = number(high);
  rotate(first, second, b.rope()[b.lane()]);
  to[low] = __float2half_rn(first), to[high] = __float2half_rn(second);
}

/* Waits for the outputs of q_a and kv_a. A warp normalises a group of 128 numbers: the queries' latent
 * becomes x of q_b; the new row's latent, which the last four warps have, becomes halves. The warp before
 * these rotates the row's first part. Weights are read while the outputs are under way. */
template <class B> __device__ __forceinline__ void take_latents(B &b) {
  constexpr int kRowWarps = STEP_LATENT / STEP_GROUP;
  const int rank = b.plan.shape.q_rank, warp = b.warp(), group = warp - (STEP_WARPS - kRowWarps);
  const bool of_query = warp < rank / STEP_GROUP, any = of_query || group >= 0;
  const int at = (of_query ? warp * STEP_GROUP : rank + max(group, 0) * STEP_GROUP) + input_of_lane(b);
  const float *weights = b.vectors().q_norm + at, *from = b.exchange();
  float2 low_weight = {0, 0}, high_weight = {0, 0};
  if (any) low_weight = __ldg((const float2 *)weights), high_weight = __ldg((const float2 *)weights + 4);
  b.wait_again(b.barriers().projections, b.layer(), b.projection_bytes(), STEP_AT_PROJECTIONS);
  b.mark(STEP_MARK_PROJECTIONS);
  const float inverse = b.vars().inverse;
  const bool appends = b.cluster() == 0 && b.rank() == kAppender;
  __half *row = b.heads() + kHeads * STEP_LATENT_HEAD,
         *cache = (__half *)b.args.call.k + b.new_cache_row() * STEP_LATENT_HEAD;
  if (!any) {
    if (group < -1) return;
    rotate_pair(b, row, [&](int i) { return from[rank + STEP_LATENT + i] * inverse; });
    __syncwarp();
    if (appends && b.lane() < STEP_LATENT_ROPE / 8)
      ((uint4 *)cache)[b.lane()] = ((const uint4 *)row)[b.lane()];
    return;
  }
  const float *latent = from + (of_query ? 0 : rank);
  const int n = of_query ? rank : (int)STEP_LATENT;
  float squares = 0;
#pragma unroll 2
  for (int i = 4 * b.lane(); i < n; i += 128) {
    const float4 v = *(const float4 *)(latent + i);
    squares += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  /* The latent is its matmul's output times `inverse`, 1 / rms of x. */
  const float mean = __fdividef(warp_sum(squares), small_float(n)) * (inverse * inverse),
              scale = inverse * rsqrtf(mean + (float)LATENT_EPS);
  const float2 low = *(const float2 *)(from + at), high = *(const float2 *)(from + at + 8);
  const float v[4] = {low.x * low_weight.x * scale, high.x * high_weight.x * scale,
                      low.y * low_weight.y * scale, high.y * high_weight.y * scale};
  if (of_query) {
    store_group<B::kParts>(v, b.planes() + warp * kPlaneBytes + word_at<B::kParts>(b.lane(), STEP_GROUP), 64,
                           b.scales() + warp * kXScales<B::kParts>, 1, b.lane());
    return;
  }
  const int to = STEP_LATENT_ROPE + at - rank;
  const uint32_t first = pack_half2(v[0], v[2]), second = pack_half2(v[1], v[3]);
  *(uint32_t *)(row + to) = first, *(uint32_t *)(row + to + 8) = second;
  if (appends) *(uint32_t *)(cache + to) = first, *(uint32_t *)(cache + to + 8) = second;
}

/* v and w, each as the sum of two halves, the nearest one (x) and the rest (y): exact to 22 bits. */
__device__ __forceinline__ uint2 two_halves(float v, float w) {
  const uint32_t near = pack_half2(v, w);
  return make_uint2(near, pack_half2(v - f16_low(near), w - f16_high(near)));
}

/* Sends the block's outputs of q_b to the cluster, four numbers as four nearest halves and four rests. */
template <class B> __device__ __forceinline__ void send_queries(const B &b) {
  const Share &share = b.share(Q_B);
  const int peer = b.lane() & 7;
#pragma unroll 1
  for (int item = b.thread() >> 3; item < 4 * share.n_rows; item += STEP_THREADS / 8) {
    const float *to = b.queries() + (item >> 2) * STEP_PACK + b.rank() * 16 + (item & 3) * 4;
    const float4 v = four_rows(b, share, item * 4);
    const uint2 low = two_halves(v.x, v.y), high = two_halves(v.z, v.w);
    send_16(peer_address(to, peer), make_uint4(low.x, high.x, low.y, high.y),
            peer_address(&b.barriers().squares[0], peer));
  }
}

/* Multiplies 16 rows from `rows` on by x, in inputs 32 begin .. 32 end - 1. Columns 0 and 1 of the mma are
 * x's nearest halves and rests (more columns repeat them): lane 4 g gets the products of rows g and g + 8.
 * eight(v): x's numbers 8 v to 8 v + 7 as nearest halves or as rests, whichever the lane's column has. */
template <class Eight>
__device__ __forceinline__ float2 multiply_tile(const unsigned char *rows, int row_bytes, int begin, int end,
                                                int lane, Eight eight) {
  float sums[2][4] = {};
  rows += (lane >> 2) * row_bytes + (lane & 3) * 16;
#pragma unroll 2
  for (int i = begin; i < end; i++) {
    const uint4 low = *(const uint4 *)(rows + i * 64), high = *(const uint4 *)(rows + 8 * row_bytes + i * 64),
                x = eight(4 * i + (lane & 3));
    const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
    mma_f16_m16n8k16(sums[0], first, x.x, x.y);
    mma_f16_m16n8k16(sums[1], second, x.z, x.w);
  }
  return make_float2((sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]),
                     (sums[0][2] + sums[0][3]) + (sums[1][2] + sums[1][3]));
}

/* Goes through the warpgroup's stages; a stage has some rows of one of the cluster's heads. All four warps
 * call product(head, stage, warp); warp: the number in the warpgroup. Then one warp calls send(head, row,
 * sums); row: the index of the stage's first row among the block's n_rows rows of that head. product()
 * returns the lane's result of multiply_tile() for the stage's rows from 16 * (warp % kTiles) on. sums:
 * [warps of the warpgroup][16 rows]. scratch: two buffers of each warpgroup, in turn. */
template <int kTiles, class B, class Product, class Send>
__device__ __forceinline__ void for_stages_of_heads(B &b, float *scratch, int n_rows, Product product,
                                                    Send send) {
  constexpr int kRows = 16 * kTiles, kFloats = 16 * STEP_WARPGROUP_WARPS;
  const int of_head = n_rows / kRows, n = b.plan.heads_per_kv * of_head, warpgroup = b.warp() >> 2,
            own = b.warp() & 3;
  scratch += 2 * warpgroup * kFloats;
  RingCursor cursor = b.next();
  cursor.move(warpgroup, b.plan.n_slots);
#pragma unroll 1
  for (int i = warpgroup; i < n; i += STEP_WARPGROUPS) {
    const int head = i / of_head, row = (i - head * of_head) * kRows;
    b.wait_for_stage(cursor);
    const float2 sums = product(head, b.stage(cursor), own);
    float *to = scratch + own * 16 + (b.lane() >> 2);
    if (b.lane() % 4 == 0) to[0] = sums.x, to[8] = sums.y;
    __syncwarp();
    barrier_arrive_after_reads(b.empty_at(cursor), b.lane() == 0, __float_as_uint(sums.x + sums.y));
    sync_warpgroup(warpgroup);
    if (own == 0) send(head, row, scratch);
    scratch += i / STEP_WARPGROUPS % 2 ? -kFloats : kFloats;
    cursor.move(STEP_WARPGROUPS, b.plan.n_slots);
  }
  b.advance(run_of(n, b.plan.n_slots));
}

/* Multiplies the parts of queries without a rope by key_halves, and sends the block's outputs to the cluster.
 * Warps 0 and 2 of a warpgroup share the stage's first 16 rows, 1 and 3 the others. */
template <class B> __device__ __forceinline__ void multiply_keys(B &b) {
  constexpr int kOwn = STEP_LATENT / STEP_BLOCKS;
  const int nope = b.plan.shape.nope_dim, query = step_latent_query(&b.plan.shape), steps = nope / 32,
            lane = b.lane();
  for_stages_of_heads<STEP_LATENT_KEYS / 16>(
      b, b.x(), kOwn,
      [&](int head, const unsigned char *stage, int warp) {
        const unsigned char *x = (const unsigned char *)(b.queries() + head * query) + (lane >> 2 & 1) * 8;
        return multiply_tile(stage + (warp & 1) * 16 * nope * 2, nope * 2, warp < 2 ? 0 : steps / 2,
                             warp < 2 ? steps / 2 : steps, lane, [&](int i) {
                               const uint2 low = *(const uint2 *)(x + i * 32),
                                           high = *(const uint2 *)(x + i * 32 + 16);
                               return make_uint4(low.x, low.y, high.x, high.y);
                             });
      },
      [&](int head, int row, const float *sums) { /* a lane sends eight numbers to one peer */
                                                  const int at = 8 * (lane & 3), peer = lane >> 2;
                                                  const float4 a = *(const float4 *)(sums + at),
                                                               c = *(const float4 *)(sums + at + 4),
                                                               d = *(const float4 *)(sums + 32 + at),
                                                               e = *(const float4 *)(sums + 36 + at);
                                                  const __half *to = b.heads() + head * STEP_LATENT_HEAD +
                                                                     STEP_LATENT_ROPE + b.rank() * kOwn +
                                                                     row + at;
                                                  send_16(peer_address(to, peer),
                                                          make_uint4(pack_half2(a.x + d.x, a.y + d.y),
                                                                     pack_half2(a.z + d.z, a.w + d.w),
                                                                     pack_half2(c.x + e.x, c.y + e.y),
                                                                     pack_half2(c.z + e.z, c.w + e.w)),
                                                          peer_address(&b.barriers().squares[1], peer));
      });
}

/* attend_new() (one_attention.cuh) of latents. */
template <class B> __device__ __forceinline__ void attend_new_latent(const B &b, int state) {
  constexpr int kVectors = STEP_LATENT_HEAD / 8, kFirst = STEP_LATENT_ROPE / 8;
  const States to = warp_states(b);
  const int n_heads = b.plan.heads_per_kv;
  const uint4 *key = (const uint4 *)(b.heads() + kHeads * STEP_LATENT_HEAD);
  const auto dot = [](uint32_t x, uint32_t y) { return f16_low(x) * f16_low(y) + f16_high(x) * f16_high(y); };
#pragma unroll 1
  for (int head = 0; head < n_heads; head++) {
    const uint4 *query = (const uint4 *)(b.heads() + head * STEP_LATENT_HEAD);
    uint4 *values = (uint4 *)(to.values + (state * n_heads + head) * STEP_LATENT);
    float s = 0;
#pragma unroll 1
    for (int i = b.lane(); i < kVectors; i += 32) {
      const uint4 k = key[i], q = query[i];
      s += (dot(q.x, k.x) + dot(q.y, k.y)) + (dot(q.z, k.z) + dot(q.w, k.w));
      if (i >= kFirst) values[i - kFirst] = k;
    }
    s = warp_sum(s);
    if (b.lane() == 0) to.weights[state * n_heads + head] = make_float2(s * b.args.scale_log2, 1);
  }
}

/* Waits for the softmax states of the cluster's blocks, and merges them: x of value_halves as [head][nearest
 * halves, rests][512]. This x takes the area of the warps' states, which have been sent. */
template <class B> __device__ __forceinline__ void merge_latents(B &b) {
  wait_for_states(b);
  b.mark(STEP_MARK_STATES);
  const States from = block_states(b);
  const int n_heads = b.plan.heads_per_kv;
#pragma unroll 1
  for (int i = 2 * b.thread(); i < n_heads * STEP_LATENT; i += 2 * STEP_THREADS) {
    const int head = i / STEP_LATENT;
    float2 weight[STEP_BLOCKS];
    uint32_t values[STEP_BLOCKS];
#pragma unroll
    for (int block = 0; block < STEP_BLOCKS; block++) {
      weight[block] = from.weights[block * n_heads + head];
      values[block] = *(const uint32_t *)(from.values + block * n_heads * STEP_LATENT + i);
    }
    float maximum = -INFINITY, total = 0;
    float2 sum = {0, 0};
#pragma unroll
    for (int block = 0; block < STEP_BLOCKS; block++) maximum = fmaxf(maximum, weight[block].x);
#pragma unroll
    for (int block = 0; block < STEP_BLOCKS; block++) {
      const float factor = power_of_2(weight[block].x - maximum) * weight[block].y;
      total += factor;
      sum.x += factor * f16_low(values[block]), sum.y += factor * f16_high(values[block]);
    }
    const float over = __fdividef(1, total); /* not 0, since the new row is included */
    const uint2 words = two_halves(sum.x * over, sum.y * over);
    uint32_t *to = (uint32_t *)b.x() + (i + head * STEP_LATENT) / 2;
    to[0] = words.x, to[STEP_LATENT / 2] = words.y;
  }
  b.mark(STEP_MARK_MERGED);
}

/* Multiplies attention's output by value_halves, and sends the block's outputs to the cluster. A warp takes a
 * quarter of the inputs of a stage's 16 rows. */
template <class B> __device__ __forceinline__ void multiply_values(B &b) {
  constexpr int kSteps = STEP_LATENT / 32 / STEP_WARPGROUP_WARPS;
  const int value_dim = b.plan.shape.value_dim, own_rows = value_dim / STEP_BLOCKS, lane = b.lane();
  for_stages_of_heads<STEP_LATENT_VALUES / 16>(
      b, b.x() + b.plan.heads_per_kv * STEP_LATENT, own_rows,
      [&](int head, const unsigned char *stage, int warp) {
        const uint4 *x = (const uint4 *)(b.x() + head * STEP_LATENT) + (lane >> 2 & 1) * (STEP_LATENT / 8);
        return multiply_tile(stage, STEP_LATENT * 2, warp * kSteps, (warp + 1) * kSteps, lane,
                             [&](int i) { return x[i]; });
      },
      [&](int head, int row, const float *sums) { /* a lane sends four numbers to one peer */
                                                  const int at = 4 * (lane & 3), peer = lane >> 2;
                                                  float4 v = *(const float4 *)(sums + at);
#pragma unroll
                                                  for (int i = 1; i < STEP_WARPGROUP_WARPS; i++) {
                                                    const float4 more = *(const float4 *)(sums + 16 * i + at);
                                                    v.x += more.x, v.y += more.y, v.z += more.z,
                                                        v.w += more.w;
                                                  }
                                                  const float *to = b.outputs() + head * value_dim +
                                                                    b.rank() * own_rows + row + at;
                                                  send_16(peer_address(to, peer), bits_of(v),
                                                          peer_address(&b.barriers().values, peer));
      });
}

/* Sends the block's outputs of q_b, then computes attention and the block's outputs of value_halves. */
template <class B> __device__ __forceinline__ void attend_latents(B &b) {
  const int query = step_latent_query(&b.plan.shape), head = b.warp() - (STEP_WARPS - kHeads);
  send_queries(b);
  b.wait_again(b.barriers().squares[0], b.layer(), b.queries_bytes(), STEP_AT_PROJECTIONS);
  if (head >= 0 && head < b.plan.heads_per_kv) {
    const __half *from = (const __half *)(b.queries() + head * query + b.plan.shape.nope_dim);
    rotate_pair(b, b.heads() + head * STEP_LATENT_HEAD, [&](int i) {
      const __half *own = from + i / 4 * 8 + i % 4;
      return __half2float(own[0]) + __half2float(own[4]);
    });
  }
  multiply_keys(b);
  b.wait_again(b.barriers().squares[1], b.layer(), b.latent_keys_bytes(), STEP_AT_PROJECTIONS);
  b.sync(); /* waits for the rotated parts */
  attend_with_heads(b);
  merge_latents(b);
  b.sync();
  multiply_values(b);
}

/* Waits for x of o, and quantises it, a group a warp. */
template <class B> __device__ __forceinline__ void take_values(B &b) {
  b.wait_again(b.barriers().values, b.layer(), b.latent_values_bytes(), STEP_AT_STATES);
  const int group = b.warp();
  if (group >= b.plan.o_packs) return;
  const float *from = b.outputs() + group * STEP_PACK + input_of_lane(b);
  const float2 low = *(const float2 *)from, high = *(const float2 *)(from + 8);
  const float v[4] = {low.x, high.x, low.y, high.y};
  store_group<B::kParts>(v, b.value_planes() + group * kPlaneBytes + word_at<B::kParts>(b.lane(), STEP_GROUP),
                         64, b.value_scales() + group * kXScales<B::kParts>, 1, b.lane());
}

} // namespace step::one
