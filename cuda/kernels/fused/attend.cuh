/* attend.cuh - a warp's attention over keys and values in shared memory for eight queries of a KV head.
 * Tensor cores take the queries as columns:
 *
 *     S^T [16 keys x 8 heads] = K [16 x kDim] Q^T     O^T [16 dims x 8] += V^T [16 x 16 keys] P^T [16 x 8]
 *
 * K and V lie in the ring as in the KV cache, in rows of kDim halves without padding. A dot product may take
 * the dimensions in any order. So lane 4 g + t loads whole 16-byte vectors 4 s + t of row g: operand a of
 * steps 2 s and 2 s + 1. Odd rows load their vectors in another order, so that no two lanes meet in a bank.
 * From V the lane loads vectors 2 g and 2 g + 1 of keys 2t, 2t + 1, 2t + 8, 2t + 9. Dimension j of the two
 * vectors is rows g and g + 8 of mma j. With heads of 64 the lane has the two halves of vector g instead.
 *
 * With kQ8 K and V are rows of bytes, followed by the scales (cache/q8.cuh). A vector is 16 dimensions. Its
 * word w becomes operand a of an mma, times its scale in fp16. The lane has dimensions 8 g .. 8 g + 7 of each
 * 64 of V. All lanes load in the same order. */
#pragma once

#include "cuda/kernels/attention/online_softmax.cuh"
#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/fused/block.cuh"
#include "cuda/kernels/linear/layout.cuh"
#include "cuda/kernels/ops/elementwise.cuh"

namespace step {

/* Online-softmax states: attention's output over some of the keys, for each query. With kQ8 `maximum` may be
 * below the greatest score, by at most OnlineSoftmax::kSlack. */
struct States {
  __half *values;  /* [n][queries][dimensions of a value] */
  float2 *weights; /* [n][queries] {maximum of log2 scores, sum of 2^(score - maximum)} */
};

template <class Vector> __device__ __forceinline__ void swap_if(bool swap, Vector &a, Vector &b) {
  const Vector c = a;
  a = swap ? b : a;
  b = swap ? c : b;
}

/* A warp's online softmax. o[j][c] is dimension 16 g + j of heads 2 t and 2 t + 1 (c = 0, 1), then dimension
 * 16 g + 8 + j (c = 2, 3). With heads of 64 the dimensions are 8 g + j, then 8 g + 4 + j. With kQ8 they are
 * j / 4 * 64 + 8 g + j % 4 * 2, then the next dimension. maximum and sum belong to heads 2 t and 2 t + 1; the
 * sum is over this lane's keys. A stage has kKeys keys, as many values and, with kQ8, the scales of keys and
 * of values. With heads of 256, two warps compute the same scores, and each has the output of half of the
 * dimensions. With latents (plan.h), values are the last 512 dimensions of keys, and four warps have a
 * quarter each. kMasked: only some of the heads may attend to a key (`own`: bit 0 for head 2 t, bit 1 for
 * 2 t + 1). */
template <int kDim, bool kQ8, bool kMasked = false> struct OnlineSoftmax {
  static constexpr int kStateDim = kDim == STEP_LATENT_HEAD ? (int)STEP_LATENT : kDim;
  static constexpr int kRow = kDim * (kQ8 ? 1 : sizeof(__half)), kValues = kDim > 128 ? 128 : kDim,
                       kTiles = kValues / 16, kVector = kValues / 8, /* kVector: bytes of a vector of V */
      kKeys = kDim > 128 ? STEP_KEYS_256
              : kQ8      ? STEP_KEYS_Q8
                         : STEP_KEYS,
                       kKeyScales = 2 * kKeys * kRow,
                       kValueScales = kKeyScales + kKeys * key_scales(kDim) * KV_SCALE_BYTES;
  /* The maximum before any score: finite, so that -INFINITY minus it is not NaN. */
  static constexpr float kLowest = -1e30f;
  float o[kTiles][4], maximum[2], sum[2];
  uint4 query[kQ8 ? kDim / 32 : 1]; /* used only with kQ8 */

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int j = 0; j < kTiles; j++) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0;
    maximum[0] = maximum[1] = kLowest, sum[0] = sum[1] = 0;
  }

  /* With kQ8 the scales of a stage's keys, and of its values, from key0 on; else NULL. */
  static __device__ __forceinline__ const __half *scales_of_keys(const unsigned char *stage, int key0) {
    return kQ8 ? (const __half *)(stage + kKeyScales) + key0 * key_scales(kDim) : nullptr;
  }
  static __device__ __forceinline__ const __half *scales_of_values(const unsigned char *stage, int key0) {
    return kQ8 ? (const __half *)(stage + kValueScales) + key0 : nullptr;
  }

  /* Scores of 16 keys: s[2 h + c] is key g + 8 h for head 2 t + c. Queries are read from shared memory each
   * time, because o occupies the registers. With kQ8 queries stay in registers. */
  __device__ __forceinline__ void score(const __half *queries, const unsigned char *keys,
                                        const __half *scales, float (&s)[4], int lane) const {
    if constexpr (kQ8)
      score_q8(keys, scales, s, lane);
    else
      score_halves(queries, keys, s, lane);
  }

  /* Scores over dimensions 32 begin .. 32 end - 1, 64 at a time. */
  static __device__ __forceinline__ void score_halves(const __half *queries, const unsigned char *keys,
                                                      float (&s)[4], int lane, int begin = 0,
                                                      int end = kDim / 32) {
    const int g = lane >> 2, t = lane & 3, odd = g & 1;
    float other[4] = {0, 0, 0, 0};
    s[0] = s[1] = s[2] = s[3] = 0;
#pragma unroll
    for (int i0 = begin; i0 < end; i0 += 2) {
      uint4 row[2][2];
      compiler_fence();
#pragma unroll
      for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
          row[h][i] = *(const uint4 *)(keys + (g + 8 * h) * kRow + (4 * (i0 + (i ^ odd)) + t) * 16);
        swap_if(odd, row[h][0], row[h][1]);
      }
#pragma unroll
      for (int i = 0; i < 2; i++) {
        compiler_fence();
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

  /* With kQ8: reads the lane's part of the queries. */
  __device__ __forceinline__ void take_queries(const __half *queries, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < kDim / 32; i++)
      query[i] = *(const uint4 *)(queries + g * kDim + (4 * (i / 2) + t) * 16 + i % 2 * 8);
  }

  /* The lane has vectors t and, with heads of 128, 4 + t of keys g and g + 8. Rows of keys, and of values,
   * conflict in banks. Exchanging vectors, as score_halves() does, would cost more time than it saves. */
  __device__ __forceinline__ void score_q8(const unsigned char *keys, const __half *scales, float (&s)[4],
                                           int lane) const {
    constexpr int kVectors = kDim / 64;
    const int g = lane >> 2, t = lane & 3;
    float other[4] = {0, 0, 0, 0};
    s[0] = s[1] = s[2] = s[3] = 0;
    uint4 row[2][kVectors];
    compiler_fence();
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int i = 0; i < kVectors; i++)
        row[h][i] = *(const uint4 *)(keys + (g + 8 * h) * kRow + (4 * i + t) * 16);
    }
#pragma unroll
    for (int i = 0; i < kVectors; i++) {
      const __half *own = scales + g * key_scales(kDim) + (4 * i + t) * 16 / KEY_SCALE_DIMS;
      const Scale8 scale[2] = {Scale8(__half2half2(own[0])), Scale8(__half2half2(own[8 * key_scales(kDim)]))};
#pragma unroll
      for (int pair = 0; pair < 2; pair++) {
        compiler_fence();
        const uint4 &q = query[2 * i + pair];
#pragma unroll
        for (int w = 0; w < 2; w++) {
          uint32_t a[4];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const uint4 &v = row[h][i];
            const uint32_t bytes = pair ? (w ? v.w : v.z) : (w ? v.y : v.x);
            a[h] = scaled_halves<false>(bytes, scale[h]), a[2 + h] = scaled_halves<true>(bytes, scale[h]);
          }
          mma_f16_m16n8k16(w ? other : s, a, w ? q.z : q.x, w ? q.w : q.y);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] += other[i];
  }

  /* Turns scores of 16 keys into weights p relative to the running maximum, and rescales o. The first n[0]
   * keys are valid for head 2 t, the first n[1] for head 2 t + 1. */
  __device__ __forceinline__ void to_weights(const float (&s)[4], float (&p)[4], const int (&n)[2],
                                             float scale_log2, int lane) {
    if constexpr (kQ8)
      to_weights_q8(s, p, n, scale_log2, lane);
    else
      to_weights_halves(s, p, n, scale_log2, lane);
  }
  __device__ __forceinline__ void to_weights(const float (&s)[4], float (&p)[4], int n, float scale_log2,
                                             int lane) {
    to_weights(s, p, {n, n}, scale_log2, lane);
  }

  __device__ __forceinline__ void to_weights_halves(const float (&s)[4], float (&p)[4], const int (&n)[2],
                                                    float scale_log2, int lane) {
    const int g = lane >> 2;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      p[c] = g < n[c] ? s[c] * scale_log2 : -INFINITY;
      p[2 + c] = g + 8 < n[c] ? s[2 + c] * scale_log2 : -INFINITY;
      const float high = lanes_max<4, 8, 16>(fmaxf(p[c], p[2 + c]));
      const Rescale r = rescale<false>(maximum[c], high);
      p[c] = power_of_2(p[c] - r.shift), p[2 + c] = power_of_2(p[2 + c] - r.shift);
      sum[c] = sum[c] * r.keep + p[c] + p[2 + c];
#pragma unroll
      for (int j = 0; j < kTiles; j++) o[j][c] *= r.keep, o[j][2 + c] *= r.keep;
    }
  }

  /* With a cache in 8 bits, arithmetic limits attention. So the maximum is raised to that of the 16 keys only
   * if a score lies more than kSlack above it. This is rare after many keys. In fp16 weights up to 2^kSlack
   * have the same relative error as weights up to 1. */
  static constexpr float kSlack = 6;
  __device__ __forceinline__ void to_weights_q8(const float (&s)[4], float (&p)[4], const int (&n)[2],
                                                float scale_log2, int lane) {
    const int g = lane >> 2;
    float own[4] = {s[0], s[1], s[2], s[3]};
    if (min(n[0], n[1]) < 16) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (g + 8 * (i / 2) >= n[i % 2]) own[i] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = own[i] * scale_log2 - maximum[i % 2];
    if (!__all_sync(~0u, fmaxf(fmaxf(p[0], p[1]), fmaxf(p[2], p[3])) <= kSlack)) {
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const float high = lanes_max<4, 8, 16>(fmaxf(own[c], own[2 + c])) * scale_log2;
        const Rescale r = rescale<false>(maximum[c], high);
        p[c] = own[c] * scale_log2 - r.shift, p[2 + c] = own[2 + c] * scale_log2 - r.shift;
        sum[c] *= r.keep;
#pragma unroll
        for (int j = 0; j < kTiles; j++) o[j][c] *= r.keep, o[j][2 + c] *= r.keep;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = power_of_2(p[i]);
    sum[0] += p[0] + p[2], sum[1] += p[1] + p[3];
  }

  /* Adds the weighted values of 16 keys, the first n valid; calls taken() when the values may be
   * overwritten. The file's head says which values a lane loads. */
  template <class Taken>
  __device__ __forceinline__ void accumulate(const unsigned char *values, const __half *scales,
                                             const float (&p)[4], int n, int lane, Taken taken, int own = 3) {
    if constexpr (kQ8)
      accumulate_q8(values, scales, p, n, lane, taken, own);
    else
      accumulate_halves(values, p, n, lane, taken);
  }

  /* Lane 4 g + t has keys {2t, 2t + 1, 2t + 8, 2t + 9}[i]; value[i][e] is 8 bytes of such a key: half `half`
   * of its vector 2 g + e; with heads of 64, half e of vector g.
   *
   * No fence before taken(): loads have no bank conflicts, and in the machine code (CUDA 13.0) the arrival
   * waits for them. accumulate_q8() says what happened where neither holds. */
  template <class Taken>
  __device__ __forceinline__ void accumulate_halves(const unsigned char *values, const float (&p)[4], int n,
                                                    int lane, Taken taken) {
    const int g = lane >> 2, t = lane & 3, odd = t & 1;
    const uint32_t low = transpose_matrix(pack_half2(p[0], p[1])),
                   high = transpose_matrix(pack_half2(p[2], p[3]));
#pragma unroll
    for (int half = 0; half < kValues / 64; half++) {
      uint2 value[4][2];
      compiler_fence();
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int key = 2 * t + (i & 1) + (i & 2) * 4;
#pragma unroll
        for (int e = 0; e < 2; e++)
          value[i][e] = *(const uint2 *)(values + key * kRow + (2 * g + (e ^ odd)) * kVector + half * 8);
        swap_if(odd, value[i][0], value[i][1]);
        if (key >= n) value[i][0] = value[i][1] = make_uint2(0, 0);
      }
      if (half == kValues / 64 - 1) taken();
#pragma unroll
      for (int j = 0; j < 4; j++) { /* dimension 4 half + j of both vectors */
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

  /* The scales of values `key` (even) and key + 1; 0 for values from n on. */
  static __device__ __forceinline__ __half2 scales_of_pair(const __half *scales, int key, int n) {
    const uint32_t pair = *(const uint32_t *)(scales + key), valid = key + 1 < n ? pair
                                                                     : key < n   ? pair & 0xffffu
                                                                                 : 0;
    return *(const __half2 *)&valid;
  }

  /* For kMasked: zeroes scales that would give infinity or NaN when unpacking. Heads of other sequences
   * multiply these values by a weight of 0. The sums of heads that own the values become NaN. */
  __device__ __forceinline__ void keep_finite(__half2 (&pair)[2], int own) {
    constexpr float kMost = 65504.0f / 1152; /* Scale8 */
    bool bad[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
      bad[i] = !(__low2float(pair[i]) <= kMost) || !(__high2float(pair[i]) <= kMost);
    if (__all_sync(~0u, !bad[0] && !bad[1])) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (bad[i]) pair[i] = __half2half2(__float2half_rn(0.0f));
      if (own >> i & 1) sum[i] = NAN;
    }
  }

  /* Scales from n on may be anything: zeros take their place. The fence waits for the loads. Rows conflict in
   * banks, so the loads of 16 warps queue up for long. Without the fence the arrival at the barrier overtook
   * the loads, and the next stage overwrote what they had yet to read: 117 of 20,000 steps had other bits
   * (LOG.md, "Faults that were hard to see"). */
  template <class Taken>
  __device__ __forceinline__ void accumulate_q8(const unsigned char *values, const __half *scales,
                                                const float (&p)[4], int n, int lane, Taken taken, int own) {
    const int g = lane >> 2, t = lane & 3;
    __half2 pair[2] = {scales_of_pair(scales, 2 * t, n), scales_of_pair(scales, 2 * t + 8, n)};
    if constexpr (kMasked) keep_finite(pair, own);
    const uint32_t low = transpose_matrix(pack_half2(p[0], p[1])),
                   high = transpose_matrix(pack_half2(p[2], p[3]));
    const Scale8 scale[2] = {Scale8(pair[0]), Scale8(pair[1])};
    constexpr int kRuns = kDim / 64; /* runs of 64 dimensions */
    uint2 value[4][kRuns];
    compiler_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int key = 2 * t + (i & 1) + (i & 2) * 4;
#pragma unroll
      for (int run = 0; run < kRuns; run++)
        value[i][run] = *(const uint2 *)(values + key * kRow + run * 64 + 8 * g);
    }
#pragma unroll
    for (int j = 0; j < kTiles; j++) { /* of the 8 bytes value[][j / 4]: j % 4 * 2 and the next */
      uint32_t a[4];
#pragma unroll
      for (int h = 0; h < 2; h++) { /* two keys each */
        const uint2 &one = value[2 * h][j / 4], &two = value[2 * h + 1][j / 4];
        const uint32_t first = j % 4 / 2 ? one.y : one.x, second = j % 4 / 2 ? two.y : two.x;
        const uint32_t bytes = j % 2 ? prmt<0x7362>(first, second) : prmt<0x5140>(first, second);
        a[2 * h] = scaled_halves<false>(bytes, scale[h]), a[2 * h + 1] = scaled_halves<true>(bytes, scale[h]);
      }
      mma_f16_m16n8k16(o[j], a, low, high);
    }
    __threadfence_block();
    taken();
  }

  __device__ __forceinline__ void store_values(const States &to, int query, int c, float over, int g) const {
    uint2 v[2][kValues / 64]; /* four dimensions each */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < kValues / 64; i++)
        v[h][i] = make_uint2(pack_half2(o[4 * i][2 * h + c] * over, o[4 * i + 1][2 * h + c] * over),
                             pack_half2(o[4 * i + 2][2 * h + c] * over, o[4 * i + 3][2 * h + c] * over));
    uint4 *at = (uint4 *)(to.values + query * kStateDim + kValues / 8 * g);
    if constexpr (kDim == 64) {
      at[0] = make_uint4(v[0][0].x, v[0][0].y, v[1][0].x, v[1][0].y);
    } else {
#pragma unroll
      for (int h = 0; h < 2; h++) at[h] = make_uint4(v[h][0].x, v[h][0].y, v[h][1].x, v[h][1].y);
    }
  }

  __device__ __forceinline__ void store_values_q8(const States &to, int query, int c, float over,
                                                  int g) const {
#pragma unroll
    for (int run = 0; run < kDim / 64; run++) {
      uint32_t two[4];
#pragma unroll
      for (int j = 0; j < 4; j++) two[j] = pack_half2(o[run * 4 + j][c] * over, o[run * 4 + j][2 + c] * over);
      *(uint4 *)(to.values + query * kDim + run * 64 + 8 * g) = make_uint4(two[0], two[1], two[2], two[3]);
    }
  }

  /* Stores the warp's first `mine` columns as state `state`; a state has `queries` queries. */
  __device__ __forceinline__ void store(const States &to, int state, int queries, int mine, int lane) const {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const float total = lanes_sum<4, 8, 16>(sum[c]);
      const int head = 2 * t + c;
      if (head >= mine) continue;
      const float over = total > 0 ? __fdividef(1, total) : 0;
      if constexpr (kQ8)
        store_values_q8(to, state * queries + head, c, over, g);
      else
        store_values(to, state * queries + head, c, over, g);
      if (kDim > 128 && !to.weights) continue; /* of the warps with the same scores, another stores weights */
      if (g == 0) to.weights[state * queries + head] = make_float2(maximum[c], total);
    }
  }
};

/* Eight dimensions of a head as halves, and the bits of its States.weights. */
struct MergedState {
  uint4 values;
  uint2 weight;
};

/* Merges n states of a head into one, eight dimensions from `dim` on. */
template <int kDim>
__device__ __forceinline__ MergedState merge_states(const States &from, int n, int n_heads, int head,
                                                    int dim) {
  float2 weight = make_float2(-INFINITY, 0);
  float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll 4
  for (int s = 0; s < n; s++) weight.x = fmaxf(weight.x, from.weights[s * n_heads + head].x);
  const float shift = weight.x == -INFINITY ? 0 : weight.x;
#pragma unroll 4
  for (int s = 0; s < n; s++) {
    const float2 w = from.weights[s * n_heads + head];
    const float factor = power_of_2(w.x - shift) * w.y;
    const uint4 o = *(const uint4 *)(from.values + (s * n_heads + head) * kDim + dim);
    weight.y += factor;
    v[0] += factor * f16_low(o.x), v[1] += factor * f16_high(o.x);
    v[2] += factor * f16_low(o.y), v[3] += factor * f16_high(o.y);
    v[4] += factor * f16_low(o.z), v[5] += factor * f16_high(o.z);
    v[6] += factor * f16_low(o.w), v[7] += factor * f16_high(o.w);
  }
  const float over = weight.y > 0 ? __fdividef(1, weight.y) : 0;
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] *= over;
  return {make_uint4(pack_half2(v[0], v[1]), pack_half2(v[2], v[3]), pack_half2(v[4], v[5]),
                     pack_half2(v[6], v[7])),
          make_uint2(__float_as_uint(weight.x), __float_as_uint(weight.y))};
}

/* Attends from the heads in shared memory to this block's keys, and sends the states to the cluster.
 * Each kind of kernel has its own attend_keys() and send_states(). */
template <class B> __device__ __forceinline__ void attend_with_heads(B &b) {
  b.mark(STEP_MARK_HEADS);
  const int n_states = attend_keys(b);
  b.mark_waited(MATRICES);
  b.sync();
  b.mark(STEP_MARK_KEYS);
  send_states(b, n_states);
  b.mark(STEP_MARK_STATES_SENT);
}

} // namespace step
