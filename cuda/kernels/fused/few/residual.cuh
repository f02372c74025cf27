/* few/residual.cuh - the residual stream of several tokens: all-reduce across clusters, and normalised,
 * quantised x.
 *
 * A block owns some groups of 128 columns (first_columns()). A warp takes one token's group at a time, a lane
 * four columns. Partial sums of o and down are all-reduced through L2 in 64-bit words (allreduce.cuh). For
 * one token words are never cleared, and an array `last` keeps their previous values. With eight tokens that
 * array would take 12 MB (hidden 4,096). So here words are cleared to 0 before they are used again. There are
 * STEP_SUM_TURNS buffers, used in turn by the layers: [turn][o, down][tokens][hidden]. When o of layer l is
 * complete, all clusters have contributed to down of layer l - 1, and so have read the sums of layer l - 2.
 * The buffer of layer l - 2 is then cleared for layer l + 2. A cluster contributes to layer l + 2 only after
 * it has received this cluster's part of layer l + 1. */
#pragma once

#include "cuda/kernels/fused/allreduce.cuh"
#include "cuda/kernels/fused/few/block.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace step::few {

/* The words of a layer: of o, then of down. */
template <class B> __device__ __forceinline__ uint64_t *words_of(const B &b, int layer) {
  const StepShape &s = b.plan.shape;
  const unsigned turn = (b.vars().launches * s.n_layers + layer) % STEP_SUM_TURNS;
  return b.args.totals + (size_t)turn * 2 * B::kTokens * s.hidden;
}

template <class B> __device__ __forceinline__ Sum sum_of(const B &b, int matrix, int layer) {
  const StepShape &s = b.plan.shape;
  return {words_of(b, layer) + (matrix == DOWN ? B::kTokens * s.hidden : 0),
          matrix == DOWN ? s.n_clusters : s.n_kv_heads};
}

/* Clears this block's part of the words of layer l - 2. Layer l + 2 uses them next. For warps that know that
 * the sum of o in layer l is complete. */
template <class B> __device__ __forceinline__ void clear_words(const B &b) {
  ulonglong2 *words = (ulonglong2 *)words_of(b, b.layer() + STEP_SUM_TURNS / 2);
  const int n = B::kTokens * b.plan.shape.hidden;
#pragma unroll 1
  for (int i = blockIdx.x * STEP_THREADS + threadIdx.x; i < n; i += gridDim.x * STEP_THREADS)
    store_relaxed_16(words + i, make_ulonglong2(0, 0));
}

/* Waits for the sums of two times four columns, from[i] on; without `two` only of the first four. */
template <class B>
__device__ __forceinline__ void poll_sums(const B &b, const Sum &sum, const uint64_t *const (&from)[2],
                                          bool two, float4 (&sums)[2]) {
  const int contributors = sum.contributors;
  ulonglong2 v[2][2];
  const long long since = B::kIsDebug ? clock64() : 0;
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      v[i][half].x = v[i][half].y = contributors;
      if (i == 0 || two) v[i][half] = load_relaxed_16(from[i] + 2 * half);
    }
  for (;;) { /* reads again only what was incomplete, and checks it in the next round */
    bool all = true;
    int late = 0;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (!is_complete(v[i][half].x, 0, contributors) || !is_complete(v[i][half].y, 0, contributors)) {
          all = false;
          if (B::kIsDebug) late = (int)(from[i] - sum.totals) + 2 * half;
          v[i][half] = load_relaxed_16(from[i] + 2 * half);
        }
    if (__all_sync(~0u, all)) break;
    if (B::kIsDebug && !all) b.check_patience(since, STEP_AT_VALUES, late, 0);
  }
#pragma unroll
  for (int i = 0; i < 2; i++)
    sums[i] = make_float4(sum_since(v[i][0].x, 0, contributors), sum_since(v[i][0].y, 0, contributors),
                          sum_since(v[i][1].x, 0, contributors), sum_since(v[i][1].y, 0, contributors));
}

/* Four columns of a token's embedding. */
__device__ __forceinline__ float4 four_embedded(const Args &a, int token, int column) {
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = embedded(a, a.call.ids[min(token, a.call.n_tokens - 1)], column + i);
  return make_float4(v[0], v[1], v[2], v[3]);
}

/* send_group() for FP4, whose x is halves. Lanes l and l + 16 send the same 16 bytes, those of one (pair of
 * sets, part of a set, t), to different blocks. */
template <class B>
__device__ __forceinline__ void send_halves(const B &b, const float (&v)[4], int planes, int scales,
                                            int group, int token, uint64_t &barrier) {
  constexpr int kTokens = B::kTokens, kSetParts = STEP_FP4_PARTS / kTokens;
  uint32_t word[2];
  const float d = halves_of<Fp4>(v, word);
  const int lane = b.lane(), t = lane & 3, pair = (lane >> 2 & 3) / kSetParts,
            of_set = (lane >> 2 & 3) % kSetParts, first = (2 * pair * kSetParts + of_set) * 4 + t;
  uint32_t run[4];
#pragma unroll
  for (int i = 0; i < 4; i++) run[i] = __shfl_sync(~0u, word[i % 2], first + i / 2 * kSetParts * 4);
  const unsigned char *to =
      b.smem + (planes + group * B::kGroup) + pair * 512 + (of_set * kTokens + token) * 64 + t * 16;
  send_to_cluster<4>(to, make_uint4(run[0], run[1], run[2], run[3]), barrier, lane);
  if (lane < STEP_BLOCKS)
    send_8(peer_address(b.smem + (scales + group * kTokens * 8) + token * 8, lane),
           make_uint2(__float_as_uint(d), 0), peer_address(&barrier, lane));
}

/* Quantises a group of 128 values of a token and sends it to the cluster. A lane has k, k + 8, k + 1, k +
 * 9, where k = 16 (lane / 4) + 2 (lane % 4), as quantise_values() takes them. planes, scales: offsets of
 * group 0. */
template <class B>
__device__ __forceinline__ void send_group(const B &b, const float (&v)[4], int planes, int scales, int group,
                                           int token, uint64_t &barrier) {
  if constexpr (kIsFp4<B::kParts>) return send_halves(b, v, planes, scales, group, token, barrier);
  uint32_t word[2];
  int sum;
  constexpr int kParts = B::kParts, kPartLanes = 32 / kParts;
  const float d = quantise_values<2, STEP_GROUP / kParts>(v, word, &sum);
  /* There are 16 vectors of 16 bytes: one for each half of the 128 inputs, plane and t. A lane has one, and
   * sends it to four of the eight blocks. */
  const int lane = b.lane(), half = lane >> 3 & 1, plane = lane >> 2 & 1, t = lane & 3;
  uint32_t run[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int from = (4 * half + j) * 4 + t;
    const uint32_t high = __shfl_sync(~0u, word[0], from), low = __shfl_sync(~0u, word[1], from);
    run[j] = plane ? low : high;
  }
  const unsigned char *to = b.smem + (planes + group * B::kGroup) + half * B::kHalf + B::token_at(token) +
                            plane * B::kPlane + t * 16;
  send_to_cluster<4>(to, make_uint4(run[0], run[kParts == 4 ? 1 : 2], run[kParts == 4 ? 2 : 1], run[3]),
                     barrier, lane);
  const int peer = lane % kPartLanes, part = lane / kPartLanes;
  if (peer < STEP_BLOCKS)
    send_8(peer_address(b.smem + (scales + (group * kParts + part) * B::kTokens * 8) + token * 8, peer),
           make_uint2(__float_as_uint(d), __float_as_uint(d * (float)sum)), peer_address(&barrier, peer));
}

/* Brings four neighbouring columns a lane into the order of quantise_values(). */
__device__ __forceinline__ void spread(const float4 &x, float (&v)[4], int lane) {
  const int near = (lane & ~3) + (lane >> 1 & 1), far = near + 2;
  const bool odd = lane & 1;
  const float n0 = __shfl_sync(~0u, x.x, near), n1 = __shfl_sync(~0u, x.y, near),
              n2 = __shfl_sync(~0u, x.z, near), n3 = __shfl_sync(~0u, x.w, near),
              f0 = __shfl_sync(~0u, x.x, far), f1 = __shfl_sync(~0u, x.y, far),
              f2 = __shfl_sync(~0u, x.z, far), f3 = __shfl_sync(~0u, x.w, far);
  v[0] = odd ? n2 : n0, v[1] = odd ? f2 : f0, v[2] = odd ? n3 : n1, v[3] = odd ? f3 : f1;
}

/* Copies this thread's columns of the residual stream after a layer's down, if the layer has a tap. */
template <class B> __device__ __forceinline__ void keep_tap(const B &b, int layer) {
  const StepTaps &taps = b.args.taps;
  const int hidden = b.plan.shape.hidden, end = b.end_columns() * B::kTokens, tap = tap_of(b, layer);
  if (tap < 0) return;
#pragma unroll 1
  for (int item = b.first_columns() * B::kTokens + b.warp(); item < end; item += STEP_WARPS) {
    const int token = item % B::kTokens, column = item / B::kTokens * STEP_GROUP + 4 * b.lane();
    if (token >= b.args.call.n_tokens) continue;
    *(float4 *)(taps.rows + ((size_t)token * taps.n + tap) * hidden + column) =
        *(const float4 *)(b.args.residual + (size_t)token * hidden + column);
  }
}

/* Adds the output of `matrix` in `layer` to the residual stream (layer < 0: the embedding begins it). If
 * `wanted`, one warp calls hand_on(group, token, v, squares) for each of the block's groups and each token.
 * v: x = residual * norm in the order of quantise_values(); squares: the residual's sum of squares. */
template <class B, class HandOn>
__device__ __forceinline__ void add_sums(B &b, int matrix, int layer, const float *norm, bool wanted,
                                         HandOn hand_on) {
  constexpr int kTokens = B::kTokens;
  const int hidden = b.plan.shape.hidden, end = b.end_columns() * kTokens;
  Sum sum = {};
  if (layer >= 0) sum = sum_of(b, matrix, layer);
  b.mark(matrix == O ? STEP_MARK_SUM_O : STEP_MARK_SUM);
#pragma unroll 1
  for (int item0 = b.first_columns() * kTokens + b.warp(); item0 < end; item0 += 2 * STEP_WARPS) {
    const bool two = item0 + STEP_WARPS < end;
    float4 weight[2], r[2];
    float4 *kept[2];
    const uint64_t *from[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int item = item0 + (two ? i * STEP_WARPS : 0), token = item % kTokens;
      const int column = item / kTokens * STEP_GROUP + 4 * b.lane();
      weight[i] = __ldg((const float4 *)(norm + column));
      kept[i] = (float4 *)(b.args.residual + ((size_t)b.cluster() * kTokens + token) * hidden + column);
      from[i] = sum.totals + (size_t)token * hidden + column;
      r[i] = layer < 0 ? four_embedded(b.args, token, column) : *kept[i];
    }
    if (layer >= 0) {
      float4 more[2];
      poll_sums(b, sum, from, two, more);
#pragma unroll
      for (int i = 0; i < 2; i++)
        r[i].x += more[i].x, r[i].y += more[i].y, r[i].z += more[i].z, r[i].w += more[i].w;
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (i == 0 || two) *kept[i] = r[i];
    if (!wanted) continue;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (i && !two) break;
      const int item = item0 + i * STEP_WARPS;
      const float4 mine = r[i], by = weight[i];
      const float squares =
          warp_sum((mine.x * mine.x + mine.y * mine.y) + (mine.z * mine.z + mine.w * mine.w));
      float v[4];
      spread(make_float4(mine.x * by.x, mine.y * by.y, mine.z * by.z, mine.w * by.w), v, b.lane());
      hand_on(item / kTokens, item % kTokens, v, squares);
    }
  }
  if constexpr (B::kTaps)
    if (matrix == DOWN) keep_tap(b, layer);
  b.mark(matrix == O ? STEP_MARK_X_SENT_O : STEP_MARK_X_SENT);
}

/* 1 / rms of a token. PRECOND lanes 8 i .. 8 i + 7 name the same token. */
template <class B> __device__ __forceinline__ float inverse_of(const B &b, int token) {
  const StepShape &s = b.plan.shape;
  const int groups = s.hidden / STEP_GROUP; /* a multiple of four */
  const float *from = b.square_of(token, 0);
  float squares = 0;
#pragma unroll 1
  for (int group = 4 * (b.lane() & 7); group < groups; group += 32) {
    const float4 v = *(const float4 *)(from + group);
    squares += (v.x + v.y) + (v.z + v.w);
  }
  squares = lanes_sum<1, 2, 4>(squares);
  return rsqrtf(__fdividef(squares, small_float(s.hidden)) + b.args.norm_eps);
}

/* Before lm_head: adds the output of the last layer's down to the residual stream, and sends x to the
 * cluster. */
template <class B> __device__ __forceinline__ void send_lm_head_input(B &b) {
  const StepOffsets &off = b.plan.off;
  uint64_t &barrier = b.barriers().x;
  add_sums(b, DOWN, b.layer() - 1, b.vectors().attn_norm, true,
           [&](int group, int token, const float(&v)[4], float squares) {
             if (b.lane() < STEP_BLOCKS)
               send_4(peer_address(b.square_of(token, group), b.lane()), __float_as_uint(squares),
                      peer_address(&barrier, b.lane()));
             send_group(b, v, off.x, off.x_scales, group, token, barrier);
           });
}

/* Before qkv and before gate and up: adds the output of down or o to the residual stream. Keeps the quantised
 * x of this block's columns, and sends the sums of squares to the blocks of the token. */
template <class B> __device__ __forceinline__ void normalise(B &b, int matrix, bool wanted) {
  const StepOffsets &off = b.plan.off;
  const int of = matrix == QKV ? DOWN : O, layer = matrix == QKV ? b.layer() - 1 : b.layer();
  const float *norm = matrix == QKV ? b.vectors().attn_norm : b.vectors().mlp_norm;
  const int first = b.first_columns();
  uint64_t &barrier = b.barriers().squares[of == O];
  add_sums(b, of, layer, norm, wanted, [&](int group, int token, const float(&v)[4], float squares) {
    if (b.lane() < B::kTurns) {
      const int peer = token + b.lane() * B::kTokens;
      send_4(peer_address(b.square_of(token, group), peer), __float_as_uint(squares),
             peer_address(&barrier, peer));
    }
    const int planes = off.slice + (group - first) * B::kGroup + B::token_at(token),
              scales = off.x_scales + (group - first) * B::kTokens * B::kScalesBytes + token * 8;
    store_group<B::kParts>(v, b.smem + planes + B::word_at(b.lane()), B::kPlane, (float2 *)(b.smem + scales),
                           B::kTokens, b.lane());
  });
  if (!wanted) return;
  b.sync();
  b.mark(matrix == QKV ? STEP_MARK_X : STEP_MARK_X_O);
  if (matrix == GATE_UP) clear_words(b);
}

} // namespace step::few
