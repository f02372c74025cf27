/* step_product.cuh - a block's share of a product with one row of activations, from pieces in the ring.
 *
 *     sums[k][row] = sum over the groups of warp k of s (sum q X - z sum X) d,   x = d X (planes.cuh)
 *
 * First all warps turn the activations into planes of integers, a group of 128 each at a time, in shared
 * memory. Piece i of a share belongs to team i % 4, so a team keeps its part of the inputs, and each of its
 * warps the groups that are its own, at most four, in registers for the whole share: as operand b of
 * mma_u8s8_m16n8k32, whose columns are the two planes of x, four times over. A warp takes its groups of one
 * tile row of a piece after another:
 *
 *     4 tile rows, k_warps 1       2 tile rows, k_warps 2            1 tile row, k_warps 4
 *       row 0  | warp 0 |            row 0  | warp 0 | warp 1 |        row 0  | w 0 | w 1 | w 2 | w 3 |
 *       row 1  | warp 1 |            row 1  | warp 2 | warp 3 |
 *       row 2  | warp 2 |                                              (of 10 groups and fewer two rows)
 *       row 3  | warp 3 |
 *
 * All four lanes t of a row hold the sums of all groups; lane t scales those of group t. Rows g + 8 are
 * multiplied as whole bytes, 16 times too large and with row g's nibble below: its sum is taken off at the
 * end, which saves the mask. */
#ifndef AUK_CUDA_STEP_PRODUCT_CUH
#define AUK_CUDA_STEP_PRODUCT_CUH

#include "cuda/planes.cuh"
#include "cuda/step_block.cuh"

namespace step {

constexpr int kSpan = STEP_SPAN, kPlaneBytes = 2 * STEP_GROUP; /* of a group */
static_assert(kSpan == 4, "lane t scales group t");

/* Turns `n` groups of activations in shared memory into planes and, each, {scale, scale * sum}, a warp one
 * after the other. Within a group: [64 inputs][plane][lane t][words 0, 2, 1, 3 of layout.cuh]. */
template <bool kDebug>
__device__ __forceinline__ void make_planes(const Block<kDebug> &b, const float *from, int n) {
  const int t = b.lane() & 3, g = b.lane() >> 2;
  unsigned char *to =
      b.planes() + b.warp() * kPlaneBytes + (g >> 2) * 128 + t * 16 + (g & 1) * 8 + (g & 2) * 2;
  from += b.warp() * STEP_GROUP + g * 16 + 2 * t;
#pragma unroll 1
  for (int i = b.warp(); i < n; i += STEP_WARPS) {
    const float2 low = *(const float2 *)from, high = *(const float2 *)(from + 8);
    const float v[4] = {low.x, high.x, low.y, high.y};
    uint32_t word[2];
    int sum;
    const float d = quantise_values<2, STEP_GROUP>(v, word, &sum);
    *(uint32_t *)to = word[0];
    *(uint32_t *)(to + 64) = word[1];
    if (b.lane() == 0) b.scales()[i] = make_float2(d, d * (float)sum);
    from += STEP_WARPS * STEP_GROUP, to += STEP_WARPS * kPlaneBytes;
  }
}

/* Activations of a warp's groups; scale and scale * sum of group t in lane t, 0 where there is none. */
struct Inputs {
  uint4 x[kSpan][2];
  float scale, scaled_sum;
};

/* Takes n groups from `first` on; past them some group again, of scale 0. */
template <bool kDebug>
__device__ __forceinline__ void take_inputs(const Block<kDebug> &b, Inputs &in, int first, int n) {
  const int t = b.lane() & 3, g = b.lane() >> 2;
  const unsigned char *from = b.planes() + (g & 1) * 64 + t * 16;
#pragma unroll
  for (int i = 0; i < kSpan; i++)
#pragma unroll
    for (int c = 0; c < 2; c++)
      in.x[i][c] = *(const uint4 *)(from + (first + min(i, max(n, 1) - 1)) * kPlaneBytes + c * 128);
  const float2 scale = b.scales()[first + min(t, max(n, 1) - 1)];
  in.scale = t < n ? scale.x : 0, in.scaled_sum = t < n ? scale.y : 0;
}

/* The sum over this warp's groups of a tile row: of row g in lanes t = 0, 2, of row g + 8 in lanes 1, 3.
 * `tiles`: of the warp's first group and this lane; scale, zero: of lane t's group.
 *
 * A product takes words 1 and 3 of a tile, the next 0 and 2: so two of four raw words are where a product
 * wants them when they come. */
__device__ __forceinline__ float multiply(const Inputs &in, uint32_t tiles, uint32_t scale, uint32_t zero,
                                          int t) {
  constexpr float kStart =
      12582912.0f; /* 1.5 * 2^23: sums as floats without conversion, as they are < 2^22 */
  float sum[4];    /* of group t */
#pragma unroll
  for (int i0 = 0; i0 < kSpan; i0 += 2) {
    int acc[2][4];
    uint4 tile[2][2];
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
      for (int i = 0; i < 2; i++) tile[i][c] = load_shared_16(tiles + (i0 + i) * 1024 + c * 512);
#pragma unroll
    for (int i = 0; i < 2; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0x4b400000;
#pragma unroll
    for (int step = 0; step < 4; step++)
#pragma unroll
      for (int i = 0; i < 2; i++) { /* neighbours are of different sums: one's latency is another's work */
        const uint4 &v = tile[i][step / 2], &x = in.x[i0 + i][step / 2];
        const uint32_t one = step % 2 ? v.y : v.x, two = step % 2 ? v.w : v.z;
        const uint32_t operand[4] = {one & 0x0f0f0f0fu, one, two & 0x0f0f0f0fu, two};
        mma_u8s8_m16n8k32(acc[i], operand, step % 2 ? x.z : x.x, step % 2 ? x.w : x.y);
      }
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (i0 == 0 || t & 2) sum[e] = __int_as_float(t & 1 ? acc[1][e] : acc[0][e]) - kStart;
  }
  const float low = 256.0f * sum[0] + sum[1], high = (256.0f * sum[2] + sum[3] - low) * 0.0625f;
  const float y_low = scale_low(scale) * (in.scale * low - small_float(zero & 15) * in.scaled_sum);
  const float y_high = scale_high(scale) * (in.scale * high - small_float(zero >> 4) * in.scaled_sum);
  float y = t & 1 ? y_high : y_low;
  y += __shfl_xor_sync(~0u, t & 1 ? y_low : y_high, 1);
  return y + __shfl_xor_sync(~0u, y, 2);
}

/* kTurns: 1, or 2 where shares of the plan have two.
 *
 * The whole share, by all warps that multiply, when wait() says that the inputs are there; then all of them
 * may read the sums. Of groups that a warp has not it multiplies whatever lies behind, which its scales of 0
 * make count for nothing; of rows past the last it leaves sums that nobody reads. */
template <int kTurns, bool kDebug, class Wait>
__device__ __forceinline__ void product(Block<kDebug> &b, int matrix, const float *from, Wait wait) {
  const Share &share = b.share(matrix);
  const int team = b.warp() >> 2, mate = b.warp() & 3, t = b.lane() & 3, g = b.lane() >> 2;
  const int log_k = share.log_k_warps, part = team & ((1 << share.log_parts) - 1);
  const int g0 = first_group(share, part), n = first_group(share, part + 1) - g0;
  const int k = mate & ((1 << log_k) - 1), row = mate >> log_k, rows = 1 << share.log_rows;
  const int span = (n + (1 << log_k) - 1) >> log_k; /* groups of a warp, the last of which may have fewer */
  const int first = min(k * span, n - 1), mine = min(span, n - k * span),
            own = first + max(min(t, mine - 1), 0);
  /* In a piece: the tiles of this lane's first group, and the scale and zero of the lane's own. */
  const uint32_t tiles_at = forgotten((row * n + first) * 1024 + b.lane() * 16),
                 scale_at = forgotten(rows * n * 1024 + (row * n + own) * 32 + g * 4),
                 zero_at = forgotten(rows * n * (1024 + 32) + row * zeros_stride(n) +
                                     (zeros_are_odd(share, g0) ? 8 : 0) + own * 8 + g);
  const int local = (team >> share.log_parts) * rows + row,
            turn = (STEP_TEAMS >> share.log_parts) * rows * 64;
  uint32_t to =
      shared_address(b.sums(share) + ((part << log_k) + k) * share.sums_stride + local * 16 + g + t * 8);
  RingAt at = b.next();
  at.move(team, b.args().plan.n_slots);
  wait();
  make_planes(b, from, share.n_groups);
  b.sync();
  Inputs in;
  take_inputs(b, in, g0 + first, mine);
#pragma unroll 1
  for (int left = share.pieces - team; left > 0; left -= STEP_TEAMS, to += turn) {
    const uint32_t piece = b.take_piece(at);
#pragma unroll 1
    for (int i = 0; i < (kTurns == 1 ? 1 : share.turns); i++) { /* two are of k_warps == 4: neighbours */
      const uint32_t scale = load_shared_4(piece + scale_at + i * n * 32),
                     zero = load_shared_1(piece + zero_at + i * zeros_stride(n));
      const float y = multiply(in, piece + tiles_at + i * n * 1024, scale, zero, t);
      if (t < 2) store_shared(to + i * 64, y);
    }
    __syncwarp();
    if (b.lane() == 0) barrier_arrive(&b.barriers()->empty[at.slot]);
    at.move(STEP_TEAMS, b.args().plan.n_slots);
  }
  b.advance(share.run);
  b.sync();
}

} // namespace step

#endif
