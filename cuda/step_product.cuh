/* step_product.cuh - a block's share of a product with one row of activations, from pieces in the ring.
 *
 *     sums[k][row] = sum over the groups of warp k of s (sum q X - z sum X) d,   x = d X (planes.cuh)
 *
 * Piece i of a share belongs to team i % 4, so a team keeps its part of the inputs, and each of its warps the
 * groups that are its own, in registers for the whole share: as operand b of mma_u8s8_m16n8k32, whose columns
 * are the two planes of x, four times over. A warp takes its groups of one tile row of a piece after another:
 *
 *     4 tile rows, k_warps 1       2 tile rows, k_warps 2            2 tile rows, k_warps 4
 *       row 0  | warp 0 |            row 0  | warp 0 | warp 1 |        row 0  | w 0 | w 1 | w 2 | w 3 |
 *       row 1  | warp 1 |            row 1  | warp 2 | warp 3 |        row 1  | w 0 | w 1 | w 2 | w 3 |
 *       row 2  | warp 2 |
 *       row 3  | warp 3 |
 *
 * All four lanes t of a row hold the sums of all groups; lane t scales those of group t. Rows g + 8 are
 * multiplied as whole bytes, 16 times too large and with row g's nibble below: its sum is taken off at the
 * end, which saves the mask. PRECOND  cut.span == kSpan, at most 4. */
#ifndef AUK_CUDA_STEP_PRODUCT_CUH
#define AUK_CUDA_STEP_PRODUCT_CUH

#include "cuda/planes.cuh"
#include "cuda/step_block.cuh"

namespace step {

/* Activations of a warp's groups; scale and scale * sum of group t in lane t, 0 where there is none. */
template <int kSpan> struct Inputs {
  uint4 x[kSpan][2];
  float scale, scaled_sum;
};

/* Takes groups first .. of `from` (shared memory, 128 floats each), n of them (those past n are the last one
 * again, of scale 0). `planes`: 512 bytes of this warp. */
template <int kSpan>
__device__ __forceinline__ void take_inputs(Inputs<kSpan> &in, const float *from, int first, int n,
                                            unsigned char *planes, int lane) {
  const int t = lane % 4, g = lane / 4;
  in.scale = in.scaled_sum = 0;
#pragma unroll
  for (int i0 = 0; i0 < kSpan; i0 += 2) {
#pragma unroll
    for (int i = i0; i < i0 + 2 && i < kSpan; i++) {
      const float *at = from + (first + max(0, min(i, n - 1))) * STEP_GROUP + g * 16 + 2 * t;
      const float2 low = *(const float2 *)at, high = *(const float2 *)(at + 8);
      const float v[4] = {low.x, high.x, low.y, high.y};
      uint32_t word[2];
      int sum;
      const float d = quantise_values<2, STEP_GROUP>(v, word, &sum);
      if (t == i && i < n) in.scale = d, in.scaled_sum = d * (float)sum;
      unsigned char *to = planes + (i - i0) * 256 + g / 4 * 128 + t * 16 + g % 4 * 4;
      *(uint32_t *)to = word[0];
      *(uint32_t *)(to + 64) = word[1];
    }
    __syncwarp();
#pragma unroll
    for (int i = i0; i < i0 + 2 && i < kSpan; i++)
#pragma unroll
      for (int c = 0; c < 2; c++)
        in.x[i][c] = *(const uint4 *)(planes + (i - i0) * 256 + c * 128 + g % 2 * 64 + t * 16);
    __syncwarp();
  }
}

/* What a warp takes of one tile row. */
template <int kSpan> struct Weights {
  uint4 tile[kSpan][2];
  uint32_t scale, zero; /* of lane t's group */

  /* Of a piece's tile row: from its tiles of the warp's first group, and the scale and zero of the lane's. */
  __device__ __forceinline__ void take(const unsigned char *tiles, const unsigned char *its_scale,
                                       const unsigned char *its_zero) {
#pragma unroll
    for (int i = 0; i < kSpan; i++)
#pragma unroll
      for (int c = 0; c < 2; c++) tile[i][c] = *(const uint4 *)(tiles + i * 1024 + c * 512);
    scale = *(const uint32_t *)its_scale;
    zero = *its_zero;
  }
};

/* The sum over this warp's groups: of row g in lanes t = 0, 2, of row g + 8 in lanes 1, 3. */
template <int kSpan>
__device__ __forceinline__ float multiply(const Weights<kSpan> &w, const Inputs<kSpan> &in, int lane) {
  constexpr float kStart =
      12582912.0f; /* 1.5 * 2^23: sums as floats without conversion, as they are < 2^22 */
  const int t = lane % 4;
  int acc[kSpan][4];
#pragma unroll
  for (int i = 0; i < kSpan; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0x4b400000;
#pragma unroll
  for (int step = 0; step < 4; step++)
#pragma unroll
    for (int i = 0; i < kSpan; i++) { /* neighbours are of different sums: one's latency is another's work */
      const uint4 &v = w.tile[i][step / 2], &x = in.x[i][step / 2];
      const uint32_t low = step % 2 ? v.z : v.x, high = step % 2 ? v.w : v.y;
      const uint32_t operand[4] = {low & 0x0f0f0f0fu, low, high & 0x0f0f0f0fu, high};
      mma_u8s8_m16n8k32(acc[i], operand, step % 2 ? x.z : x.x, step % 2 ? x.w : x.y);
    }
  float sum[4];
#pragma unroll
  for (int e = 0; e < 4; e++) {
    int own = acc[0][e];
#pragma unroll
    for (int i = 1; i < kSpan; i++) own = t == i ? acc[i][e] : own;
    sum[e] = __int_as_float(own) - kStart;
  }
  const float low = 256.0f * sum[0] + sum[1], high = (256.0f * sum[2] + sum[3] - low) * 0.0625f;
  const float y_low = scale_low(w.scale) * (in.scale * low - small_float(w.zero & 15) * in.scaled_sum);
  const float y_high = scale_high(w.scale) * (in.scale * high - small_float(w.zero >> 4) * in.scaled_sum);
  float y = t % 2 ? y_high : y_low;
  y += __shfl_xor_sync(~0u, t % 2 ? y_low : y_high, 1);
  return y + __shfl_xor_sync(~0u, y, 2);
}

/* stride: floats from the sums of one warp along k to the next. Of groups that a warp has not it reads
 * whatever lies behind, which its scales of 0 make count for nothing. */
template <int kSpan, bool kDebug>
__device__ __forceinline__ void product_of_span(Block<kDebug> &b, const Share &share, const float *from,
                                                int stride) {
  const StepCut &cut = share.cut;
  const int team = b.warp / STEP_TEAM_WARPS, mate = b.warp % STEP_TEAM_WARPS, lane = b.lane;
  const int part = team % cut.parts, g0 = first_group(cut, part), n = first_group(cut, part + 1) - g0;
  const int k = mate % cut.k_warps, row0 = mate / cut.k_warps, at_once = STEP_TEAM_WARPS / cut.k_warps;
  const int first = min(k * cut.span, n - 1), mine = min(cut.span, n - k * cut.span);
  Inputs<kSpan> in;
  take_inputs<kSpan>(in, from, g0 + first, mine, b.state() + b.args().plan.at.planes + b.warp * 512, lane);

  /* In a piece: the tiles of this lane's first group, and the scale and zero of the lane's own. */
  const int own = first + max(min(lane % 4, mine - 1), 0), n_slots = b.args().plan.n_slots;
  const int scales_at = cut.rows * n * 1024 + own * 32 + lane / 4 * 4;
  const int zeros_at = cut.rows * n * (1024 + 32) + (zeros_are_odd(share, g0) ? 8 : 0) + own * 8 + lane / 4;
  float *to = b.sums() + (part * cut.k_warps + k) * stride + lane / 4 + lane % 4 * 8;
  const int pieces = n_pieces(cut, share.n_rows), turn = STEP_TEAMS / cut.parts * cut.rows;
  RingAt at = b.next;
  at.move(team, n_slots);
  for (int i = team, local = team / cut.parts * cut.rows; i < pieces; i += STEP_TEAMS, local += turn) {
    const unsigned char *piece = b.take_piece(at);
    const int end = min(cut.rows, share.n_rows - local);
#pragma unroll 1
    for (int row = row0; row < end; row += at_once) {
      Weights<kSpan> w;
      w.take(piece + (row * n + first) * 1024 + lane * 16, piece + scales_at + row * n * 32,
             piece + zeros_at + row * zeros_stride(n));
      const float y = multiply<kSpan>(w, in, lane);
      if (lane % 4 < 2) to[(local + row) * 16] = y;
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&b.barriers()->empty[at.slot]);
    at.move(STEP_TEAMS, n_slots);
  }
  b.next.move(pieces, b.args().plan.n_slots);
}

/* The whole share, by all warps that multiply; then all of them may read the sums. */
template <bool kDebug>
__device__ __forceinline__ void product(Block<kDebug> &b, int matrix, const float *from, int stride) {
  const Share share = share_of(b, matrix);
  switch (share.cut.span) {
  case 1: product_of_span<1>(b, share, from, stride); break;
  case 2: product_of_span<2>(b, share, from, stride); break;
  default: product_of_span<3>(b, share, from, stride); break;
  }
  b.sync();
}

} // namespace step

#endif
