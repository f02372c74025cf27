/* one_matmul.cuh - a block's share of a product with one row of activations, from pieces in the ring.
 *
 *     sums[k][row] = sum over the groups of warp k of s (sum q X - z sum X) d,   x = d X (planes.cuh)
 *
 * First all warps turn the activations into planes of integers, a group of 128 each at a time, in shared
 * memory. Piece i of a share belongs to team i % 4, and in it to each warp a tile row by at most four groups:
 *
 *     4 tile rows, k_warps 1       2 tile rows, k_warps 2            1 tile row, k_warps 4
 *       row 0  | warp 0 |            row 0  | warp 0 | warp 1 |        row 0  | w 0 | w 1 | w 2 | w 3 |
 *       row 1  | warp 1 |            row 1  | warp 2 | warp 3 |
 *       row 2  | warp 2 |
 *       row 3  | warp 3 |
 *
 * The inputs of these groups are operand b of mma_u8s8_m16n8k32, the same registers for all of them: columns
 * 2 i and 2 i + 1 are the planes of group i, and of what comes out of group i's tiles only lanes t = i look
 * at it, which have these columns; lane t scales group t. The rest is numbers that nobody wants. A warp
 * keeps them as long as its pieces are of the same part of the inputs. Rows g + 8 are multiplied as whole
 * bytes, 16 times too large and with row g's nibble below: its sum is taken off at the end, which saves the
 * mask. */
#ifndef AUK_CUDA_FUSED_ONE_MATMUL_CUH
#define AUK_CUDA_FUSED_ONE_MATMUL_CUH

#include "cuda/fused/one_residual.cuh"
#include "cuda/linear/planes.cuh"

namespace step {

constexpr int kSpan = STEP_SPAN, kPlaneBytes = 2 * STEP_GROUP; /* of a group */
static_assert(kSpan == 4, "lane t scales group t");

/* Where a lane's word of plane 0 is within a group; that of plane 1 is 64 bytes behind it. */
__device__ __forceinline__ int word_at(int lane) {
  const int t = lane & 3, g = lane >> 2;
  return (g >> 2) * 128 + t * 16 + (g & 1) * 8 + (g & 2) * 2;
}

/* Turns `n` groups of activations in shared memory into planes and, each, {scale, scale * sum}, a warp one
 * after the other. Within a group: [64 inputs][plane][lane t][words 0, 2, 1, 3 of layout.cuh]. */
template <bool kDebug>
__device__ __forceinline__ void make_planes(const Block<kDebug> &b, const float *from, int n) {
  const int t = b.lane() & 3, g = b.lane() >> 2;
  unsigned char *to = b.planes() + b.warp() * kPlaneBytes + word_at(b.lane());
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

/* Activations of a warp's groups: of column g of a product, plane g % 2 of group g / 2, whatever group's
 * tiles it multiplies; scale and scale * sum of group t in lane t, 0 where there is none. */
struct Inputs {
  uint4 x[2];
  float scale, scaled_sum;
};

/* Takes n groups from `first` on; past them some group again, of scale 0. */
__device__ __forceinline__ void take_inputs(Inputs &in, const unsigned char *planes, const float2 *scales,
                                            int first, int n, int lane) {
  const int t = lane & 3, g = lane >> 2, last = max(n, 1) - 1;
  const unsigned char *from = planes + (first + min(g >> 1, last)) * kPlaneBytes + (g & 1) * 64 + t * 16;
  in.x[0] = *(const uint4 *)from;
  in.x[1] = *(const uint4 *)(from + 128);
  const float2 scale = scales[first + min(t, last)];
  in.scale = t < n ? scale.x : 0, in.scaled_sum = t < n ? scale.y : 0;
}

/* What a warp multiplies at once: tiles of its groups of a tile row, [pair][64 inputs][group of the pair];
 * the scale and zero of lane t's group. */
struct Task {
  uint4 tiles[2][2][2];
  uint32_t scale, zero;
};

/* The sums of a pair of groups where this lane's group is one of them: of row g high and low plane, then of g
 * + 8.
 *
 * A product takes words 1 and 3 of a tile, the next 0 and 2: so two of four raw words are where a product
 * wants them when they come. */
__device__ __forceinline__ void multiply(float (&sum)[4], const uint4 (&tiles)[2][2], const Inputs &in,
                                         bool second) {
  constexpr float kStart =
      12582912.0f; /* 1.5 * 2^23: sums as floats without conversion, as they are < 2^22 */
  int acc[2][4];
#pragma unroll
  for (int i = 0; i < 2; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0x4b400000;
#pragma unroll
  for (int step = 0; step < 4; step++)
#pragma unroll
    for (int i = 0; i < 2; i++) { /* neighbours are of different sums: one's latency is another's work */
      const uint4 &v = tiles[step / 2][i], &x = in.x[step / 2];
      const uint32_t one = step % 2 ? v.y : v.x, two = step % 2 ? v.w : v.z;
      const uint32_t operand[4] = {one & 0x0f0f0f0fu, one, two & 0x0f0f0f0fu, two};
      mma_u8s8_m16n8k32(acc[i], operand, step % 2 ? x.z : x.x, step % 2 ? x.w : x.y);
    }
#pragma unroll
  for (int e = 0; e < 4; e++) sum[e] = __int_as_float(second ? acc[1][e] : acc[0][e]) - kStart;
}

/* Scales and adds up the groups: of row g in lanes t = 0, 2, of row g + 8 in lanes 1, 3. scale, zero: of lane
 * t's group. */
__device__ __forceinline__ float add_groups(const float (&sum)[4], const Inputs &in, uint32_t scale,
                                            uint32_t zero, int t) {
  const float low = 256.0f * sum[0] + sum[1], high = (256.0f * sum[2] + sum[3] - low) * 0.0625f;
  const float y_low = scale_low(scale) * (in.scale * low - small_float(zero & 15) * in.scaled_sum);
  const float y_high = scale_high(scale) * (in.scale * high - small_float(zero >> 4) * in.scaled_sum);
  float y = t & 1 ? y_high : y_low;
  y += __shfl_xor_sync(~0u, t & 1 ? y_low : y_high, 1);
  return y + __shfl_xor_sync(~0u, y, 2);
}

/* Of what a warp multiplies at once there is a table, since working it out for each piece takes as many
 * instructions as a third of the product:
 *
 *     [pieces of qkv, o, gate and up, down][warp of a team]
 *         uint32 {7 bits first group of inputs, 3 bits groups, 1 bit zeros_are_odd(), 21 bits sums' place} */
template <bool kDebug> __device__ __forceinline__ void make_tasks(const Block<kDebug> &b) {
  int at = b.args().plan.at.tasks;
#pragma unroll 1
  for (int matrix = 0; matrix < MATRICES; matrix++) {
    Share &s = b.share(matrix);
    if (threadIdx.x == 0) s.tasks_at = at;
#pragma unroll 1
    for (int i = threadIdx.x; i < s.pieces * STEP_TEAM_WARPS; i += STEP_ALL_THREADS) {
      const int piece = i / STEP_TEAM_WARPS, mate = i % STEP_TEAM_WARPS, block = piece / s.parts,
                part = piece % s.parts;
      const int k = mate & ((1 << s.log_k_warps) - 1), row = mate >> s.log_k_warps;
      const int g0 = first_group(s, part), end = first_group(s, part + 1),
                first = min(g0 + k * s.span, end - 1), mine = min(s.span, max(0, end - g0 - k * s.span));
      const int sums = ((part << s.log_k_warps) + k) * s.sums_stride + ((block << s.log_rows) + row) * 16;
      ((uint32_t *)(b.state + at))[i] = first | mine << 7 | (int)zeros_are_odd(s, g0) << 10 | sums << 11;
    }
    at += s.pieces * STEP_PIECE_BYTES;
  }
}

/* The whole share, by all warps that multiply, when take() has seen the inputs and made integers of them;
 * then all warps may read the sums.
 *
 * A warp takes its part of a piece into registers at once, before the inputs are there if it is loaded by
 * then: so four more pieces are on their way while everybody waits. Half of the teams begin half a product
 * later, so that some warps load from shared memory while others multiply (2%). Of groups that a warp has
 * not it multiplies whatever lies behind, which its scales of 0 make count for nothing; of rows past the
 * last it leaves sums that nobody reads. */
template <bool kDebug, class Take>
__device__ __forceinline__ void product(Block<kDebug> &b, int matrix, Take take) {
  const Share &share = b.share(matrix);
  const int team = b.warp() >> 2, t = b.lane() & 3, g = b.lane() >> 2;
  const int log_k = share.log_k_warps, most = share.groups, row = (b.warp() & 3) >> log_k;
  /* In a piece: the tiles, and what of scales and zeros is the same in all of them. */
  const int group0 = row * most + (b.warp() & 3 & ((1 << log_k) - 1)) * share.span;
  const uint32_t tiles_at = forgotten(group0 * 1024 + b.lane() * 16),
                 scales_at = forgotten((most << share.log_rows) * 1024 + group0 * 32 + g * 4),
                 zeros_at = forgotten((most << share.log_rows) * (1024 + 32) + group0 * 8 + g +
                                      row * (zeros_stride(most) - most * 8));
  const uint32_t sums = shared_address(b.sums(share) + g + t * 8);
  /* Of a team without a piece somebody else's, which it does not multiply. */
  uint32_t tasks = shared_address(b.state) + share.tasks_at + (b.warp() & 3) * 4 +
                   min(team, share.pieces - 1) * STEP_PIECE_BYTES;
  uint32_t scale_at, zero_at, to; /* in a piece, and of the sums */
  int first, mine;                /* groups of inputs */
  auto place = [&] {
    const uint32_t entry = load_shared_4(tasks);
    first = entry & 127, mine = entry >> 7 & 7;
    const int own = max(min(t, mine - 1), 0);
    scale_at = scales_at + own * 32, zero_at = zeros_at + (own + (entry >> 10 & 1)) * 8;
    to = sums + (entry >> 11) * 4;
  };
  RingAt at = b.next();
  at.move(team, b.args().plan.n_slots);
  Task task = {}; /* else the compiler thinks that it lives from one product to the next */
  auto fetch = [&] {
    const uint32_t piece = b.piece_at(at), empty = b.empty_at(at);
#pragma unroll
    for (int pair = 0; pair < 2; pair++)
#pragma unroll
      for (int c = 0; c < 2; c++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          task.tiles[pair][c][i] = load_shared_16(piece + tiles_at + (2 * pair + i) * 1024 + c * 512);
    task.scale = load_shared_4(piece + scale_at), task.zero = load_shared_1(piece + zero_at);
    __syncwarp();
    if (b.lane() == 0) barrier_arrive(empty);
  };
  int left = share.pieces - team;
  place();
  bool fetched = left > 0 && b.piece_is_there(at);
  if (fetched) fetch();
  take();
  b.sync();
  Inputs in;
  bool is_new = true; /* the part */
  bool is_first = true;
  if (left <= 0) arrive_some<6, STEP_THREADS>();
#pragma unroll 1
  for (; left > 0; left -= STEP_TEAMS) {
    if (is_new) {
      place();
      take_inputs(in, b.planes_of(matrix), b.scales_of(matrix), first, mine, b.lane());
    }
    if (!fetched) {
      b.take_piece(at);
      fetch();
    }
    if (is_first && team >= STEP_TEAMS / 2) sync_some<6, STEP_THREADS>();
    float sum[4], more[4];
    multiply(sum, task.tiles[0], in, t & 1);
    if (is_first && team < STEP_TEAMS / 2) arrive_some<6, STEP_THREADS>();
    is_first = false;
    multiply(more, task.tiles[1], in, t & 1);
#pragma unroll
    for (int e = 0; e < 4; e++) sum[e] = t & 2 ? more[e] : sum[e];
    const float y = add_groups(sum, in, task.scale, task.zero, t);
    if (t < 2) store_shared(to, y);
    to += share.next * 4;
    tasks += STEP_TEAMS * STEP_PIECE_BYTES;
    is_new = share.next == 0;
    at.move(STEP_TEAMS, b.args().plan.n_slots);
    fetched = false;
  }
  b.advance(share.run);
  /* Whoever is ready before the others. */
  if (matrix == GATE_UP && b.warp() == STEP_TEAM_WARPS - 1) {
    const float inverse = inverse_of_x(b);
    if (b.lane() == 0) b.inverse() = inverse;
  }
  b.sync();
}

} // namespace step

#endif
