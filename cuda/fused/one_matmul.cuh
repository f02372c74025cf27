/* one_matmul.cuh - a block's share of a matmul with one token's activations, from stages in the ring.
 *
 *     sums[k][row] = sum over the groups of warp k of s (sum q X - z sum X) d,   x = d X (quantise.cuh)
 *
 * First all warps quantise the activations into int8 planes in shared memory, a group of 128 each at a
 * time. Stage i of a share belongs to warpgroup i % 4. Each of its warps takes a tile row by at most four
 * groups:
 *
 *     4 tile rows, k_warps 1       2 tile rows, k_warps 2            1 tile row, k_warps 4
 *       row 0  | warp 0 |            row 0  | warp 0 | warp 1 |        row 0  | w 0 | w 1 | w 2 | w 3 |
 *       row 1  | warp 1 |            row 1  | warp 2 | warp 3 |
 *       row 2  | warp 2 |
 *       row 3  | warp 3 |
 *
 * x of the four groups is operand b of mma_u8s8_m16n8k32, in the same registers for all of them: columns
 * 2 i and 2 i + 1 are the planes of group i. When group i's tiles are multiplied, only lanes t = i,
 * which have these columns, use the result; lane t scales group t. A warp keeps x as long as its stages
 * are of the same part of the inputs. Rows g + 8 are multiplied as whole bytes, 16 times too large and
 * with row g's nibble below: subtracting row g's sum at the end saves the mask. */
#pragma once

#include "cuda/fused/one_residual.cuh"

namespace step::one {

constexpr int kPlaneBytes = 2 * STEP_GROUP; /* planes of a group */
static_assert(STEP_SPAN == 4, "lane t scales group t");

/* Quantises `n` groups of activations in shared memory, one after another in each warp, into planes and
 * {scale, scale * sum}. Layout of a group: [64 inputs][plane][lane t][words 0, 2, 1, 3 of layout.cuh]. */
template <class B> __device__ __forceinline__ void make_planes(const B &b, const float *from, int n) {
  const int t = b.lane() & 3, g = b.lane() >> 2;
  unsigned char *to = b.planes() + b.warp() * kPlaneBytes + word_at(b.lane(), STEP_GROUP);
  from += b.warp() * STEP_GROUP + g * 16 + 2 * t;
#pragma unroll 1
  for (int i = b.warp(); i < n; i += STEP_WARPS) {
    const float2 low = *(const float2 *)from, high = *(const float2 *)(from + 8);
    const float v[4] = {low.x, high.x, low.y, high.y};
    store_group(v, to, 64, b.scales() + i, b.lane());
    from += STEP_WARPS * STEP_GROUP, to += STEP_WARPS * kPlaneBytes;
  }
}

/* x of a warp's groups. Column g of an mma is plane g % 2 of group g / 2, whichever group's tiles are
 * multiplied. scale and scaled_sum are group t's in lane t, 0 if the warp has no such group. */
struct Inputs {
  uint4 x[2];
  float scale, scaled_sum;
};

/* Loads n groups from `first` on; further ones repeat the last with scale 0. */
__device__ __forceinline__ void take_inputs(Inputs &in, const unsigned char *planes, const float2 *scales,
                                            int first, int n, int lane) {
  const int t = lane & 3, g = lane >> 2, last = max(n, 1) - 1;
  const unsigned char *from = planes + (first + min(g >> 1, last)) * kPlaneBytes + (g & 1) * 64 + t * 16;
  in.x[0] = *(const uint4 *)from;
  in.x[1] = *(const uint4 *)(from + 128);
  const float2 scale = scales[first + min(t, last)];
  in.scale = t < n ? scale.x : 0, in.scaled_sum = t < n ? scale.y : 0;
}

/* The weights that a warp multiplies at once: tiles [pair][64 inputs][group of the pair] of its groups
 * of a tile row; scale and zero of lane t's group. */
struct Task {
  uint4 tiles[2][2][2];
  uint32_t scale, zero;
};

/* Multiplies a pair of groups. Where the lane's group is one of them, its sums are: high and low plane
 * of row g, then of row g + 8. One mma takes words 0 and 2 of a tile, the next one words 1 and 3, which
 * are loaded where the operand wants them. */
__device__ __forceinline__ void multiply(float (&sum)[4], const uint4 (&tiles)[2][2], const Inputs &in,
                                         bool second) {
  constexpr float kStart = 12582912.0f; /* 1.5 * 2^23: sums below 2^22 become floats without conversion */
  int acc[2][4];
#pragma unroll
  for (int i = 0; i < 2; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0x4b400000;
#pragma unroll
  for (int step = 0; step < 4; step++)
#pragma unroll
    for (int i = 0; i < 2; i++) { /* neighbours are of different sums, which hides latency */
      const uint4 &v = tiles[step / 2][i], &x = in.x[step / 2];
      const uint32_t one = step % 2 ? v.y : v.x, two = step % 2 ? v.w : v.z;
      const uint32_t operand[4] = {one & 0x0f0f0f0fu, one, two & 0x0f0f0f0fu, two};
      mma_u8s8_m16n8k32(acc[i], operand, step % 2 ? x.z : x.x, step % 2 ? x.w : x.y);
    }
#pragma unroll
  for (int e = 0; e < 4; e++) sum[e] = __int_as_float(second ? acc[1][e] : acc[0][e]) - kStart;
}

/* Scales and adds up the groups: row g in lanes t = 0, 2, row g + 8 in lanes 1, 3. scale, zero: of lane
 * t's group. */
__device__ __forceinline__ float add_groups(const float (&sum)[4], const Inputs &in, uint32_t scale,
                                            uint32_t zero, int t) {
  const float low = 256.0f * sum[0] + sum[1], high = (256.0f * sum[2] + sum[3] - low) * 0.0625f;
  const float y_low = f16_low(scale) * (in.scale * low - small_float(zero & 15) * in.scaled_sum);
  const float y_high = f16_high(scale) * (in.scale * high - small_float(zero >> 4) * in.scaled_sum);
  float y = t & 1 ? y_high : y_low;
  y += __shfl_xor_sync(~0u, t & 1 ? y_low : y_high, 1);
  return y + __shfl_xor_sync(~0u, y, 2);
}

/* Makes a table of each warp's part of each stage, since computing a part anew takes as many instructions
 * as a third of the matmul:
 *
 *     [stages of qkv, o, gate and up, down][warp of a warpgroup]
 *         uint32 {7 bits first group, 3 bits groups, 1 bit zeros_are_odd(), 21 bits offset of sums} */
template <class B> __device__ __forceinline__ void make_tasks(const B &b) {
  int at = b.plan.off.tasks;
#pragma unroll 1
  for (int matrix = 0; matrix < MATRICES; matrix++) {
    Share &s = b.share(matrix);
    if (threadIdx.x == 0) s.tasks_at = at;
#pragma unroll 1
    for (int i = threadIdx.x; i < s.stages * STEP_WARPGROUP_WARPS; i += STEP_ALL_THREADS) {
      const int stage = i / STEP_WARPGROUP_WARPS, wg_warp = i % STEP_WARPGROUP_WARPS,
                block = stage / s.splits, split = stage % s.splits;
      const int k = wg_warp & ((1 << s.log_k_warps) - 1), row = wg_warp >> s.log_k_warps;
      const int g0 = first_group(s, split), end = first_group(s, split + 1),
                first = min(g0 + k * s.span, end - 1), mine = min(s.span, max(0, end - g0 - k * s.span));
      const int sums = ((split << s.log_k_warps) + k) * s.sums_stride + ((block << s.log_rows) + row) * 16;
      ((uint32_t *)(b.smem + at))[i] = first | mine << 7 | (int)zeros_are_odd(s, g0) << 10 | sums << 11;
    }
    at += s.stages * STEP_ENTRY_BYTES;
  }
}

/* Multiplies the whole share, by all warps that multiply, once take_x() has waited for x and quantised it.
 * Then all warps may read the sums.
 *
 * A warp loads its part of a stage into registers at once, and does so before x has come if the stage is
 * there: four more stages are in flight during that wait. Half of the warpgroups begin half a matmul of
 * a stage later, so that some warps load from shared memory while others multiply (2%). In place of
 * groups that a warp does not have it multiplies what follows in memory, with scales of 0; tile rows
 * past the last leave sums that are not read. */
template <class B> __device__ __forceinline__ void matmul(B &b, int matrix) {
  const Share &share = b.share(matrix);
  const int warpgroup = b.warp() >> 2, t = b.lane() & 3, g = b.lane() >> 2;
  const int log_k = share.log_k_warps, most = share.groups, row = (b.warp() & 3) >> log_k;
  /* Offsets in a stage: of the tiles, and (the constant part) of scales and zeros. */
  const int group0 = row * most + (b.warp() & 3 & ((1 << log_k) - 1)) * share.span;
  const uint32_t tiles_at = opaque(group0 * 1024 + b.lane() * 16),
                 scales_at = opaque((most << share.log_rows) * 1024 + group0 * 32 + g * 4),
                 zeros_at = opaque((most << share.log_rows) * (1024 + 32) + group0 * 8 + g +
                                   row * (zeros_stride(most) - most * 8));
  const uint32_t sums = shared_address(b.sums(share) + g + t * 8);
  /* A warpgroup without a stage reads another one's entry and ignores it. */
  uint32_t tasks = shared_address(b.smem) + share.tasks_at + (b.warp() & 3) * 4 +
                   min(warpgroup, share.stages - 1) * STEP_ENTRY_BYTES;
  uint32_t scale_at, zero_at, to; /* offsets in a stage, and address of the sums */
  int first, mine;                /* groups of inputs */
  auto place = [&] {
    const uint32_t entry = load_shared_4(tasks);
    first = entry & 127, mine = entry >> 7 & 7;
    const int own = max(min(t, mine - 1), 0);
    scale_at = scales_at + own * 32, zero_at = zeros_at + (own + (entry >> 10 & 1)) * 8;
    to = sums + (entry >> 11) * 4;
  };
  RingCursor cursor = b.next();
  cursor.move(warpgroup, b.plan.n_slots);
  Task task = {}; /* cleared, or the compiler keeps it live from one matmul to the next */
  auto fetch = [&] {
    const uint32_t stage = b.stage_address(cursor), empty = b.empty_at(cursor);
#pragma unroll
    for (int pair = 0; pair < 2; pair++)
#pragma unroll
      for (int c = 0; c < 2; c++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          task.tiles[pair][c][i] = load_shared_16(stage + tiles_at + (2 * pair + i) * 1024 + c * 512);
    task.scale = load_shared_4(stage + scale_at), task.zero = load_shared_1(stage + zero_at);
    __syncwarp();
    if (b.lane() == 0) barrier_arrive(empty);
  };
  int left = share.stages - warpgroup;
  place();
  bool fetched = left > 0 && b.stage_is_full(cursor);
  if (fetched) fetch();
  take_x(b, matrix);
  b.sync();
  Inputs in;
  bool is_new = true; /* a new split */
  bool is_first = true;
  if (left <= 0) named_barrier_arrive<6, STEP_THREADS>();
#pragma unroll 1
  for (; left > 0; left -= STEP_WARPGROUPS) {
    if (is_new) {
      place();
      take_inputs(in, matrix == O ? b.value_planes() : b.planes(),
                  matrix == O ? b.value_scales() : b.scales(), first, mine, b.lane());
    }
    if (!fetched) {
      b.wait_for_stage(cursor);
      fetch();
    }
    if (is_first && warpgroup >= STEP_WARPGROUPS / 2) named_barrier_sync<6, STEP_THREADS>();
    float sum[4], more[4];
    multiply(sum, task.tiles[0], in, t & 1);
    if (is_first && warpgroup < STEP_WARPGROUPS / 2) named_barrier_arrive<6, STEP_THREADS>();
    is_first = false;
    multiply(more, task.tiles[1], in, t & 1);
#pragma unroll
    for (int e = 0; e < 4; e++) sum[e] = t & 2 ? more[e] : sum[e];
    const float y = add_groups(sum, in, task.scale, task.zero, t);
    if (t < 2) store_shared(to, y);
    to += share.next * 4;
    tasks += STEP_WARPGROUPS * STEP_ENTRY_BYTES;
    is_new = share.next == 0;
    cursor.move(STEP_WARPGROUPS, b.plan.n_slots);
    fetched = false;
  }
  b.advance(share.run);
  /* This warp is ready before others. */
  if (matrix == GATE_UP && b.warp() == STEP_WARPGROUP_WARPS - 1) {
    const float inverse = inverse_of_x(b);
    if (b.lane() == 0) b.vars().inverse = inverse;
  }
  b.sync();
}

} // namespace step::one
