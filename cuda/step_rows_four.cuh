/* step_rows_four.cuh - a block's share of a product with four rows, and what a warp does with each tile row
 * of it.
 *
 *     y[row] = sum over groups of s (sum q X - z sum X) d,   x = d X (planes.cuh)
 *
 * Columns of mma_u8s8_m16n8k32 are the two planes of four rows, so lane (g, t) ends with outputs g and g + 8
 * of row t. Activations stay in shared memory: a warp takes all groups of a tile row from one piece after the
 * other, two at a time, so that one's latency is the other's work, and hands on what comes of it: no sums in
 * shared memory, no barrier. Rows g + 8 are multiplied as whole bytes (step_product.cuh). */
#ifndef AUK_CUDA_STEP_ROWS_FOUR_CUH
#define AUK_CUDA_STEP_ROWS_FOUR_CUH

#include "cuda/step_rows_sums.cuh"

namespace step {
namespace rows {
namespace four {

constexpr int kR = 4, kSpan = STEP_ROWS_SPAN;

/* Of row t of a lane: outputs g and g + 8. */
struct Sums {
  float y[2];

  /* Where a lane finds what it needs of a group (shared_address); notes: from `state` on. */
  struct At {
    uint32_t tiles, scales, zeros, planes, notes;
  };

  /* Adds two groups, or one (and takes it twice, the second time for nothing). */
  __device__ __forceinline__ void add(const At &at, const unsigned char *state, bool two) {
    constexpr float kStart = 12582912.0f; /* as in step_product.cuh */
    const int more = two ? 1 : 0;
    int acc[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0x4b400000;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint4 tile[2], x[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        tile[i] = load_shared_16(at.tiles + i * more * 1024 + c * 512);
        x[i] = load_shared_16(at.planes + i * more * Planes<kR>::kGroup + c * Planes<kR>::kHalf);
      }
#pragma unroll
      for (int step = 0; step < 2; step++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const uint32_t one = step ? tile[i].y : tile[i].x, other = step ? tile[i].w : tile[i].z;
          const uint32_t operand[4] = {one & 0x0f0f0f0fu, one, other & 0x0f0f0f0fu, other};
          mma_u8s8_m16n8k32(acc[i], operand, step ? x[i].z : x[i].x, step ? x[i].w : x[i].y);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = i * more;
      const uint32_t factors = load_shared_4(at.scales + n * 32), zero = load_shared_1(at.zeros + n * 8);
      float2 note = *(const float2 *)(state + at.notes + n * kR * 8);
      if (i == 1 && !two) note = make_float2(0, 0);
      float sum[4];
#pragma unroll
      for (int e = 0; e < 4; e++) sum[e] = __int_as_float(acc[i][e]) - kStart;
      const float low = 256.0f * sum[0] + sum[1], high = (256.0f * sum[2] + sum[3] - low) * 0.0625f;
      y[0] += scale_low(factors) * (note.x * low - small_float(zero & 15) * note.y);
      y[1] += scale_high(factors) * (note.x * high - small_float(zero >> 4) * note.y);
    }
  }
};

/* --- what comes of a tile row of a product */

/* Outputs of a head, 16 of this block's, to the cluster: lane (quad, peer) sends four of each row. */
template <bool kDebug>
__device__ __forceinline__ void send_projection(const Block<kR, kDebug> &b, int local, const Sums &sums,
                                                float inverse, const float *bias) {
  const int lane = b.lane(), peer = lane & 7, quad = lane >> 3;
  float add[2] = {0, 0};
  if (bias) {
    const float *from = bias + tile_row(b.share(QKV), local) * 16 + (lane >> 2);
    add[0] = __ldg(from), add[1] = __ldg(from + 8);
  }
  const float v[2] = {sums.y[0] * inverse + add[0], sums.y[1] * inverse + add[1]};
  const uint32_t barrier = peer_address(&b.barriers()->projections, peer);
  const int heads = b.args().plan.heads_per_kv + 2;
#pragma unroll
  for (int row = 0; row < kR; row++) {
    uint32_t w[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int from = ((4 * quad + e) & 7) * 4 + row;
      const float low = __shfl_sync(~0u, v[0], from), high = __shfl_sync(~0u, v[1], from);
      w[e] = __float_as_uint(quad & 2 ? high : low);
    }
    const float *to = b.exchange() + (row * heads + local) * STEP_HEAD_DIM + b.rank() * 16 + quad * 4;
    send_16(peer_address(to, peer), make_uint4(w[0], w[1], w[2], w[3]), barrier);
  }
}

/* Eight features of the gated product to the cluster: lane (row, quad, peer) sends four of two rows. */
template <bool kDebug>
__device__ __forceinline__ void send_gated(const Block<kR, kDebug> &b, int local, const Sums &sums,
                                           float inverse) {
  const int lane = b.lane(), peer = lane & 7, quad = lane >> 3 & 1;
  const float gate = sums.y[0] * inverse;
  const float v = __fdividef(gate, 1.0f + __expf(-gate)) * (sums.y[1] * inverse);
  const uint32_t barrier = peer_address(&b.barriers()->gated, peer);
#pragma unroll
  for (int two = 0; two < kR / 2; two++) {
    const int row = 2 * two + (lane >> 4);
    uint32_t w[4];
#pragma unroll
    for (int e = 0; e < 4; e++) w[e] = __float_as_uint(__shfl_sync(~0u, v, (4 * quad + e) * 4 + row));
    const float *to =
        b.exchange() + ((local >> 1) * kR + row) * STEP_GROUP + b.rank() * 16 + (local & 1) * 8 + quad * 4;
    send_16(peer_address(to, peer), make_uint4(w[0], w[1], w[2], w[3]), barrier);
  }
}

/* This cluster's part of 16 columns, for all clusters. */
template <bool kDebug>
__device__ __forceinline__ void give_sum(const Block<kR, kDebug> &b, const Sum &sum, int local,
                                         const Sums &sums) {
  const int g = b.lane() >> 2, t = b.lane() & 3, hidden = b.args().plan.shape.hidden;
  float *to = sum.values + ((size_t)b.cluster() * kR + t) * hidden +
              first_columns(b.args().plan.shape, b.rank()) * STEP_GROUP + local * 16 + g;
  store_relaxed_4(to, tagged(sums.y[0], sum.tag));
  store_relaxed_4(to + 8, tagged(sums.y[1], sum.tag));
}

/* The whole share, when what goes into it is there. */
template <bool kDebug> __device__ __forceinline__ void product(Block<kR, kDebug> &b, int matrix) {
  const Share<kR> &share = b.share(matrix);
  const StepRowsPlan &p = b.args().plan;
  const bool from_x = matrix == QKV || matrix == GATE_UP;
  const int team = b.warp() >> 2, mate = b.warp() & 3, t = b.lane() & 3, g = b.lane() >> 2;
  const float inverse = from_x ? __shfl_sync(~0u, inverse_of(b, b.lane() >> 3), 8 * t) : 1;
  Sum sum = {};
  if (!from_x) sum = sum_of(b, matrix, b.layer());
  const uint32_t planes = shared_address(b.state) + (from_x ? p.at.x : p.at.in) + g * 64 + t * 16,
                 notes = (from_x ? p.at.x_notes : p.at.in_notes) + t * 8;
  const int n_rows = share.n_rows, n_groups = share.n_groups;
#pragma unroll 1
  for (int row0 = 0; row0 < n_rows; row0 += STEP_WARPS) {
    const int teams = teams_of(share, row0), local = row0 + b.warp();
    if (team < teams) {
      Sums sums = {};
      RingAt at = b.next();
      at.move(team, p.n_slots);
#pragma unroll 1
      for (int g0 = 0; g0 < n_groups; g0 += kSpan) {
        const int n = min(kSpan, n_groups - g0);
        const uint32_t piece = b.take_piece(at);
        Sums::At from = {piece + mate * kSpan * 1024 + b.lane() * 16,
                         piece + STEP_TEAM_WARPS * kSpan * 1024 + mate * kSpan * 32 + g * 4,
                         piece + STEP_TEAM_WARPS * kSpan * (1024 + 32) + mate * zeros_stride(kSpan) +
                             (zeros_are_odd(share, g0) ? 8 : 0) + g,
                         planes + g0 * Planes<kR>::kGroup, notes + g0 * kR * 8};
        if (local < n_rows)
#pragma unroll 1
          for (int i = 0; i < n; i += 2) {
            sums.add(from, b.state, i + 1 < n);
            from.tiles += 2 * 1024, from.scales += 2 * 32, from.zeros += 2 * 8;
            from.planes += 2 * Planes<kR>::kGroup, from.notes += 2 * kR * 8;
          }
        __syncwarp();
        if (b.lane() == 0) barrier_arrive(&b.barriers()->empty[at.slot]);
        at.move(teams, p.n_slots);
      }
      if (local < n_rows) switch (matrix) {
        case QKV: send_projection(b, local, sums, inverse, b.args().bias ? b.vectors().bias : NULL); break;
        case GATE_UP: send_gated(b, local, sums, inverse); break;
        default: give_sum(b, sum, local, sums);
        }
    }
    b.advance(row0 + STEP_WARPS < n_rows ? share.wave : share.last);
  }
}

} // namespace four
} // namespace rows
} // namespace step

#endif
