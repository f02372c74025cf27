/* few/fp4.cuh - FP4 weights with two, four and eight tokens (few/matmul.cuh).
 *
 *     y[row] = factor[row] * sum over groups of 128 (d * sum over the group's parts (s[row][part] * sum n X))
 *
 * where x = d X. Numbers n of the weights and X are fp16 (halves_of()). A word of layout.cuh is a part: 16
 * inputs with a scale of their own. It is operand a of one mma, which has eight columns. With 2 or 4 tokens a
 * token has several columns, for different parts. These parts are a set: they add up in one accumulator (mT:
 * a column of token T):
 *
 *     8 tokens   set i: part i              | m0 | m1 | m2 | m3 | m4 | m5 | m6 | m7 |
 *     4 tokens   set i: parts 2i, 2i + 1    | m0 | m1 | m2 | m3 | m0 | m1 | m2 | m3 |
 *     2 tokens   set i: parts 4i .. 4i + 3  | m0 | m1 | m0 | m1 | m0 | m1 | m0 | m1 |
 *
 * While a part is multiplied, x is 0 in the columns of the set's other parts. So the parts of a set add up in
 * one accumulator without being mixed. A lane has two columns, two tokens of the same part, and scales them
 * once a set.
 *
 *   x of a group  [pair of sets][column][lane t][set of the pair][8 bytes: k 2t, 2t + 1; 8 + 2t, 9 + 2t] */
#pragma once

#include "cuda/kernels/fused/few/residual.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

namespace step::few {

/* A lane's results with FP4 weights; IntegerSums (few/matmul.cuh) is for integer weights. Until finish() lane
 * 4 g + t has outputs g and g + 8 of tokens 2 t and 2 t + 1, modulo kTokens, summed over its own parts. */
template <class B> struct Fp4Sums {
  static constexpr int kTokens = B::kTokens, kLaneTokens = kTokens == 8 ? 2 : 1, kParts = B::kParts;
  static constexpr int kSetParts = kParts / kTokens; /* parts of a set */
  static constexpr bool kShared = kTokens == 2;      /* lanes t and t + 2 have the same results */
  static constexpr int kAtOnce = 1;                  /* groups that add() takes at once */
  float y[2][2];
  float factor[2];

  /* Where a lane reads its part of a group: shared_address()es, and x_scales as an offset from smem. */
  struct At {
    uint32_t tiles, scales, zeros, planes, x_scales;
  };

  /* Offsets of the lane's part in a group's scales, in a tile row's factors, in x, and in the scales of x. A
   * word has the scales of two parts; with two and four tokens one half of the word is the lane's. */
  static __device__ __forceinline__ int scales_at(int lane) {
    return (lane >> 2) * 8 + (kTokens == 2 ? (lane & 2) * 2 : 0);
  }
  static __device__ __forceinline__ int zeros_at(int lane) { return (lane >> 2) * 4; }
  static __device__ __forceinline__ int planes_at(int lane) { return lane * 16; }
  static __device__ __forceinline__ int x_scales_at(int lane) { return 2 * (lane & 3) % kTokens * 8; }
  static __device__ __forceinline__ int own_half(int lane) {
    return kTokens == 2 ? lane & 1 : kTokens == 4 ? lane >> 1 & 1 : 0;
  }

  /* own[i]: the scales of rows g and g + 8 in the lane's part of set 2 pair + i, as the two low bytes. */
  static __device__ __forceinline__ void own_scales(uint32_t scales, int pair, int lane, uint32_t (&own)[2]) {
    if constexpr (kTokens == 8) {
      own[0] = load_shared_4(scales + pair / 2 * 64 + pair % 2 * 4);
      own[1] = own[0] >> 16;
    } else {
#pragma unroll
      for (int i = 0; i < 2; i++)
        own[i] = load_shared_4(scales + (kTokens == 4 ? pair * 64 + i * 4 : i * 64)) >> (own_half(lane) * 16);
    }
  }

  /* Adds a group. */
  __device__ __forceinline__ void add(const At &at, const unsigned char *smem, bool, int lane) {
    const uint4 tiles[2] = {load_shared_16(at.tiles), load_shared_16(at.tiles + 512)};
    const float4 x_scales = *(const float4 *)(smem + at.x_scales);
    float sum[2][2] = {};
#pragma unroll
    for (int pair = 0; pair < kTokens / 2; pair++) {
      const uint4 x = load_shared_16(at.planes + pair * 512);
      uint32_t own[2];
      own_scales(at.scales, pair, lane, own);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float of[4] = {};
#pragma unroll
        for (int j = 0; j < kSetParts; j++) {
          const int part = (2 * pair + i) * kSetParts + j;
          const bool mine = kSetParts == 1 || lane / (4 * kTokens) == j;
          const uint4 tile[1] = {tiles[part / 4]};
          uint32_t a[4];
          Fp4::numbers(tile, part % 4, a);
          mma_f16_m16n8k16(of, a, mine ? (i ? x.z : x.x) : 0, mine ? (i ? x.w : x.y) : 0);
        }
        const uint32_t scale = prmt<0x4140>(own[i], 0u) << 7;
#pragma unroll
        for (int r = 0; r < 2; r++) {
          sum[0][r] += f16_low(scale) * of[r];
          sum[1][r] += f16_high(scale) * of[2 + r];
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) y[h][0] += x_scales.x * sum[h][0], y[h][1] += x_scales.z * sum[h][1];
    factor[0] = __uint_as_float(load_shared_4(at.zeros));
    factor[1] = __uint_as_float(load_shared_4(at.zeros + 32));
  }

  /* Completes the outputs after the last group and moves them to the lanes that IntegerSums has them in:
   * y[][0] is of token t % kTokens, or with eight tokens y[][r] of token 2 t + r. */
  __device__ __forceinline__ void finish(int lane) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if constexpr (kTokens < 8) {
        constexpr int kOther = kTokens == 4 ? 2 : 1; /* XOR to the lane that wants the other token */
        const bool second = lane & kOther;
        float v = second ? y[h][1] : y[h][0];
        v += __shfl_xor_sync(~0u, second ? y[h][0] : y[h][1], kOther);
        if (kTokens == 2) v += __shfl_xor_sync(~0u, v, 2);
        if (kTokens == 4) v = __shfl_sync(~0u, v, (lane & ~3) | (lane & 1) << 1 | (lane >> 1 & 1));
        y[h][0] = v;
      }
#pragma unroll
      for (int r = 0; r < kLaneTokens; r++) y[h][r] *= factor[h];
    }
  }
};

} // namespace step::few
