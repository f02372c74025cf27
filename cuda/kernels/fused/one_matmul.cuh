/* one_matmul.cuh - a block's share of a matmul with one token's activations, from stages in the ring.
 *
 *     sums[k][row] = sum over the groups of warp k (s (sum q X - z sum X) d),   x = d X (quantise.cuh)
 *
 * Unless x came as planes (one_residual.cuh), all warps first quantise the activations into int8 planes in
 * shared memory, each a group of 128 at a time. Stage i of a share belongs to warpgroup i % 4. Each warp of
 * that warpgroup takes a tile row by at most four groups:
 *
 *     4 tile rows, k_warps 1       2 tile rows, k_warps 2            1 tile row, k_warps 4
 *       row 0  | warp 0 |            row 0  | warp 0 | warp 1 |        row 0  | w 0 | w 1 | w 2 | w 3 |
 *       row 1  | warp 1 |            row 1  | warp 2 | warp 3 |
 *       row 2  | warp 2 |
 *       row 3  | warp 3 |
 *
 * With groups of 128, x of the four groups is operand b of mma_u8s8_m16n8k32, in the same registers for all
 * four. Columns 2 i and 2 i + 1 are the planes of group i. When group i's tiles are multiplied, only lanes t
 * = i use the result: they have these columns. Lane t scales group t. Smaller groups are parts of 128 inputs,
 * and take turns in the columns (Inputs). A warp keeps x as long as its stages are of the same split of the
 * inputs. Rows g + 8 are multiplied as whole bytes, 16 times too large and with row g's nibble below.
 * Subtracting row g's sum at the end saves the mask. FP4: one_fp4.cuh; 8 bits: one_bytes.cuh; fp16:
 * one_halves.cuh. */
#pragma once

#include "cuda/kernels/fused/experts/one_experts.cuh"
#include "cuda/kernels/fused/one_bytes.cuh"
#include "cuda/kernels/fused/one_fp4.cuh"
#include "cuda/kernels/fused/one_halves.cuh"
#include "cuda/kernels/fused/one_residual.cuh"

namespace step::one {

static_assert(STEP_SPAN == 4, "lane t scales group t");

/* Quantises x of a matmul, n groups of floats from `from` on, into planes() and scales(). Each warp takes
 * every STEP_WARPS-th group. Layout of a group: [2 halves of 64 inputs][plane][lane t][words of word_at()].
 * n_blocks: with varied experts the number of half groups that exist; inputs past them count as 0. */
template <class B>
__device__ __forceinline__ void make_planes(const B &b, const float *from, int n, int n_blocks = 0) {
  const int t = b.lane() & 3, g = b.lane() >> 2;
  unsigned char *to = b.planes() + b.warp() * kPlaneBytes + word_at<B::kParts>(b.lane(), STEP_GROUP);
  from += b.warp() * STEP_GROUP + g * 16 + 2 * t;
#pragma unroll 1
  for (int i = b.warp(); i < n; i += STEP_WARPS) {
    const float2 low = *(const float2 *)from, high = *(const float2 *)(from + 8);
    float v[4] = {low.x, high.x, low.y, high.y};
    if (B::kVaried && 2 * i + (g >> 2) >= n_blocks) v[0] = v[1] = v[2] = v[3] = 0;
    store_group<B::kParts>(v, to, 64, b.scales() + i * kXScales<B::kParts>, 1, b.lane());
    from += STEP_WARPS * STEP_GROUP, to += STEP_WARPS * kPlaneBytes;
  }
}

/* x of a warp's groups, whose parts form sets of four. While set i is multiplied, column g of an mma is plane
 * g % 2 of part 4 i + g / 2. In lane t scale[i] and scaled_sum[i] are those of part 4 i + t, or 0 if the warp
 * has no such part. */
template <int kParts> struct Inputs {
  uint4 x[2];
  float scale[kParts], scaled_sum[kParts];
};

/* Loads n groups from `first` on; further groups repeat the last with scale 0. */
template <int kParts>
__device__ __forceinline__ void take_inputs(Inputs<kParts> &in, const unsigned char *planes,
                                            const float2 *scales, int first, int n, int lane) {
  const int t = lane & 3, g = lane >> 2, pair = g >> 1, last = max(n, 1) - 1;
  auto from = [&](int group, int half) {
    return planes + (first + min(group, last)) * kPlaneBytes + half * 128 + (g & 1) * 64 + t * 16;
  };
  if (kParts == 1) { /* the lane's group: its first 64 inputs, then its last 64 */
    in.x[0] = *(const uint4 *)from(pair, 0);
    in.x[1] = *(const uint4 *)(from(pair, 0) + 128);
  } else if (kParts == 2) { /* all 64 inputs of the lane's part of set 0, then of set 1 */
    in.x[0] = *(const uint4 *)from(pair >> 1, pair & 1);
    in.x[1] = *(const uint4 *)from(2 + (pair >> 1), pair & 1);
  } else { /* all 32 inputs of the lane's part of each set */
    uint2 x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = *(const uint2 *)(from(i, pair >> 1) + (pair & 1) * 8);
    in.x[0] = make_uint4(x[0].x, x[0].y, x[1].x, x[1].y);
    in.x[1] = make_uint4(x[2].x, x[2].y, x[3].x, x[3].y);
  }
#pragma unroll
  for (int i = 0; i < kParts; i++) {
    const int part = 4 * i + t;
    const float2 scale = scales[first * kParts + min(part, last * kParts + kParts - 1)];
    in.scale[i] = part < n * kParts ? scale.x : 0, in.scaled_sum[i] = part < n * kParts ? scale.y : 0;
  }
}

/* The weights that a warp multiplies at once: tiles [pair][64 inputs][group of the pair] of its groups
 * of a tile row; scales and zeros of the lane's part of each set. */
template <int kParts, bool kVaried> struct Task {
  uint4 tiles[2][2][2];
  uint32_t scale[kParts], zero[kParts];

  __device__ __forceinline__ uint32_t some_bits() const {
    return bits_of(tiles) ^ bits_of(scale) ^ bits_of(zero);
  }
};

/* Start of a sum. With one part 1.5 * 2^23: sums below 2^22 become floats without conversion. */
template <int kParts> constexpr int kStart = kParts == 1 ? 0x4b400000 : 0;

/* Multiplies a pair of groups, each for itself. Inputs of 0 keep the sums of other parts out of a column. */
template <int kParts>
__device__ __forceinline__ void multiply_pair(int (&acc)[2][4], const uint4 (&tiles)[2][2],
                                              const Inputs<kParts> &in, int pair, int lane) {
  const int own = lane >> 3; /* the part of a set to which the lane's column belongs */
#pragma unroll
  for (int i = 0; i < 2; i++) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = kStart<kParts>;
#pragma unroll
  for (int step = 0; step < 4; step++)
#pragma unroll
    for (int i = 0; i < 2; i++) { /* neighbouring mma add to different sums, which hides latency */
      const uint4 &x = in.x[kParts == 1 ? step / 2 : pair];
      const bool second = kParts == 4 ? i : step % 2; /* half of x */
      const bool mine = kParts == 1 || (kParts == 2 ? own % 2 == step / 2 : own == step);
      uint32_t operand[4];
      operand_of<kParts>(tiles[step / 2][i], step % 2, operand);
      mma_u8s8_m16n8k32(acc[i], operand, mine ? second ? x.z : x.x : 0, mine ? second ? x.w : x.y : 0);
    }
}

/* Scales the lane's part of one set, for rows g and g + 8. sum: of the high and the low plane of row g, then
 * of row g + 8. */
__device__ __forceinline__ float2 scaled_part(const float (&sum)[4], const Inputs<1> &in,
                                              const Task<1> &task) {
  const uint32_t scale = task.scale[0], zero = task.zero[0];
  const float low = 256.0f * sum[0] + sum[1], high = (256.0f * sum[2] + sum[3] - low) * 0.0625f;
  return make_float2(f16_low(scale) * (in.scale[0] * low - small_float(zero & 15) * in.scaled_sum[0]),
                     f16_high(scale) * (in.scale[0] * high - small_float(zero >> 4) * in.scaled_sum[0]));
}

/* Adds the lane's part of set i; row g + 8 is 16 times too large. */
template <int kParts>
__device__ __forceinline__ void add_part(float2 &rows, const int (&sum)[4], const Inputs<kParts> &in,
                                         const Task<kParts> &task, int i) {
  const uint32_t scale = task.scale[i], zero = task.zero[i];
  const int low = 256 * sum[0] + sum[1], high = 256 * sum[2] + sum[3] - low;
  rows.x += f16_low(scale) * (in.scale[i] * (float)low - small_float(zero & 15) * in.scaled_sum[i]);
  rows.y += f16_high(scale) * (in.scale[i] * (float)high - small_float(zero & 240) * in.scaled_sum[i]);
}

/* Multiplies a warp's groups of a tile row; between() is called after the first pair. */
template <int kParts, class Between>
__device__ __forceinline__ float multiply(const Task<kParts> &task, const Inputs<kParts> &in, int lane,
                                          Between between) {
  const int t = lane & 3;
  float2 rows = {0, 0};
  float of_group[4]; /* with one part: sums of the lane's group, in whichever pair it is */
#pragma unroll
  for (int pair = 0; pair < 2; pair++) {
    int acc[2][4];
    multiply_pair(acc, task.tiles[pair], in, pair, lane);
    if constexpr (kParts == 1) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float sum = __int_as_float(t & 1 ? acc[1][e] : acc[0][e]) - __int_as_float(kStart<kParts>);
        of_group[e] = pair == 0 || t & 2 ? sum : of_group[e];
      }
    } else if constexpr (kParts == 2) {
      int sum[4];
#pragma unroll
      for (int e = 0; e < 4; e++) sum[e] = t & 2 ? acc[1][e] : acc[0][e];
      add_part(rows, sum, in, task, pair);
    } else {
      add_part(rows, acc[0], in, task, 2 * pair);
      add_part(rows, acc[1], in, task, 2 * pair + 1);
    }
    if (pair == 0) between();
  }
  if constexpr (kParts == 1)
    rows = scaled_part(of_group, in, task);
  else
    rows.y *= 0.0625f;
  return add_lanes(rows, t);
}

/* The lowest bit of the offset of sums in a task's entry. */
template <class B> constexpr int kSumsBit = B::kVaried ? 15 : B::kOddBlocks ? 14 : 11;

/* Varied experts: the bits of a task's entry for a warp's half groups of down. The warp has `mine` groups,
 * which begin with group `first` of the share; its stage begins with group g0.
 *   bits 0 to 3  how many of the warp's half groups belong to the stage's first expert, at most 2 STEP_SPAN
 *   bit 4        the last group has one half */
template <class B>
__device__ __forceinline__ int half_groups(const B &b, const Share &share, int g0, int first, int mine) {
  const int blocks = b.plan.expert_blocks, begin = share.group + 2 * g0,
            own = (begin / blocks + 1) * blocks - (share.group + 2 * first);
  return min(max(own, 0), 2 * STEP_SPAN) | (2 * (first + mine) > b.n_blocks()) << 4;
}

/* The bits of a task's entry that say where a warp finds the zeros of its groups of down, in tile row i of
 * the share. The stage begins with the share's group g0, and the warp skips `skipped` groups of the stage.
 *   bit 0        the stage's zeros begin at an odd group
 *   bits 1 to 3  the number of the warp's groups that belong to the stage's first expert; 7: all
 * If an expert has an odd number of groups, zeros of the second expert begin 8 bytes after the end of the
 * first one's (weight_ring.cuh). */
template <class B>
__device__ __forceinline__ int odd_zeros(const B &b, const Share &share, int i, int g0, int skipped) {
  const int blocks = b.plan.expert_blocks, group = (share.group + g0) % blocks;
  const bool is_odd = (tile_row(share, i) * blocks + group) % 2 != 0;
  const int before = blocks % 2 ? min(max(blocks - group - skipped, 0), 7) : 7;
  return is_odd | before << 1;
}

/* Makes a table of each warp's part of each stage. Computing a part anew would take as many instructions as a
 * third of the matmul:
 *
 *     [stages of all shares, in the order of share_at()][warp of a warpgroup]
 *         uint32 {7 bits first group, 3 bits groups, 1 bit zeros_are_odd(), 21 bits offset of sums}
 *
 * With kOddBlocks the last two are 4 bits odd_zeros(), 18 bits offset of sums; with varied experts 5 bits
 * half_groups(), 17 bits offset of sums. */
template <class B> __device__ __forceinline__ void make_tasks(const B &b) {
  int at = b.plan.off.tasks;
#pragma unroll 1
  for (int matrix = 0; matrix < B::kShares; matrix++) {
    Share &s = b.share_at(matrix);
    if (threadIdx.x == 0) s.tasks_at = at;
#pragma unroll 1
    for (int i = threadIdx.x; i < s.stages * STEP_WARPGROUP_WARPS; i += STEP_ALL_THREADS) {
      const int stage = i / STEP_WARPGROUP_WARPS, wg_warp = i % STEP_WARPGROUP_WARPS,
                block = stage / s.splits, split = stage % s.splits;
      const int k = wg_warp & ((1 << s.log_k_warps) - 1), row = wg_warp >> s.log_k_warps;
      const int g0 = first_group(s, split), end = first_group(s, split + 1),
                first = min(g0 + k * s.span, end - 1), mine = min(s.span, max(0, end - g0 - k * s.span));
      const int sums = ((split << s.log_k_warps) + k) * s.sums_stride + ((block << s.log_rows) + row) * 16;
      int zeros = zeros_are_odd<B::kParts>(s, g0);
      if constexpr (B::kOddBlocks)
        zeros =
            matrix == DOWN ? odd_zeros(b, s, (block << s.log_rows) + row, g0, k * s.span) : zeros | 7 << 1;
      if constexpr (B::kVaried) zeros = matrix == DOWN ? half_groups(b, s, g0, first, mine) : 2 * STEP_SPAN;
      ((uint32_t *)(b.smem + at))[i] = first | mine << 7 | zeros << 10 | sums << kSumsBit<B>;
    }
    at += s.stages * STEP_ENTRY_BYTES;
  }
}

/* The address in a stage of what Task::tiles[pair][c][i] loads. from: where the lane's first vector lies. */
template <int kParts>
__device__ __forceinline__ uint32_t tile_address(uint32_t from, int pair, int c, int i) {
  if constexpr (kIsHalf<kParts>)
    return halves_at(from, pair, c, i);
  else
    return from + 512 * (kInBytes<kParts> ? 4 * pair + 2 * c + i : 4 * pair + 2 * i + c);
}

/* Loads the lane's vectors of a task. */
template <int kParts, class AnyTask>
__device__ __forceinline__ void load_tiles(AnyTask &task, uint32_t from) {
#pragma unroll
  for (int pair = 0; pair < 2; pair++)
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        task.tiles[pair][c][i] = load_shared_16(tile_address<kParts>(from, pair, c, i));
}

/* Where the lane's zeros or factors of group group0 lie in a stage, in its tile row `row`: the same in all
 * stages. matmul_of() adds what depends on the stage. */
template <int kParts, class B>
__device__ __forceinline__ uint32_t zeros_of_lane(const B &b, const Share &share, int group0, int row) {
  constexpr int kZero = kZeroBytes<kParts>, kBefore = (1 << kLogTiles<kParts>)+kScaleBytes<kParts>;
  const int t = b.lane() & 3, g = b.lane() >> 2, most = share.groups;
  const int own = B::kVaried && kIsFp4<kParts> ? g * 4 : kHasFactors<kParts> ? (g + (t & 1) * 8) * 4 : g;
  return opaque((most << share.log_rows) * kBefore + group0 * kZero + own +
                row * (zeros_stride<kParts>(most + B::kOddBlocks, B::kFactors) - most * kZero));
}

/* Keeps 1 / rms of x of qkv, or of gate and up, for what follows the matmul. With experts also calls weigh()
 * for gate and up. For one warp. */
template <int kParts, class B> __device__ __forceinline__ void keep_inverse(const B &b, int matrix) {
  const float inverse = kIsInt8<kParts> ? 1 : inverse_of_x(b); /* take_int8() has multiplied x by it */
  if (b.lane() == 0) b.vars().inverse = inverse;
  if constexpr (B::kExperts)
    if (matrix == GATE_UP) weigh(b, inverse);
}

/* Calls take_x(), then multiplies the whole share of `matrix`; its weights have kParts parts a group. All
 * warps that multiply call it; afterwards all may read the sums.
 *
 * A warp takes its part of a loaded stage into registers at once, even before x has come. Without experts
 * this frees the slot, so four more stages are in flight while the warps wait for x. Half of the warpgroups
 * begin half a stage's products later: some warps load from shared memory while others multiply (2% less
 * time). A warp with fewer groups than its span skips the missing ones (FP4, FP8, fp16), or multiplies what
 * follows in memory by 0. Tile rows past the last leave sums that are not read. */
template <int kParts, class B> __device__ __forceinline__ void matmul_of(B &b, int matrix) {
  constexpr int kScale = kScaleBytes<kParts>, kTiles = 1 << kLogTiles<kParts>;
  constexpr bool kHalves = B::kVaried && kIsFp4<kParts>; /* half_groups() */
  const Share &share = b.share(matrix);
  const int warpgroup = b.warp() >> 2, t = b.lane() & 3, g = b.lane() >> 2;
  const int log_k = share.log_k_warps, most = share.groups, row = (b.warp() & 3) >> log_k;
  /* Offsets of the lane's tiles, scales and zeros in a stage, as far as they are the same for all stages. */
  const int group0 = row * most + (b.warp() & 3 & ((1 << log_k) - 1)) * share.span;
  const uint32_t tiles_at = opaque(group0 * kTiles + (kIsHalf<kParts> ? half_offset(b) : b.lane() * 16)),
                 scales_at = opaque((most << share.log_rows) * kTiles + group0 * kScale +
                                    (kIsFp4<kParts> ? fp4_scales_at(b.lane()) : g * 4)),
                 zeros_at = zeros_of_lane<kParts>(b, share, group0, row);
  const uint32_t sums = shared_address(b.sums(share) + (kIsHalf<kParts> ? half_row(b.lane()) : g) + t * 8);
  /* A warpgroup without a stage reads another warpgroup's entry and ignores it. */
  uint32_t tasks = shared_address(b.smem) + share.tasks_at + (b.warp() & 3) * 4 +
                   min(warpgroup, share.stages - 1) * STEP_ENTRY_BYTES;
  uint32_t scale_at[kParts], zero_at[kParts], to; /* scale_at, zero_at: in a stage; to: address of the sums */
  int first, mine;                                /* first of the warp's groups; their number */
  int of_first = 0, of_both = 0; /* kHalves: half groups of the stage's first expert, of both experts */
  auto locate = [&] {
    const uint32_t entry = load_shared_4(tasks);
    first = entry & 127, mine = entry >> 7 & 7;
    if constexpr (kHalves) of_first = entry >> 10 & 15, of_both = 2 * mine - (int)(entry >> 14 & 1);
#pragma unroll
    for (int i = 0; i < (kHasNoZeros<kParts> ? 0 : kParts); i++) {
      const int own = max(min(4 * i + t, mine * kParts - 1), 0);
      scale_at[i] = scales_at + own * 32, zero_at[i] = zeros_at + (own + (entry >> 10 & 1)) * 8;
      if constexpr (B::kOddBlocks) zero_at[i] += own >= (int)(entry >> 11 & 7) ? 8 : 0;
    }
    to = sums + (entry >> kSumsBit<B>)*4;
  };
  RingCursor cursor = first_stage(b, matrix);
  Task<kParts, kHalves> task = {}; /* cleared: else the compiler would keep it live between matmuls */
  /* A slot must not be freed before the warp's loads from it have ended. With kAtOnce a warp waits for them
   * as soon as they are issued. This costs 0.7 to 0.8% of a step. With groups of 128 it would cost 2.5%:
   * there the warp waits during the products, except for a first stage that it loads before x has come. With
   * experts it always waits during the products: freeing the slot of such a first stage would cost 1%
   * (H200). */
  constexpr bool kAtOnce = !B::kExperts && kParts != 1;
  uint32_t empty = 0;
  bool is_free = false;
  const auto release = [&] {
    __syncwarp();
    barrier_arrive_after_reads(empty, b.lane() == 0, task.some_bits());
  };
  auto fetch = [&](bool at_once) {
    const uint32_t stage = b.stage_address(cursor);
    empty = b.empty_at(cursor);
    load_tiles<kParts>(task, stage + tiles_at);
    if constexpr (kHasNoZeros<kParts>) {
      fetch_scales(task, stage + scales_at, stage + zeros_at);
    } else {
#pragma unroll
      for (int i = 0; i < kParts; i++)
        task.scale[i] = load_shared_4(stage + scale_at[i]), task.zero[i] = load_shared_1(stage + zero_at[i]);
    }
    is_free = at_once;
    if (at_once) release();
  };
  int left = share.stages - warpgroup;
  locate();
  bool fetched = left > 0 && first_is_full(b, matrix, cursor);
  if (fetched) fetch(!B::kExperts);
  const bool has_norm = matrix == QKV || matrix == GATE_UP;
  take_x(b, matrix);
  if (!has_norm || !b.owns_groups()) b.sync(); /* other warps' planes; take_x() awaited peers' planes */
  if constexpr (B::kExperts && !B::kLatent)
    if (matrix == O) route_outputs(b);
  if (B::kExperts && has_norm && b.warp() == STEP_WARPS - 1)
    keep_inverse<kParts>(b, matrix); /* while the weights load */
  Inputs<kParts> in;
  bool is_new = true; /* a new split */
  bool is_first = true;
  if (left <= 0) named_barrier_arrive<6, STEP_THREADS>();
#pragma unroll 1
  for (; left > 0; left -= STEP_WARPGROUPS) {
    if (is_new) {
      if (!B::kExperts || !is_first) locate(); /* again: keeping its results costs FP4 2% */
      take_inputs(in, b.smem + share.x_at, (const float2 *)(b.smem + share.x_scales_at), first, mine,
                  b.lane());
    }
    if (!fetched) {
      b.wait_for_stage(cursor);
      fetch(kAtOnce);
    }
    if constexpr (kHalves) task.first = of_first, task.all = of_both;
    if (is_first && warpgroup >= STEP_WARPGROUPS / 2) named_barrier_sync<6, STEP_THREADS>();
    const float y = multiply(task, in, b.lane(), [&] {
      if (is_first && warpgroup < STEP_WARPGROUPS / 2) named_barrier_arrive<6, STEP_THREADS>();
      is_first = false;
      if (!is_free) release();
    });
    if (t < 2) store_shared(to, y);
    to += share.next_sums * 4;
    tasks += STEP_WARPGROUPS * STEP_ENTRY_BYTES;
    is_new = share.next_sums == 0;
    cursor.move(STEP_WARPGROUPS, b.plan.n_slots);
    fetched = false;
  }
  b.advance(share.run);
  /* By a warp of the first warpgroup, which begins, and so ends, before others. */
  if (!B::kExperts && has_norm && b.warp() == STEP_WARPGROUP_WARPS - 1) keep_inverse<kParts>(b, matrix);
  b.sync();
}

template <class B> __device__ __forceinline__ void matmul(B &b, int matrix) {
  if constexpr (B::kVaried)
    if (matrix <= O) return matmul_of<B::kAttnParts>(b, matrix);
  matmul_of<B::kParts>(b, matrix);
}

} // namespace step::one
