/* next.cuh - epilogues of planes_wgmma that make the next kernel's operand (LinearCall.next).
 *
 * When a block has all sums of a tile, its warps write them to shared memory as rows of tokens. Then a warp
 * takes a token: its 128 results are a unit of the next matmul's x, or a head. The warp's loads from device
 * memory are in flight before the sums of other blocks come.
 *
 *   staging  [kInGroups][8 kOwn tokens][kStagingStride] fp32, after the memory of exchange_sums()
 *
 *     group g   sums -> staging | named barrier 4 + g | a warp reads a token's row | next sums -> staging
 *
 * Before the next sums all warps pass a named barrier: that of the next exchange_sums(), or barrier 4 again
 * if there is only one group.
 *
 * Included by planes_wgmma.cu. */
#pragma once

#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/linear/narrow/wgmma_parts.cuh"
#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/ops/heads.cuh"
#include "cuda/kernels/ops/norm_rope.h"

namespace wgmma_parts {

constexpr int kStagingStride = 132; /* lanes (g, t) write to 32 banks */

struct NextArgs {
  unsigned char *planes;
  float *squares;    /* [n_tokens][n_units] */
  const float *norm; /* [n_out] */
  int n_units;       /* units of the next matmul's x */
  QkvHeads heads;
};

template <class S> constexpr int staging_bytes() {
  return S::kInGroups * 8 * S::kOwn * kStagingStride * 4;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* An End (NormEnd, GatedEnd, HeadsEnd) is made for a tile of 128 outputs and the step's n_tokens tokens:
 *   kGated                    staging holds gated products
 *   fetch_rows()              loads what all tokens need
 *   fetch(i, token)           loads what the warp's i-th token needs
 *   finish(i, token, sums)    stores the token, whose 128 results are `sums` */

/* Adds to the residual stream. Then makes, as quantise_rows() does, planes of the stream times the next
 * norm's weight, and the stream's sums of squares. */
template <class S> struct NormEnd {
  static constexpr bool kGated = false;
  const Epilogue &out;
  const NextArgs &next;
  const int unit, k, n_tokens;
  float2 w[2], old[S::kMine][2];

  __device__ __forceinline__ NormEnd(const Epilogue &out_, const NextArgs &next_, int tile, int n_tokens_)
      : out(out_), next(next_), unit(tile), k(tile * kUnitIn + first_input_of(threadIdx.x % 32)),
        n_tokens(n_tokens_) {}

  __device__ __forceinline__ float2 *at(int token, int j) const {
    return (float2 *)((float *)out.y + (size_t)token * out.stride + k + 8 * j);
  }

  __device__ __forceinline__ void fetch_rows() { read_pairs(next.norm, k, out.n_out, w); }

  __device__ __forceinline__ void fetch(int i, int token) {
#pragma unroll
    for (int j = 0; j < 2; j++)
      old[i][j] = token < n_tokens && k + 8 * j < out.n_out ? __ldcg(at(token, j)) : make_float2(0, 0);
  }

  __device__ __forceinline__ void finish(int i, int token, const float *sums) {
    const int lane = threadIdx.x % 32;
    float2 v[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float2 sum = *(const float2 *)(sums + first_input_of(lane) + 8 * j);
      const bool there = token < n_tokens && k + 8 * j < out.n_out;
      v[j] = there ? make_float2(old[i][j].x + sum.x, old[i][j].y + sum.y) : make_float2(0, 0);
      if (there) *at(token, j) = v[j];
    }
    const float squares = store_normed_unit<S::kTokens, 1>(next.planes, unit, token, v, w);
    if (lane == 0 && token < n_tokens) next.squares[token * next.n_units + unit] = squares;
  }
};

/* Makes planes of the gated product. stage_results() has rounded it to fp16, as if it were stored between
 * kernels. */
template <class S> struct GatedEnd {
  static constexpr bool kGated = true;
  const NextArgs &next;
  const int unit, n_out, n_tokens;

  __device__ __forceinline__ GatedEnd(const Epilogue &out, const NextArgs &next_, int tile, int n_tokens_)
      : next(next_), unit(tile), n_out(out.n_out / 2), n_tokens(n_tokens_) {}
  __device__ __forceinline__ void fetch_rows() {}
  __device__ __forceinline__ void fetch(int, int) {}

  __device__ __forceinline__ void finish(int, int token, const float *sums) {
    const int own = first_input_of(threadIdx.x % 32), k = unit * kUnitIn + own;
    float2 v[2];
#pragma unroll
    for (int j = 0; j < 2; j++)
      v[j] =
          token < n_tokens && k + 8 * j < n_out ? *(const float2 *)(sums + own + 8 * j) : make_float2(0, 0);
    const float product[4] = {v[0].x, v[1].x, v[0].y, v[1].y};
    PlanesUnit<S::kTokens, 1, 2>::store(next.planes, unit, token, threadIdx.x % 32, product);
  }
};

/* RMSNorm and rope of a head, as qk_norm_rope_append_kernel() computes them for heads of 128 with pairs
 * (i, i + 64). Stores q in fp16; k and v go to the cache, but not for a negative position. */
template <class S> struct HeadsEnd {
  static constexpr bool kGated = false;
  const QkvHeads &a;
  const int head, n_tokens;
  int position[S::kMine];
  float low_weight[2], high_weight[2];
  float2 angle[S::kMine][2];

  __device__ __forceinline__ HeadsEnd(const Epilogue &, const NextArgs &next, int tile, int n_tokens_)
      : a(next.heads), head(tile), n_tokens(n_tokens_) {}

  __device__ __forceinline__ bool is_query() const { return head < a.n_heads; }
  __device__ __forceinline__ bool is_value() const { return head >= a.n_heads + a.n_kv_heads; }
  __device__ __forceinline__ const float *weights() const {
    return is_value() ? nullptr : is_query() ? a.q_norm : a.k_norm;
  }

  __device__ __forceinline__ void fetch_rows() {
    const float *w = weights();
#pragma unroll
    for (int i = 0; i < 2; i++) {
      low_weight[i] = w ? w[threadIdx.x % 32 + 32 * i] : 1;
      high_weight[i] = w ? w[threadIdx.x % 32 + 32 * i + 64] : 1;
    }
  }

  __device__ __forceinline__ void fetch(int i, int token) {
    const int row = min(token, n_tokens - 1);
    position[i] = a.pos[row];
#pragma unroll
    for (int p = 0; p < 2; p++)
      angle[i][p] = ((const float2 *)a.rope_table)[(size_t)row * 64 + threadIdx.x % 32 + 32 * p];
  }

  /* Address of a token's head in q or in the cache. */
  __device__ __forceinline__ __half *place(int token, int position) const {
    if (is_query()) return (__half *)a.q + ((size_t)token * a.n_heads + head) * 128;
    const int kv_head = head - a.n_heads - (is_value() ? a.n_kv_heads : 0);
    return (__half *)(is_value() ? a.v_cache : a.k_cache) +
           CacheRows(a.pages, token, a.n_kv_heads, kv_head, a.n_ctx).at(position) * 128;
  }

  __device__ __forceinline__ void finish(int i, int token, const float *sums) {
    const int lane = threadIdx.x % 32;
    if (token >= n_tokens || (position[i] < 0 && !is_query())) return;
    float low[2], high[2];
#pragma unroll
    for (int p = 0; p < 2; p++) low[p] = sums[lane + 32 * p], high[p] = sums[lane + 32 * p + 64];
    if (weights()) normalise_head(low, high, low_weight, high_weight, 128, a.eps);
#pragma unroll
    for (int p = 0; p < 2; p++) {
      if (is_value())
        low[p] = finite_value(low[p]), high[p] = finite_value(high[p]);
      else
        rotate(low[p], high[p], angle[i][p]);
    }
    __half *to = place(token, position[i]) + lane;
#pragma unroll
    for (int p = 0; p < 2; p++)
      to[32 * p] = __float2half_rn(low[p]), to[32 * p + 64] = __float2half_rn(high[p]);
  }
};

/* Writes a lane's fragments to staging: the sums, or gated products. */
template <class S, bool kGated>
__device__ __forceinline__ void stage_results(const Epilogue &out, int tile, int first, float *y,
                                              float *staging) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = tile_row<S>() * kTileOut + g;
  const int of_matrix = tile * S::kTileRows * kTileOut + row;
  if ((out.bias || out.factors) && of_matrix < out.n_out)
    factors_and_biases<S::kMine>(out, of_matrix, first, first + 8 * S::kMine, y);
#pragma unroll
  for (int n = 0; n < S::kMine; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float *to = staging + (8 * n + 2 * t + i) * kStagingStride;
      const float low = y[4 * n + i], high = y[4 * n + i + 2];
      if constexpr (kGated)
        to[tile_row<S>() * 8 + g] = __half2float(clamp_half(gated_result(out, 0, low, high)));
      else
        to[row] = low, to[row + 8] = high;
    }
}

/* finish() of a call with LinearCall.next: an End makes the next operand from the results. */
template <class S, class End, class Consumer>
__device__ __forceinline__ void finish_next(const PartArgs &a, const NextArgs &next, const Ring &ring,
                                            const Consumer &c, float (&y)[4 * S::kMine], const Part &part,
                                            int group) {
  static_assert(S::kRounds == 1, "a group's fragments follow one another");
  if (part.first > 0) {
    Mail<S>(a.mailbox, blockIdx.x).send(y);
    return;
  }
  constexpr int kWarps = S::kGroupThreads / 32, kTokensOfWarp = (8 * S::kOwn + kWarps - 1) / kWarps;
  constexpr int kBarrier = 4; /* kBarrier + 1, too: a barrier for each group */
  static_assert(kTokensOfWarp <= S::kMine, "fetch() has room");
  const int tile = out_tile(a, part.tile), first = group * S::kOwn * 8, warp = threadIdx.x / 32 % kWarps;
  End end(a.out, next, tile, a.n_tokens);
  end.fetch_rows();
#pragma unroll
  for (int i = 0; i < kTokensOfWarp; i++) end.fetch(i, first + warp + i * kWarps);
  if (part.n_units < a.n_units)
    collect<S>(y, a.mailbox, blockIdx.x + 1, last_block(a.cut, blockIdx.x, (part.tile + 1) * a.n_units));
  c.template normalise<S::kMine>(y, first);
  float *staging =
      (float *)(ring.stage(S::kStages) + S::kExchangeBytes) + group * 8 * S::kOwn * kStagingStride;
  if constexpr (S::kInGroups == 1) named_barrier_sync<S::kGroupThreads>(kBarrier); /* staging has been read */
  stage_results<S, End::kGated>(a.out, tile, first, y, staging);
  named_barrier_sync<S::kGroupThreads>(kBarrier + group);
#pragma unroll
  for (int i = 0; i < kTokensOfWarp; i++) {
    const int own = warp + i * kWarps;
    if (own < 8 * S::kOwn && first + own < S::kTokens)
      end.finish(i, first + own, staging + own * kStagingStride);
  }
}

#endif

} // namespace wgmma_parts
