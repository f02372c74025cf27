/* one_bytes.cuh - a warp's part of a matmul of weights of 8 bits with one token's activations (see
 * one_matmul.cuh).
 *
 *     FP8    y[row] = factor[row] * sum over groups of 128 (d * s[row][group] * sum n X),   x = d X
 *     int8   y[row] = factor[row] * d * sum w X,   with one d for all x
 *
 * A warp takes two groups at once, as many bytes as four groups of 4-bit weights. Column c of operand b is x
 * of the c-th 16 inputs of a group (FP8), or of the c-th 32 of both groups' 256 inputs (int8), in the
 * same registers for all mma. The mma of the c-th inputs has x = 0 in all other columns. So all mma of a
 * group (int8: of both groups) may add to one accumulator. Two accumulators take turns, to hide latency.
 *
 * FP8: X is fp16, as with FP4. The four numbers of a word are of inputs k 2t, 2t + 8, 2t + 1, 2t + 9
 * (layout.cuh); the tensor cores expect 2t, 2t + 1, 2t + 8, 2t + 9. take_inputs() permutes x in the same way.
 *
 * int8 is W8A8: x is rounded to fp16, as between separate kernels, then to int8 as int8_token.cu defines it.
 * All inputs of the matrix share d. A block has all x of qkv, gate and up, and multiplies it by 1 / rms
 * first. For o and down a cluster has only some of x, so the clusters exchange the largest |x|. Each block
 * sends its cluster's largest |x| to the blocks of the same rank in the other clusters, and waits for the
 * values that they send.
 *
 *     words  uint64 [o, down][8 ranks][STEP_MAX_CLUSTERS]  63 .. 32: launch and layer | 31 .. 0: largest |x|
 *
 * A word is used again only after its readers have contributed to a sum of o or down that its writer waits
 * for. */
#pragma once

#include <float.h>

#include "cuda/kernels/fused/one_fp4.cuh"
#include "cuda/kernels/fused/one_residual.cuh"

namespace step::one {

/* The weights that a warp multiplies at once; vectors of layout.cuh. */
struct ByteTiles {
  uint4 tiles[2][2][2]; /* [group][64 inputs][vector] */
  float factor;         /* of the row whose sum add_lanes() leaves in this lane */

  __device__ __forceinline__ uint32_t some_bits() const { return bits_of(tiles) ^ __float_as_uint(factor); }
};

/* --- FP8 */

template <> struct Inputs<STEP_FP8_PARTS> {
  /* Lane 4 g + t: of inputs 16 g .. 16 g + 15 of the group, k 2t, 2t + 8; 2t + 1, 2t + 9. */
  uint2 x[STEP_BYTES_SPAN];
  float scale[STEP_BYTES_SPAN];
};
template <> struct Task<STEP_FP8_PARTS> : ByteTiles {
  uint32_t scale[STEP_BYTES_SPAN]; /* fp16 of rows g and g + 8 */

  __device__ __forceinline__ uint32_t some_bits() const { return ByteTiles::some_bits() ^ bits_of(scale); }
};

__device__ __forceinline__ void take_inputs(Inputs<STEP_FP8_PARTS> &in, const unsigned char *planes,
                                            const float2 *scales, int first, int n, int lane) {
  const int last = max(n, 1) - 1;
#pragma unroll
  for (int i = 0; i < STEP_BYTES_SPAN; i++) {
    const int group = first + min(i, last);
    const uint2 x = *(const uint2 *)(planes + group * kPlaneBytes + word_at<STEP_FP8_PARTS>(lane, 0));
    in.x[i] = make_uint2((x.x & 0xffffu) | x.y << 16, x.x >> 16 | (x.y & 0xffff0000u));
    /* The matrix's factors include 256, for kernels that read 1 / 256 of each number (Fp8). */
    in.scale[i] = i < n ? scales[group].x * (1 / 256.0f) : 0;
  }
}

__device__ __forceinline__ void fetch_scales(Task<STEP_FP8_PARTS> &task, uint32_t scales, uint32_t factor) {
#pragma unroll
  for (int i = 0; i < STEP_BYTES_SPAN; i++)
    task.scale[i] = load_shared_4(scales + i * kScaleBytes<STEP_FP8_PARTS>);
  task.factor = __uint_as_float(load_shared_4(factor));
}

template <class Between>
__device__ __forceinline__ float multiply(const Task<STEP_FP8_PARTS> &task, const Inputs<STEP_FP8_PARTS> &in,
                                          int lane, Between between) {
  const int t = lane & 3, own = lane >> 2; /* own: the lane's column, for inputs 16 own .. 16 own + 15 */
  float2 rows = {0, 0};
#pragma unroll
  for (int i = 0; i < STEP_BYTES_SPAN; i++) {
    if (__all_sync(~0u, in.scale[i] != 0)) { /* what lies after the warp's groups may be NaN */
      float sum[2][4] = {};
#pragma unroll
      for (int step = 0; step < 8; step++) { /* neighbouring mma add to different sums, which hides latency */
        const uint4 &four = task.tiles[i][step / 4][step % 4 / 2];
        uint32_t row[2], other[2]; /* g, g + 8 */
        e4m3_halves(step % 2 ? four.z : four.x, row);
        e4m3_halves(step % 2 ? four.w : four.y, other);
        const uint32_t a[4] = {row[0], other[0], row[1], other[1]};
        mma_f16_m16n8k16(sum[step % 2], a, own == step ? in.x[i].x : 0, own == step ? in.x[i].y : 0);
      }
      rows.x += in.scale[i] * f16_low(task.scale[i]) * (sum[0][0] + sum[0][1] + (sum[1][0] + sum[1][1]));
      rows.y += in.scale[i] * f16_high(task.scale[i]) * (sum[0][2] + sum[0][3] + (sum[1][2] + sum[1][3]));
    }
    if (i == 0) between();
  }
  return add_lanes(rows, t) * task.factor;
}

/* --- int8 */

template <> struct Inputs<STEP_INT8_PARTS> {
  uint2 x; /* lane 4 g + t: 8 of inputs 32 g .. 32 g + 31, counted through both groups */
  float scale;
};
template <> struct Task<STEP_INT8_PARTS> : ByteTiles {};

__device__ __forceinline__ void take_inputs(Inputs<STEP_INT8_PARTS> &in, const unsigned char *x,
                                            const float2 *scales, int first, int n, int lane) {
  const int t = lane & 3, own = lane >> 2, group = own >> 2;
  x += (first + min(group, max(n, 1) - 1)) * kPlaneBytes + (own >> 1 & 1) * 64 + t * 16 + (own & 1) * 8;
  in.x = group < n ? *(const uint2 *)x : make_uint2(0, 0);
  in.scale = scales->x;
}

__device__ __forceinline__ void fetch_scales(Task<STEP_INT8_PARTS> &task, uint32_t, uint32_t factor) {
  task.factor = __uint_as_float(load_shared_4(factor));
}

template <class Between>
__device__ __forceinline__ float multiply(const Task<STEP_INT8_PARTS> &task,
                                          const Inputs<STEP_INT8_PARTS> &in, int lane, Between between) {
  const int t = lane & 3, own = lane >> 2;
  int sum[2][4] = {};
#pragma unroll
  for (int step = 0; step < 8; step++) {
    const uint4 &low = task.tiles[step / 4][step / 2 % 2][0], &high = task.tiles[step / 4][step / 2 % 2][1];
    uint32_t a[4] = {low.x, high.x, low.y, high.y};
    if (step % 2) a[0] = low.z, a[1] = high.z, a[2] = low.w, a[3] = high.w;
    mma_s8s8_m16n8k32(sum[step % 2], a, own == step ? in.x.x : 0, own == step ? in.x.y : 0);
    if (step == 3) between();
  }
  const int low = sum[0][0] + sum[0][1] + (sum[1][0] + sum[1][1]),
            high = sum[0][2] + sum[0][3] + (sum[1][2] + sum[1][3]);
  int y = t & 1 ? high : low;
  y += __shfl_xor_sync(~0u, t & 1 ? low : high, 1);
  y += __shfl_xor_sync(~0u, y, 2);
  return (float)y * (in.scale * task.factor);
}

/* The largest magnitude of the lane's values as bits, which order infinity and NaN above any number. */
__device__ __forceinline__ uint32_t magnitude_bits(const float (&v)[4]) {
  return max(max(__float_as_uint(fabsf(v[0])), __float_as_uint(fabsf(v[1]))),
             max(__float_as_uint(fabsf(v[2])), __float_as_uint(fabsf(v[3]))));
}

/* Sends `own`, the largest of this cluster's magnitude_bits() of x. Waits for the values of the first n
 * clusters, and returns the largest value. For one warp. */
template <class B>
__device__ __forceinline__ uint32_t largest_of_clusters(const B &b, int matrix, int n, uint32_t own) {
  uint64_t *words =
      b.args.bounds + kLargestAt + ((matrix == DOWN) * STEP_BLOCKS + b.rank()) * STEP_MAX_CLUSTERS;
  const uint32_t tag = b.args.turn * b.plan.shape.n_layers + b.layer();
  if (b.lane() == 0) store_relaxed_8(words + b.cluster(), (uint64_t)tag << 32 | own);
  words += min(b.lane(), n - 1);
  uint64_t word = load_relaxed_8(words);
  const long long since = B::kIsDebug ? clock64() : 0;
  while (!__all_sync(~0u, (uint32_t)(word >> 32) == tag)) {
    if (B::kIsDebug) b.check_patience(since, STEP_AT_VALUES, matrix, (int)(word >> 32));
    backoff();
    if ((uint32_t)(word >> 32) != tag) word = load_relaxed_8(words);
  }
  return __reduce_max_sync(~0u, (uint32_t)word);
}

/* The scale d of a matrix's x, from magnitude_bits() of the lane's values; x is the values times `inverse`.
 * NaN if a value is infinite or NaN; FLT_EPSILON if d would be 0. For all warps that multiply. */
template <class B>
__device__ __forceinline__ float int8_scale(const B &b, int matrix, uint32_t bits, float inverse) {
  uint32_t *largest = (uint32_t *)b.lm_head_sums(); /* of each warp, then of all clusters */
  bits = __reduce_max_sync(~0u, bits);
  if (b.lane() == 0) largest[b.warp()] = bits;
  b.sync();
  if (matrix == QKV || matrix == GATE_UP) {
    bits = __reduce_max_sync(~0u, largest[b.lane() % STEP_WARPS]);
  } else {
    if (b.warp() == 0) {
      bits = __reduce_max_sync(~0u, largest[b.lane() % STEP_WARPS]);
      bits = largest_of_clusters(b, matrix, matrix == O ? b.plan.attending : b.plan.shape.n_clusters, bits);
      if (b.lane() == 0) largest[STEP_WARPS] = bits;
    }
    b.sync();
    bits = largest[STEP_WARPS];
  }
  if (bits >= 0x7f800000u) return __uint_as_float(0x7fffffffu);
  const float scale = __fdiv_rn(__half2float(clamp_half(__uint_as_float(bits) * inverse)), 127.5f);
  return scale == 0 ? FLT_EPSILON : scale;
}

/* Stores the lane's values of a group, times `inverse`, divided by `scale`, as int8 in the group at `to`. */
__device__ __forceinline__ void store_int8(const float (&v)[4], float inverse, float scale, unsigned char *to,
                                           int lane) {
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) { /* the low bits of the sum are the nearest integer */
    const float x = __half2float(clamp_half(v[i] * inverse));
    const int p = (int)(__float_as_uint(__fadd_rn(__fdiv_rn(x, scale), kIntBias)) - (unsigned)kIntBiasBits);
    word |= (uint32_t)(min(p, 127) & 255) << (8 * i);
  }
  *(uint32_t *)(to + (lane >> 4) * 64 + (lane & 3) * 16 + (lane >> 2 & 3) * 4) = word;
}

/* Rounds x of a matmul, n groups of floats at `from`, to int8 in planes(), with one scale for all of x in
 * scales(). Each warp takes every STEP_WARPS-th group. Layout of a group: [2 halves of 64 inputs][lane
 * t][words of layout.cuh]. */
template <class B>
__device__ __forceinline__ void take_int8(const B &b, int matrix, const float *from, int n) {
  const int lane = b.lane();
  const float inverse = matrix == DOWN ? 1 : inverse_of_x(b);
  from += (lane >> 2) * 16 + 2 * (lane & 3);
  const auto read = [&](int group, float(&v)[4]) {
    const float2 low = *(const float2 *)(from + group * STEP_GROUP),
                 high = *(const float2 *)(from + group * STEP_GROUP + 8);
    v[0] = low.x, v[1] = high.x, v[2] = low.y, v[3] = high.y;
  };
  uint32_t bits = 0;
  float v[4];
#pragma unroll 1
  for (int i = b.warp(); i < n; i += STEP_WARPS) {
    read(i, v);
    bits = max(bits, magnitude_bits(v));
  }
  const float scale = int8_scale(b, matrix, bits, inverse);
#pragma unroll 1
  for (int i = b.warp(); i < n; i += STEP_WARPS) {
    read(i, v);
    store_int8(v, inverse, scale, b.planes() + i * kPlaneBytes, lane);
  }
  if (b.thread() == 0) b.scales()->x = scale;
}

} // namespace step::one
