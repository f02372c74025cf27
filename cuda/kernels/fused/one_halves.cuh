/* one_halves.cuh - a warp's part of a matmul of fp16 weights with one token's activations (one_matmul.cuh).
 *
 *     y[row] = sum over groups of 128 (d * sum w X),   x = d X, X in fp16 as with FP4
 *
 * Rows come as tensor boxes of 128 bytes in the 128-byte swizzle: vector j (8 inputs) of row r lies at place
 * j ^ r % 8 of its 128 bytes. Lane 4 g + t has vectors t and 4 + t of two rows in each 64 inputs. It
 * multiplies them in the order in which they lie: two mma a vector. The lane's rows are half_row() and
 * half_row() + 8. The eight lanes of two neighbouring g read at once. They take four places of one row and
 * the other four of the row 4 further: all banks.
 *
 *     g     0 1 2 3 4 5 6 7
 *     row   0 4 1 5 2 6 3 7
 *
 * A warp takes one group at once, as many bytes as four of 4-bit weights. Column c of operand b is x of the
 * c-th mma, and is 0 in all other mma. */
#pragma once

#include "cuda/kernels/fused/one_fp4.cuh"

namespace step::one {

__device__ __forceinline__ int half_row(int lane) {
  return lane >> 3 | (lane >> 2 & 1) << 2;
}

/* Where the lane's first vector lies in a tile row of a stage. Stages begin at the same place modulo
 * 1,024. */
template <class B> __device__ __forceinline__ int half_offset(const B &b) {
  const int row = half_row(b.lane()), turn = row + (int)(b.stage_address({0, 0}) >> 7);
  return row * 128 + ((b.lane() ^ turn) & 3 | turn & 4) * 16;
}

/* The address of the lane's vector 4 * half + t in row half_row() + 8 * row of a tile. `first`: the address
 * where the warp's part of a stage begins, a multiple of 128, plus half_offset(). */
__device__ __forceinline__ uint32_t halves_at(uint32_t first, int tile, int half, int row) {
  return (half ? first ^ 64 : first) + tile * 2048 + row * 1024;
}

template <> struct Inputs<STEP_HALF_PARTS> {
  uint2 x; /* of mma g: the first or the last four inputs of one of the lane's vectors */
  float scale;
};
template <> struct Task<STEP_HALF_PARTS> {
  uint4 tiles[2][2][2]; /* [64 inputs][half of them][row half_row(), 8 further] */

  __device__ __forceinline__ uint32_t some_bits() const { return bits_of(tiles); }
};

__device__ __forceinline__ void fetch_scales(Task<STEP_HALF_PARTS> &, uint32_t, uint32_t) {}

__device__ __forceinline__ void take_inputs(Inputs<STEP_HALF_PARTS> &in, const unsigned char *x,
                                            const float2 *scales, int first, int n, int lane) {
  /* Sixteen inputs of x are eight words: for each i = 0 .. 3 {2 i, 2 i + 1} and {8 + 2 i, 9 + 2 i}. */
  const int g = lane >> 2, vector = (g >> 1) * 4 + (lane & 3);
  x += first * kPlaneBytes + (vector >> 1) * 32 + (g & 1) * 16 + (vector & 1) * 4;
  in.x = make_uint2(*(const uint32_t *)x, *(const uint32_t *)(x + 8));
  /* Scales of x include the factor Fp4::kOfScale, which fp16 weights do not need. */
  in.scale = n > 0 ? scales[first].x * (1 / Fp4::kOfScale) : 0;
}

template <class Between>
__device__ __forceinline__ float multiply(const Task<STEP_HALF_PARTS> &task,
                                          const Inputs<STEP_HALF_PARTS> &in, int lane, Between between) {
  const int t = lane & 3, own = lane >> 2;
  float2 rows = {0, 0};
  if (__all_sync(~0u, in.scale != 0)) { /* a warp without a group may have read NaN */
    float sum[2][4] = {};
#pragma unroll
    for (int step = 0; step < 8; step++) {
      const uint4 &low = task.tiles[step / 4][step / 2 % 2][0], &high = task.tiles[step / 4][step / 2 % 2][1];
      uint32_t a[4] = {low.x, high.x, low.y, high.y};
      if (step % 2) a[0] = low.z, a[1] = high.z, a[2] = low.w, a[3] = high.w;
      mma_f16_m16n8k16(sum[step % 2], a, own == step ? in.x.x : 0, own == step ? in.x.y : 0);
    }
    rows.x = in.scale * (sum[0][0] + sum[0][1] + (sum[1][0] + sum[1][1]));
    rows.y = in.scale * (sum[0][2] + sum[0][3] + (sum[1][2] + sum[1][3]));
  }
  between();
  return add_lanes(rows, t);
}

} // namespace step::one
