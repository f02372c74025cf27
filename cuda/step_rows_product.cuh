/* step_rows_product.cuh - a block's share of a product with several rows, and what a warp does with each tile
 * row of it.
 *
 *     y[row] = sum over groups of s (sum q X - z sum X) d,   x = d X (planes.cuh)
 *
 * Columns of mma_u8s8_m16n8k32 are the two planes of four rows, so lane (g, t) ends with outputs g and g + 8
 * of row t. Of fewer rows columns are there several times over: lanes of the same row then scale every other
 * group each. A warp takes the groups of its tile row from one piece after the other, two at a time, so that
 * one's latency is the other's work. Rows g + 8 are multiplied as whole bytes (step_product.cuh). */
#ifndef AUK_CUDA_STEP_ROWS_PRODUCT_CUH
#define AUK_CUDA_STEP_ROWS_PRODUCT_CUH

#include "cuda/step_rows_sums.cuh"

namespace step {
namespace rows {

/* Of row t of a lane (of fewer than four rows t % kR): outputs g and g + 8. */
template <int kR> struct Sums {
  static constexpr int kTwice = kR < 4 ? 2 : 1; /* lanes that share a row's groups */
  float y[2];

  static __device__ __forceinline__ int row_of(int t) { return t % kR; }

  /* Where a lane finds what it needs of a group (shared_address). */
  struct At {
    uint32_t tiles, scales, zeros, planes, notes;
  };

  /* Scales what four products made of a group. */
  __device__ __forceinline__ void scale(const float (&sum)[4], uint32_t scale, uint32_t zero, float d,
                                        float scaled_sum) {
    const float low = 256.0f * sum[0] + sum[1], high = (256.0f * sum[2] + sum[3] - low) * 0.0625f;
    y[0] += scale_low(scale) * (d * low - small_float(zero & 15) * scaled_sum);
    y[1] += scale_high(scale) * (d * high - small_float(zero >> 4) * scaled_sum);
  }

  /* Adds two groups, or one (and takes it twice, the second time for nothing). */
  __device__ __forceinline__ void add(const At &at, bool two, int t) {
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
    const bool second = kTwice == 2 && t & 2;
#pragma unroll
    for (int i = 0; i < 2 / kTwice; i++) {
      const bool counts = i == 1 || second ? two : true;
      const int n = i == 1 || second ? more : 0;
      float sum[4];
#pragma unroll
      for (int e = 0; e < 4; e++) sum[e] = __int_as_float(second ? acc[1][e] : acc[i][e]) - kStart;
      const float2 note = load_note(at.notes + n * kR * 16);
      scale(sum, load_shared_4(at.scales + n * 32), load_shared_1(at.zeros + n * 8), counts ? note.x : 0,
            counts ? note.y : 0);
    }
  }

  /* When all groups are there. */
  __device__ __forceinline__ void end() {
    if (kTwice == 1) return;
    y[0] += __shfl_xor_sync(~0u, y[0], 2);
    y[1] += __shfl_xor_sync(~0u, y[1], 2);
  }

  static __device__ __forceinline__ float2 load_note(uint32_t address) {
    return make_float2(__uint_as_float(load_shared_4(address)), __uint_as_float(load_shared_4(address + 4)));
  }
};

/* --- what comes of a tile row of a product */

/* Outputs of a head, 16 of this block's, to the cluster: lane (quad, peer) sends four of each row. */
template <int kR, bool kDebug>
__device__ __forceinline__ void send_projection(const Block<kR, kDebug> &b, int local, const Sums<kR> &sums,
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

/* Eight features of the gated product to the cluster: lane (row, quad, peer) sends four. */
template <int kR, bool kDebug>
__device__ __forceinline__ void send_gated(const Block<kR, kDebug> &b, int local, const Sums<kR> &sums,
                                           float inverse) {
  const int lane = b.lane(), peer = lane & 7, quad = lane >> 3 & 1;
  const float gate = sums.y[0] * inverse;
  const float v = __fdividef(gate, 1.0f + __expf(-gate)) * (sums.y[1] * inverse);
  const uint32_t barrier = peer_address(&b.barriers()->gated, peer);
#pragma unroll
  for (int two = 0; two < (kR + 1) / 2; two++) {
    const int row = 2 * two + (lane >> 4);
    uint32_t w[4];
#pragma unroll
    for (int e = 0; e < 4; e++) w[e] = __float_as_uint(__shfl_sync(~0u, v, (4 * quad + e) * 4 + row));
    const float *to =
        b.exchange() + ((local >> 1) * kR + row) * STEP_GROUP + b.rank() * 16 + (local & 1) * 8 + quad * 4;
    if (row < kR) send_16(peer_address(to, peer), make_uint4(w[0], w[1], w[2], w[3]), barrier);
  }
}

/* This cluster's part of 16 columns, for all clusters. */
template <int kR, bool kDebug>
__device__ __forceinline__ void give_sum(const Block<kR, kDebug> &b, const Sum &sum, int local,
                                         const Sums<kR> &sums) {
  const int g = b.lane() >> 2, t = b.lane() & 3, hidden = b.args().plan.shape.hidden;
  float *to = sum.values + ((size_t)b.cluster() * kR + Sums<kR>::row_of(t)) * hidden +
              first_columns(b.args().plan.shape, b.rank()) * STEP_GROUP + local * 16 + g;
  auto store = [&](float *at, float v) { store_relaxed_4(at, tagged(v, sum.tag)); };
  if (kR < 4) { /* lanes t and t + 2 have the same */
    if (t % 2 < kR) store(to + (t & 2 ? 8 : 0), t & 2 ? sums.y[1] : sums.y[0]);
  } else {
    store(to, sums.y[0]);
    store(to + 8, sums.y[1]);
  }
}

/* The whole share, when what goes into it is there. */
template <int kR, bool kDebug> __device__ __forceinline__ void product(Block<kR, kDebug> &b, int matrix) {
  const Share &share = b.share(matrix);
  const StepRowsPlan &p = b.args().plan;
  const bool from_x = matrix == QKV || matrix == GATE_UP;
  const int team = b.warp() >> 2, mate = b.warp() & 3, t = b.lane() & 3, g = b.lane() >> 2;
  const int row = Sums<kR>::row_of(t);
  const float inverse = from_x ? inverse_of(b, row) : 1;
  Sum sum = {};
  if (!from_x) sum = sum_of(b, matrix, b.layer());
  const uint32_t planes = shared_address(b.state) + (from_x ? p.at.x : p.at.in) + g % (2 * kR) * 64 + t * 16,
                 notes = shared_address(b.state) + (from_x ? p.at.x_notes : p.at.in_notes) + row * 16;
  const int n_rows = share.n_rows, n_groups = share.n_groups;
#pragma unroll 1
  for (int row0 = 0; row0 < n_rows; row0 += STEP_WARPS) {
    const int teams = min(STEP_TEAMS, (n_rows - row0 + STEP_TEAM_WARPS - 1) / STEP_TEAM_WARPS),
              local = row0 + b.warp();
    if (team < teams) {
      Sums<kR> sums = {};
      RingAt at = b.next();
      at.move(team, p.n_slots);
#pragma unroll 1
      for (int g0 = 0; g0 < n_groups; g0 += p.span) {
        const int n = min(p.span, n_groups - g0), most = p.span;
        const uint32_t piece = b.take_piece(at);
        typename Sums<kR>::At from = {piece + mate * most * 1024 + b.lane() * 16,
                                      piece + STEP_TEAM_WARPS * most * 1024 + mate * most * 32 + g * 4,
                                      piece + STEP_TEAM_WARPS * most * (1024 + 32) +
                                          mate * zeros_stride(most) + (zeros_are_odd(share, g0) ? 8 : 0) + g,
                                      planes + g0 * Planes<kR>::kGroup, notes + g0 * kR * 16};
        if (local < n_rows)
#pragma unroll 1
          for (int i = 0; i < n; i += 2) {
            sums.add(from, i + 1 < n, t);
            from.tiles += 2 * 1024, from.scales += 2 * 32, from.zeros += 2 * 8;
            from.planes += 2 * Planes<kR>::kGroup, from.notes += 2 * kR * 16;
          }
        __syncwarp();
        if (b.lane() == 0) barrier_arrive(&b.barriers()->empty[at.slot]);
        at.move(teams, p.n_slots);
      }
      if (local < n_rows) {
        sums.end();
        switch (matrix) {
        case QKV: send_projection(b, local, sums, inverse, b.args().bias ? b.vectors().bias : NULL); break;
        case GATE_UP: send_gated(b, local, sums, inverse); break;
        default: give_sum(b, sum, local, sums);
        }
      }
    }
    b.advance(row0 + STEP_WARPS < n_rows ? share.wave : share.last);
  }
}

} // namespace rows
} // namespace step

#endif
