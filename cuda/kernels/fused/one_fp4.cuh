/* one_fp4.cuh - a warp's part of a matmul of FP4 weights with one token's activations (one_matmul.cuh).
 *
 *     y[row] = factor[row] * sum over groups of 128 (d * sum over the group's parts (s[row][part] * sum n X))
 *
 * where x = d X. The weights' numbers n and X are fp16: n exact, X rounded to 11 bits. A word of layout.cuh
 * is a part, 16 inputs with a scale of their own. It is operand a of one mma. Column c of operand b is x of
 * part c of the group, in the same registers for all eight words. Only column c of word c's result is used:
 * lane 4 g + t scales words 2t and 2t + 1 of rows g and g + 8. So no x has to be replaced by 0, and no mma
 * waits for another. */
#pragma once

#include "cuda/kernels/fused/one_block.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

namespace step::one {

constexpr int kPlaneBytes = 2 * STEP_GROUP; /* x of a group: two planes, or halves */

/* x of a warp's groups; the general forms are in one_matmul.cuh. */
template <int kParts> struct Inputs;
template <> struct Inputs<STEP_FP4_PARTS> {
  uint2 x[STEP_SPAN]; /* part g of the group: k 2t, 2t + 1; 8 + 2t, 9 + 2t */
  float scale[STEP_SPAN];
};

__device__ __forceinline__ void take_inputs(Inputs<STEP_FP4_PARTS> &in, const unsigned char *planes,
                                            const float2 *scales, int first, int n, int lane) {
  const int last = max(n, 1) - 1;
#pragma unroll
  for (int i = 0; i < STEP_SPAN; i++) {
    const int group = first + min(i, last);
    in.x[i] = *(const uint2 *)(planes + group * kPlaneBytes + word_at<STEP_FP4_PARTS>(lane, 0));
    in.scale[i] = i < n ? scales[group].x : 0;
  }
}

/* XOR of one word of each load, for Task::some_bits(): code that depends on these bits runs only after all
 * loads of the task have ended. */
__device__ __forceinline__ uint32_t bits_of(const uint4 (&tiles)[2][2][2]) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) bits ^= tiles[i / 4][i / 2 % 2][i % 2].x;
  return bits;
}
template <int kN> __device__ __forceinline__ uint32_t bits_of(const uint32_t (&words)[kN]) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kN; i++) bits ^= words[i];
  return bits;
}

/* The weights that a warp multiplies at once. scale[i]: of group i's parts 2t and 2t + 1, each with a byte
 * for row g and one for row g + 8. factor: of the row whose sum add_lanes() leaves in this lane. */
template <int kParts, bool kVaried = false> struct Task;
template <> struct Task<STEP_FP4_PARTS> {
  uint4 tiles[2][2][2]; /* [pair][64 inputs][group of the pair] */
  uint32_t scale[STEP_SPAN];
  float factor;

  __device__ __forceinline__ uint32_t some_bits() const {
    return bits_of(tiles) ^ bits_of(scale) ^ __float_as_uint(factor);
  }
};

/* The offset in bytes of the lane's scale[i] within the scales of group i (layout.cuh). */
__device__ __forceinline__ int fp4_scales_at(int lane) {
  const int t = lane & 3, g = lane >> 2;
  return (t >> 1) * 64 + g * 8 + (t & 1) * 4;
}

__device__ __forceinline__ void fetch_scales(Task<STEP_FP4_PARTS> &task, uint32_t scales, uint32_t factor) {
#pragma unroll
  for (int i = 0; i < STEP_SPAN; i++) task.scale[i] = load_shared_4(scales + i * kScaleBytes<STEP_FP4_PARTS>);
  task.factor = __uint_as_float(load_shared_4(factor));
}

/* Adds up the lanes of a row. Lanes t = 0, 2 return the sum of row g, lanes t = 1, 3 that of row g + 8. */
__device__ __forceinline__ float add_lanes(const float2 &rows, int t) {
  float y = t & 1 ? rows.y : rows.x;
  y += __shfl_xor_sync(~0u, t & 1 ? rows.x : rows.y, 1);
  return y + __shfl_xor_sync(~0u, y, 2);
}

/* Adds group i of a tile row to `rows`; lane t adds parts 2t and 2t + 1. */
template <class AnyTask>
__device__ __forceinline__ void add_group(float2 &rows, const AnyTask &task, const Inputs<STEP_FP4_PARTS> &in,
                                          int i, int t) {
  const uint32_t even = prmt<0x4140>(task.scale[i], 0u) << 7, odd = prmt<0x4342>(task.scale[i], 0u) << 7;
  const float low[2] = {f16_low(even), f16_low(odd)}, high[2] = {f16_high(even), f16_high(odd)};
  float2 sum = {0, 0};
#pragma unroll
  for (int part = 0; part < STEP_FP4_PARTS; part++) {
    const uint4 tile[1] = {task.tiles[i / 2][part / 4][i % 2]};
    uint32_t a[4];
    float of[4] = {};
    Fp4::numbers(tile, part % 4, a);
    mma_f16_m16n8k16(of, a, in.x[i].x, in.x[i].y);
    if (t == part / 2) {
      sum.x += low[part % 2] * of[part % 2];
      sum.y += high[part % 2] * of[2 + part % 2];
    }
  }
  rows.x += in.scale[i] * sum.x, rows.y += in.scale[i] * sum.y;
}

/* --- varied experts: a warp's groups of down may be of two experts, whose rows have factors of their own,
 * and the last group may be half a group */

template <> struct Task<STEP_FP4_PARTS, true> {
  uint4 tiles[2][2][2];
  uint32_t scale[STEP_SPAN];
  float2 factors[2]; /* of rows g and g + 8 of the stage's first expert, and of its second */
  int first, all;    /* half groups of the first expert, of both experts */

  __device__ __forceinline__ uint32_t some_bits() const {
    return bits_of(tiles) ^ bits_of(scale) ^
           __float_as_uint(factors[0].x + factors[0].y + factors[1].x + factors[1].y);
  }
};

__device__ __forceinline__ void fetch_scales(Task<STEP_FP4_PARTS, true> &task, uint32_t scales,
                                             uint32_t factor) {
#pragma unroll
  for (int i = 0; i < STEP_SPAN; i++) task.scale[i] = load_shared_4(scales + i * kScaleBytes<STEP_FP4_PARTS>);
#pragma unroll
  for (int i = 0; i < 2; i++)
    task.factors[i] = make_float2(__uint_as_float(load_shared_4(factor + i * STEP_FACTOR_BYTES)),
                                  __uint_as_float(load_shared_4(factor + i * STEP_FACTOR_BYTES + 32)));
}

template <class Between>
__device__ __forceinline__ float multiply(const Task<STEP_FP4_PARTS, true> &task,
                                          const Inputs<STEP_FP4_PARTS> &in, int lane, Between between) {
  const int t = lane & 3;
  float2 rows = {0, 0};
#pragma unroll
  for (int i = 0; i < STEP_SPAN; i++) {
    const int half = 2 * i + (t >> 1); /* the half group of the lane's parts */
    if (__all_sync(~0u, in.scale[i] != 0)) {
      float2 sum = {0, 0};
      add_group(sum, task, in, i, t);
      const float2 factor = half < task.first ? task.factors[0] : task.factors[1];
      if (half < task.all) rows.x += sum.x * factor.x, rows.y += sum.y * factor.y;
    }
    if (i == 1) between();
  }
  return add_lanes(rows, t);
}

/* Multiplies a warp's groups of a tile row; between() is called after the first pair. */
template <class Between>
__device__ __forceinline__ float multiply(const Task<STEP_FP4_PARTS> &task, const Inputs<STEP_FP4_PARTS> &in,
                                          int lane, Between between) {
  const int t = lane & 3;
  float2 rows = {0, 0};
#pragma unroll
  for (int i = 0; i < STEP_SPAN; i++) {
    /* Skips groups that the warp does not have: their scales may be NaN. Without a branch the compiler
     * decodes groups long before their turn, and spills. */
    if (__all_sync(~0u, in.scale[i] != 0)) add_group(rows, task, in, i, t);
    if (i == 1) between();
  }
  return add_lanes(rows, t) * task.factor;
}

} // namespace step::one
