/* heads_end.cuh - the epilogue of a tile whose 128 outputs are a head (LINEAR_NEXT_HEADS): RMSNorm and rope,
 * q in fp16, k and v into the cache. The bits are those that ops_qk_norm_rope_append() makes of y; y itself
 * is not written.
 *
 * A tile is finished in rounds of kRoundTokens tokens. The warps of both consumer warpgroups write their sums
 * of a round to shared memory. Then each warp finishes kOwn tokens, two at a time: 16 lanes share a token,
 * and lane l has dims 4 l .. 4 l + 3 and 4 l + 64 .. 4 l + 67. Rounds use two halves of the memory in turn,
 * so they need one barrier each: when a warp passes the barrier of round r, all warps have read round r - 1
 * and written round r.
 *
 *   sums  [2][kRoundTokens][128] fp32, swizzled
 *
 *     all warps   sync | write half 0 | sync | read half 0, write half 1 | sync | read half 1, write half 0 |
 *
 * Included by wgmma_tiles.cuh. */
#pragma once

#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/linear/layout.cuh"
#include "cuda/kernels/ops/heads.cuh"
#include "cuda/kernels/ops/norm_rope.h"

namespace heads_end {

constexpr int kHead = 128, kWarps = 8, kRoundTokens = 32, kOwn = kRoundTokens / kWarps;
constexpr int kSharedBytes = 2 * kRoundTokens * kHead * 4;

/* Index in a round's sums, swizzled. Lanes (g, t) that write dim g of token 2 t hit different banks; so do
 * lanes that read 16 bytes. */
__device__ __forceinline__ int place(int token, int dim) {
  return token * kHead + (dim ^ token / 2 % 4 * 8);
}

/* A lane's part of a head. */
struct Part {
  float low[4], high[4];

  __device__ __forceinline__ void read(const float *sums, int token, int dim) {
    const float4 l = *(const float4 *)(sums + place(token, dim)),
                 h = *(const float4 *)(sums + place(token, dim + 64));
    low[0] = l.x, low[1] = l.y, low[2] = l.z, low[3] = l.w;
    high[0] = h.x, high[1] = h.y, high[2] = h.z, high[3] = h.w;
  }

  __device__ __forceinline__ void normalise(const Part &weights, float eps) {
    float squares[4]; /* added in the order of ops/heads.cuh */
#pragma unroll
    for (int i = 0; i < 4; i++) squares[i] = squares_of(low[i], high[i]);
    const float all = lanes_sum<1, 2, 4, 8>((squares[0] + squares[1]) + (squares[2] + squares[3])),
                scale = rsqrtf(all / kHead + eps);
#pragma unroll
    for (int i = 0; i < 4; i++) low[i] *= scale * weights.low[i], high[i] *= scale * weights.high[i];
  }

  __device__ __forceinline__ void turn(const float4 (&angles)[2]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      rotate(low[i], high[i],
             i % 2 ? make_float2(angles[i / 2].z, angles[i / 2].w)
                   : make_float2(angles[i / 2].x, angles[i / 2].y));
  }

  static __device__ __forceinline__ uint2 halves(const float (&x)[4]) {
    return make_uint2(pack_half2(x[0], x[1]), pack_half2(x[2], x[3]));
  }
  __device__ __forceinline__ void store(__half *head, int dim) const {
    *(uint2 *)(head + dim) = halves(low), *(uint2 *)(head + dim + 64) = halves(high);
  }

  static __device__ __forceinline__ uint32_t largest_of(const float (&x)[4]) {
    return __float_as_uint(
        max_or_nan(max_or_nan(fabsf(x[0]), fabsf(x[1])), max_or_nan(fabsf(x[2]), fabsf(x[3]))));
  }
  /* Stores the head as bytes of an 8-bit cache (q8.cuh) at `head`, and their scales at `scales`, if `wanted`.
   * A key has a scale for each 16 dims, which four lanes share; a value has one. */
  __device__ __forceinline__ void store_q8(bool is_key, uint8_t *head, __half *scales, int dim,
                                           bool wanted) const {
    uint32_t size[2] = {largest_size<4>(largest_of(low)), largest_size<4>(largest_of(high))};
    if (!is_key) {
      size[0] = max(size[0], size[1]);
      size[0] = max(size[0], __shfl_xor_sync(~0u, size[0], 4));
      size[0] = size[1] = max(size[0], __shfl_xor_sync(~0u, size[0], 8));
    }
    const __half scale[2] = {scale_of_largest(size[0]), scale_of_largest(size[1])};
    const uint32_t bytes[2] = {ToQ8(scale[0]).four_bytes(low), ToQ8(scale[1]).four_bytes(high)};
    if (!wanted) return;
    *(uint32_t *)(head + dim) = bytes[0], *(uint32_t *)(head + dim + 64) = bytes[1];
    if (is_key && dim % KEY_SCALE_DIMS == 0)
      scales[dim / KEY_SCALE_DIMS] = scale[0], scales[(dim + 64) / KEY_SCALE_DIMS] = scale[1];
    else if (dim == 0)
      scales[0] = scale[0];
  }
};

/* The head that a tile computes, and where it is stored for a token. */
struct Head {
  const QkvHeads &a;
  const int head;
  const bool is_query, is_value;

  __device__ __forceinline__ Head(const QkvHeads &heads, int number)
      : a(heads), head(number), is_query(number < heads.n_heads),
        is_value(number >= heads.n_heads + heads.n_kv_heads) {}

  __device__ __forceinline__ const float *weights() const {
    return is_value ? nullptr : is_query ? a.q_norm : a.k_norm;
  }
  /* The token's row of q or of the cache; ~0: none. PRECOND a layer's cache has fewer than 2^32 rows. */
  __device__ __forceinline__ unsigned row_of(int token) const {
    if (is_query) return (unsigned)(token * a.n_heads + head);
    const int position = a.pos[token], kv_head = head - a.n_heads - (is_value ? a.n_kv_heads : 0);
    if (position < 0) return ~0u;
    return (unsigned)CacheRows(a.pages, token, a.n_kv_heads, kv_head, a.n_ctx).at(position);
  }
  __device__ __forceinline__ void store(const Part &x, unsigned row, int dim) const {
    const bool wanted = row != ~0u;
    if (!is_query && a.kv == KV_Q8) {
      uint8_t *to = (uint8_t *)(is_value ? a.v_cache : a.k_cache) + (size_t)row * kHead;
      __half *scales =
          is_value ? (__half *)a.v_scales + row : (__half *)a.k_scales + (size_t)row * key_scales(kHead);
      x.store_q8(!is_value, to, scales, dim, wanted);
      return;
    }
    __half *to = (__half *)(is_query ? a.q : is_value ? a.v_cache : a.k_cache) + (size_t)row * kHead;
    if (wanted) x.store(to, dim);
  }
};

/* Finishes a tile of head `number`, by all kWarps consumer warps. sums: the thread's fragments, where
 * sums[4 n + 2 h + i] is of row g + 8 h of the warp's 16 and of token 8 n + 2 t + i. Stores tokens [begin,
 * end) of the tile, whose first token is row token0 of x. sync: a barrier of the consumer warps. */
template <int kTokens, class Sync>
__device__ __forceinline__ void store_heads(const QkvHeads &heads, int number,
                                            const float (&sums)[kTokens / 2], int token0, int begin, int end,
                                            float *shared, Sync sync) {
  static_assert(kTokens % kRoundTokens == 0, "rounds are whole");
  constexpr int kRounds = kTokens / kRoundTokens, kFragments = kRoundTokens / 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, dim = lane % 16 * 4;
  const Head head(heads, number);
  /* Lane i has the row of the warp's i-th token. */
  const auto token_of = [&](int i) { return i / kOwn * kRoundTokens + warp * kOwn + i % kOwn; };
  const int listed = token_of(min(lane, kRounds * kOwn - 1));
  const unsigned row_of_lane = listed >= begin && listed < end ? head.row_of(token0 + listed) : ~0u;
  const float *const norm = head.weights();
  Part weights;
  if (norm) {
    const float4 l = *(const float4 *)(norm + dim), h = *(const float4 *)(norm + dim + 64);
    weights = {{l.x, l.y, l.z, l.w}, {h.x, h.y, h.z, h.w}};
  }
  float4 angles[kOwn / 2][2];
  const auto fetch_angles = [&](int round) {
    if (head.is_value) return;
#pragma unroll
    for (int i = 0; i < kOwn / 2; i++) {
      const int token = token_of(round * kOwn + 2 * i + lane / 16);
      const float4 *row =
          (const float4 *)heads.rope_table + (size_t)(token0 + min(token, end - 1)) * 32 + dim / 2;
      angles[i][0] = row[0], angles[i][1] = row[1];
    }
  };
  fetch_angles(0);
  sync(); /* the previous tile's sums have been read */
#pragma unroll 1
  for (int round = 0; round < kRounds; round++) {
    float *const of_round = shared + round % 2 * (kRoundTokens * kHead);
    float *const to = of_round + place(2 * t, warp * 16 + g);
#pragma unroll
    for (int r = 0; r < kRounds; r++)
      if (r == round)
#pragma unroll
        for (int n = 0; n < kFragments / 4; n++)
#pragma unroll
          for (int i = 0; i < 2; i++) {
            /* Row g + 8 is 8 dims on before the swizzle. */
            const float *from = sums + r * kFragments + 4 * n + i;
            to[(8 * n + i) * kHead] = from[0];
            of_round[(8 * n + i) * kHead + place(2 * t, warp * 16 + g + 8)] = from[2];
          }
    sync();
    Part x[kOwn / 2];
#pragma unroll
    for (int i = 0; i < kOwn / 2; i++) {
      x[i].read(of_round, warp * kOwn + 2 * i + lane / 16, dim);
      if (norm) x[i].normalise(weights, heads.eps);
      if (!head.is_value) x[i].turn(angles[i]);
    }
    if (round + 1 < kRounds) fetch_angles(round + 1);
#pragma unroll
    for (int i = 0; i < kOwn / 2; i++) {
      if (head.is_value && heads.kv == KV_F16)
#pragma unroll
        for (int j = 0; j < 4; j++)
          x[i].low[j] = finite_value(x[i].low[j]), x[i].high[j] = finite_value(x[i].high[j]);
      head.store(x[i], __shfl_sync(~0u, row_of_lane, round * kOwn + 2 * i + lane / 16), dim);
    }
  }
}

} // namespace heads_end
