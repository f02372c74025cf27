/* step_rows_two.cuh - a block's share of a product with two rows, from pieces in the ring.
 *
 *     sums[k][row] = sum over the groups of warp k of s (sum q X - z sum X) d,   x = d X (planes.cuh)
 *
 * As of one row (step_product.cuh): piece i of a share belongs to team i % 4, and each of its warps keeps the
 * planes of the groups that are its own, at most four, in registers for the whole share. Columns of
 * mma_u8s8_m16n8k32, operand b, are the two planes of both rows, of one group || of the next: what a tile of
 * the one makes of the other's columns nobody looks at, so two groups share an operand, and lanes t < 2 scale
 * the one, lanes t >= 2 the next, each for row t % 2.
 *
 * Rows g + 8 are multiplied as whole bytes (step_product.cuh). Sums of a tile row, of a warp along k:
 * float [output / 8][row][output % 8]. They lie where the product's inputs were, or in `exchange`. */
#ifndef AUK_CUDA_STEP_ROWS_TWO_CUH
#define AUK_CUDA_STEP_ROWS_TWO_CUH

#include "cuda/step_rows_load.cuh"
#include "cuda/step_rows_sums.cuh"

namespace step {
namespace rows {
namespace two {

constexpr int kR = 2, kGroups = STEP_ROWS_SPAN; /* rows; groups of a warp */
static_assert(kGroups == 4, "two pairs");

/* Activations of a warp's groups, a pair of them an operand. */
struct Inputs {
  uint4 x[kGroups / 2][2];

  /* Takes n groups, of which the first one's planes are there; past them some group again. */
  __device__ __forceinline__ void take(const unsigned char *planes, int n, int g, int t) {
#pragma unroll
    for (int i = 0; i < kGroups / 2; i++) {
      const int from = max(min(2 * i + (g >> 2), n - 1), 0);
#pragma unroll
      for (int c = 0; c < 2; c++)
        x[i][c] = *(const uint4 *)(planes + from * Planes<kR>::kGroup + c * Planes<kR>::kHalf + (g & 3) * 64 +
                                   t * 16);
    }
  }
};

/* Where a lane finds what it needs: tiles of the warp's first group; of the first group that it scales the
 * scale and the zero (shared_address), and {scale, scale * sum} of x. */
struct At {
  uint32_t tiles, scales, zeros;
  const unsigned char *notes;
};

/* What a warp's groups make of a tile row, of which `own` are from the lane's first one on: the lane's value
 * 8 t + g of its sums. */
__device__ __forceinline__ float multiply(const Inputs &in, const At &at, int own, int t) {
  constexpr float kStart = 12582912.0f; /* as in step_product.cuh */
  float low = 0, high = 0;              /* the latter 16 times too large */
#pragma unroll
  for (int i0 = 0; i0 < kGroups; i0 += 2) {
    int acc[2][4];
    uint4 tile[2][2];
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
      for (int i = 0; i < 2; i++) tile[i][c] = load_shared_16(at.tiles + (i0 + i) * 1024 + c * 512);
#pragma unroll
    for (int i = 0; i < 2; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0x4b400000;
#pragma unroll
    for (int step = 0; step < 4; step++)
#pragma unroll
      for (int i = 0; i < 2; i++) { /* neighbours are of different sums: one's latency is another's work */
        const uint4 &v = tile[i][step / 2], &x = in.x[i0 / 2][step / 2];
        const uint32_t one = step % 2 ? v.y : v.x, other = step % 2 ? v.w : v.z;
        const uint32_t operand[4] = {one & 0x0f0f0f0fu, one, other & 0x0f0f0f0fu, other};
        mma_u8s8_m16n8k32(acc[i], operand, step % 2 ? x.z : x.x, step % 2 ? x.w : x.y);
      }
    uint32_t factors = 0;
    float2 note = make_float2(0, 0);
    const uint32_t zero = load_shared_1(at.zeros + i0 * 8);
    if (i0 < own) {
      factors = load_shared_4(at.scales + i0 * 32);
      note = *(const float2 *)(at.notes + i0 * kR * 8);
    }
    float sum[4];
#pragma unroll
    for (int e = 0; e < 4; e++) sum[e] = __int_as_float(t & 2 ? acc[1][e] : acc[0][e]) - kStart;
    const float one = 256.0f * sum[0] + sum[1], other = 256.0f * sum[2] + sum[3] - one;
    low += scale_low(factors) * (note.x * one - small_float(zero & 15) * note.y);
    high += scale_high(factors) * (note.x * other - small_float(zero & 240) * note.y);
  }
  high *= 0.0625f;
  const float more = __shfl_xor_sync(~0u, t & 2 ? low : high, 2);
  return (t & 2 ? high : low) + more;
}

/* --- what comes of the sums */

/* Where value i of the sums of tile rows is. */
struct Value {
  int tile, half, row, output;
  __device__ __forceinline__ Value(int i)
      : tile(i / (16 * kR)), half(i / (8 * kR) % 2), row(i / 8 % kR), output(i % 8) {}
};

__device__ __forceinline__ void add_to(float &v, float more) {
  v += more;
}
__device__ __forceinline__ void add_to(float4 &v, const float4 &more) {
  v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
}

/* Of value i the sum over the share's warps along k. */
template <class Vector, bool kDebug>
__device__ __forceinline__ Vector summed(const Block<kR, kDebug> &b, const Share<kR> &share, int i) {
  const unsigned char *from = b.state + share.sums_at + i * 4;
  const int warps = 1 << (share.log_parts + share.log_k_warps);
  Vector v = {};
#pragma unroll 1
  for (int k = 0; k < warps; k += 4) {
    Vector more[4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++, from += share.sums_stride)
      if (j < warps) more[j] = *(const Vector *)from;
#pragma unroll
    for (int j = 0; j < 4; j++) add_to(v, more[j]);
  }
  return v;
}

/* Of 32 values of a warp, one a lane, four neighbours to each of the cluster's blocks. at(i): where those
 * from lane i on go. */
template <class At> __device__ __forceinline__ void send_values(float v, uint64_t *barrier, int lane, At at) {
  const int peer = lane & 7;
  const uint32_t arrives = peer_address(barrier, peer);
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int first = (lane >> 3) * 4 + 16 * j;
    uint32_t w[4];
#pragma unroll
    for (int e = 0; e < 4; e++) w[e] = __float_as_uint(__shfl_sync(~0u, v, first + e));
    send_16(peer_address(at(first), peer), make_uint4(w[0], w[1], w[2], w[3]), arrives);
  }
}

/* Outputs of heads, tile rows up to n, to the cluster. inverse: of row lane / 8. */
template <bool kDebug>
__device__ __forceinline__ void send_projections(const Block<kR, kDebug> &b, int row0, int n, float inverse) {
  const float *bias = b.args().bias ? b.vectors().bias : NULL;
  const Share<kR> &share = b.share(QKV);
  const int heads = b.args().plan.heads_per_kv + 2;
#pragma unroll 1
  for (int i = b.thread(); i < n * 16 * kR; i += STEP_THREADS) {
    const Value value(i);
    float v = summed<float>(b, share, i) * inverse;
    if (bias) v += __ldg(bias + tile_row(share, row0 + value.tile) * 16 + value.half * 8 + value.output);
    send_values(v, &b.barriers()->projections, b.lane(), [&](int lane) {
      const Value to(i - b.lane() + lane);
      return b.exchange() + (to.row * heads + row0 + to.tile) * STEP_HEAD_DIM + b.rank() * 16 + to.half * 8 +
             to.output;
    });
  }
}

/* Features of the gated product, eight a tile row, to the cluster. */
template <bool kDebug>
__device__ __forceinline__ void send_gated(const Block<kR, kDebug> &b, int row0, int n, float inverse) {
  const Share<kR> &share = b.share(GATE_UP);
#pragma unroll 1
  for (int i = b.thread(); i < n * 8 * kR; i += STEP_THREADS) {
    const int at = i + i / (8 * kR) * (8 * kR);
    const float gate = summed<float>(b, share, at) * inverse,
                up = summed<float>(b, share, at + 8 * kR) * inverse;
    const float v = __fdividef(gate, 1.0f + __expf(-gate)) * up;
    send_values(v, &b.barriers()->gated, b.lane(), [&](int lane) {
      const int j = i - b.lane() + lane, tile = row0 + j / (8 * kR);
      return b.exchange() + ((tile >> 1) * kR + j / 8 % kR) * STEP_GROUP + b.rank() * 16 + (tile & 1) * 8 +
             j % 8;
    });
  }
}

/* This cluster's part of columns of each row, for all clusters. */
template <bool kDebug>
__device__ __forceinline__ void give_sums(const Block<kR, kDebug> &b, int matrix, int row0, int n) {
  const Share<kR> &share = b.share(matrix);
  const StepShape &s = b.args().plan.shape;
  uint64_t *to = sum_of(b, matrix, b.layer()).words + first_columns(s, b.rank()) * STEP_GROUP;
#pragma unroll 1
  for (int i = 4 * b.thread(); i < n * 16 * kR; i += 4 * STEP_THREADS) {
    const float4 v = summed<float4>(b, share, i);
    const Value value(i);
    uint64_t *at = to + value.row * s.hidden + (row0 + value.tile) * 16 + value.half * 8 + value.output;
    give(at, v.x), give(at + 1, v.y), give(at + 2, v.z), give(at + 3, v.w);
  }
}

/* The whole share, when what goes into it is there. Of groups that a warp has not it multiplies whatever lies
 * behind, which counts for nothing. */
template <bool kDebug> __device__ __forceinline__ void product(Block<kR, kDebug> &b, int matrix) {
  const Share<kR> &share = b.share(matrix);
  const StepRowsPlan &p = b.args().plan;
  const bool from_x = matrix == QKV || matrix == GATE_UP;
  const int team = b.warp() >> 2, mate = b.warp() & 3, t = b.lane() & 3, g = b.lane() >> 2;
  const int log_k = share.log_k_warps, part = team & ((1 << share.log_parts) - 1);
  const int g0 = first_group(share, part), n = first_group(share, part + 1) - g0;
  const int k = mate & ((1 << log_k) - 1), row = mate >> log_k, rows = 1 << share.log_rows;
  const int most = share.groups;                    /* n, or one more */
  const int span = (n + (1 << log_k) - 1) >> log_k; /* groups of a warp, the last of which may have fewer */
  const int first = min(k * span, n - 1), mine = min(span, n - k * span);
  const int skip = t >> 1, own = mine - skip; /* the lane scales every other group */
  Inputs in;
  in.take(b.state + (from_x ? p.at.x : p.at.in) + (g0 + first) * Planes<kR>::kGroup, mine, g, t);
  const float inverse = from_x ? inverse_of(b, b.lane() >> 3 & 1) : 1;
  /* In a piece, but for the notes. */
  const uint32_t tiles_at = forgotten((row * most + first) * 1024 + b.lane() * 16),
                 scales_at = forgotten(rows * most * 1024 + (row * most + first + skip) * 32 + g * 4),
                 zeros_at = forgotten(rows * most * (1024 + 32) + row * zeros_stride(most) +
                                      (zeros_are_odd(share, g0) ? 8 : 0) + (first + skip) * 8 + g),
                 notes_at = forgotten((from_x ? p.at.x_notes : p.at.in_notes) +
                                      ((g0 + first + skip) * kR + (t & 1)) * 8);
  const int n_rows = share.n_rows, step = (STEP_TEAMS >> share.log_parts) * rows;
  RingAt at = b.next();
  at.move(team, p.n_slots);
  int row1 = (team >> share.log_parts) * rows + row; /* the warp's first one of the piece */
  bool is_first = row1 - row < n_rows;
  if (!is_first) arrive_some<6, STEP_THREADS>();
#pragma unroll 1
  for (int row0 = 0; row0 < n_rows; row0 += share.at_once) {
    const int end = min(n_rows, row0 + share.at_once);
    if (from_x || row0 > 0) b.sync(); /* what lay there is taken */
    uint32_t to = shared_address(b.state) + share.sums_at + ((part << log_k) + k) * share.sums_stride +
                  (row1 - row0) * (16 * kR * 4) + (8 * t + g) * 4;
#pragma unroll 1
    while (row1 - row < end) {
      const uint32_t piece = b.take_piece(at);
      if (is_first && team >= STEP_TEAMS / 2) sync_some<6, STEP_THREADS>();
#pragma unroll 1
      for (int i = 0; i < (log_k == 2 ? rows : 1); i++) { /* of small pieces two: neighbours */
        if (row1 + i >= n_rows) break;
        const At from = {piece + tiles_at + i * most * 1024, piece + scales_at + i * most * 32,
                         piece + zeros_at + i * zeros_stride(most), b.state + notes_at};
        store_shared(to + i * (16 * kR * 4), multiply(in, from, own, t));
        if (is_first && team < STEP_TEAMS / 2) arrive_some<6, STEP_THREADS>();
        is_first = false;
      }
      __syncwarp();
      if (b.lane() == 0) barrier_arrive(&b.barriers()->empty[at.slot]);
      at.move(STEP_TEAMS, p.n_slots);
      row1 += step;
      to += step * (16 * kR * 4);
    }
    b.sync();
    switch (matrix) {
    case QKV: send_projections(b, row0, end - row0, inverse); break;
    case GATE_UP: send_gated(b, row0, end - row0, inverse); break;
    default: give_sums(b, matrix, row0, end - row0);
    }
  }
  b.advance(share.run);
}

} // namespace two
} // namespace rows
} // namespace step

#endif
