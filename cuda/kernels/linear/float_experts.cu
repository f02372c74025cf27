/* float_experts.cu - one token of a mixture of experts (linear.h, LinearExperts) with FP8 or FP4 weights, on
 * fp16 tensor cores: float_mma's numbers, columns and scales, a unit at a time.
 *
 *     stacked   y[c][o] = factor[e][o] * sum_g s[e][o][g] * sum_(i in g) number(code[e][o][i]) x[i]
 *     summed    y[o] = sum_c y[c][o], where each choice c has an x[c] of its own;   e = ids[c]
 *
 * The chosen experts are multiplied as one matrix: stacked, or side by side. A block owns consecutive tile
 * rows (skinny_plan.h, where a batch is one unit: 16 outputs x 128 inputs). Each warp streams an equal,
 * contiguous part of the block's units through its own ring in shared memory:
 *
 *     units | tile row 0: u u u u u u | tile row 1: u u u u u u | ...
 *     warps |---- 0 ----|---- 1 ----|---- 2 ----| ...
 *     slot  | tile, inputs 0 .. 63 | tile, inputs 64 .. 127 | a word of scales for each lane |
 *
 * A block has few units, so it requests x before the weights. After a ring of weights x would arrive last,
 * and all multiplying would still be to do. Where the choice is known early (down), the first weights are
 * requested before the wait for the previous kernel.
 *
 * Column i of the first tile's product, and column 4 + i of the second tile's, hold the sums of that tile's
 * inputs 16 i .. 16 i + 15. Both products take the same operand b: x, masked to columns i and 4 + i. Columns
 * in which a tile meets the other tile's x are not read.
 *
 * PRECOND  FP8: groups of a multiple of 128 inputs; x is 16-byte aligned; summed: x is [n_chosen][inputs
 *          rounded up to 128] without infinities.
 * READS    the weights of the chosen experts once, x once for each block. */
#include "cuda/kernels/linear/float_unit.cuh"

namespace skinny_gemm {

constexpr int kUnitX = kUnitIn * 2, kPieces = kUnitIn / 8; /* bytes, and pieces of 16 bytes, of a unit's x */
constexpr int kEarlyBytes = 48 << 10; /* of weights that a block requests before x; more would delay x */

/* A lane's places in a unit and its masks of x, computed once and kept in registers. */
template <class W> struct LanePlaces {
  int tiles, scales; /* byte offsets in a slot of the ring */
  int stored_scale;  /* UnitScale::own() */
  int x[2];          /* byte offsets in a unit's x of the inputs of column lane / 4 */
  uint32_t masks[4]; /* masks[i]: two halves, 1 if column lane / 4 is i or 4 + i, else 0 */

  __device__ __forceinline__ LanePlaces() {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    tiles = opaque(16 * lane);
    scales = opaque(1024 * W::kVectors + 4 * lane);
    stored_scale = opaque(UnitScale<W>::own());
#pragma unroll
    for (int i = 0; i < 2; i++) x[i] = opaque(16 * (2 * g + (i ^ g / 4)) + 4 * t); /* see request_x() */
#pragma unroll
    for (int i = 0; i < 4; i++) masks[i] = (uint32_t)opaque(g % 4 == i ? 0x3c003c00 : 0);
  }
};

/* The warp's ring of `depth` units. A lane reads only what it requested itself, so it waits for its own
 * groups of copies (cp.async) and needs no barrier:
 *
 *     lane   wait<1>(): the oldest of `depth` groups has landed | read() | multiply | request() of the unit
 *            `depth` later into the same slot; past the last unit it commits an empty group
 *
 * All threads copy x, as one group: after kEarly units, or before all units if the choice is not known early.
 * A __syncthreads() follows the wait for x. */
template <class W> struct UnitRing {
  static constexpr int kVectors = 2 * W::kVectors, kBytes = 512 * kVectors + SKINNY_UNIT_SCALES;
  static constexpr int kEarly = (kEarlyBytes + kWarps * kBytes - 1) / (kWarps * kBytes);
  static_assert(kEarly < SKINNY_SHALLOW, "x is asked for while the ring is filled");
  unsigned char *slots; /* [depth][kBytes] */
  const QuantView &w;
  const LanePlaces<W> &lane;

  /* Requests unit `unit` of a tile row of `units` units. */
  __device__ __forceinline__ void request(int slot, int tile_row, int unit, int units) const {
    const unsigned char *from =
        (const unsigned char *)w.tiles + ((size_t)tile_row * units + unit) * (512 * kVectors) + lane.tiles;
    unsigned char *to = slots + slot * kBytes;
#pragma unroll
    for (int j = 0; j < kVectors; j++) copy_async_16(to + lane.tiles + 512 * j, from + 512 * j, 16);
    copy_async_4(to + lane.scales, UnitScale<W>::at(w, tile_row, unit) + lane.stored_scale);
  }

  /* Waits until at most depth - kLess groups of copies are in flight. */
  template <int kLess> static __device__ __forceinline__ void wait(int depth) {
    if (depth == SKINNY_DEEP)
      copy_async_wait<SKINNY_DEEP - kLess>();
    else
      copy_async_wait<SKINNY_SHALLOW - kLess>();
  }

  __device__ __forceinline__ void read(int slot, uint4 (&v)[2][W::kVectors], uint32_t *scales) const {
    const unsigned char *from = slots + slot * kBytes;
#pragma unroll
    for (int j = 0; j < kVectors; j++)
      v[j / W::kVectors][j % W::kVectors] = *(const uint4 *)(from + lane.tiles + 512 * j);
    *scales = *(const uint32_t *)(from + lane.scales);
  }
};

/* Goes through a warp's units in stretches; a stretch is of one tile row of one expert. */
struct Walk {
  int tile, unit;        /* tile row and unit where the next stretch begins, counted from the block's first */
  int row, within, left; /* of this stretch: tile row of the matrix, next unit of that row, units left */

  /* Finds the next stretch. id: in lane i the expert of choice i. For all lanes. */
  __device__ __forceinline__ void find(const Args &a, int id, int tile0, int unit0, int n_units) {
    const ChosenExperts &c = a.chosen;
    row = tile0 + tile, within = unit0 + unit;
    const int slot = c.summed ? divide_small(within, c.units) : divide_small(row, c.tile_rows);
    if (c.summed)
      within -= slot * c.units;
    else
      row -= slot * c.tile_rows;
    row += __shfl_sync(~0u, id, slot) * c.tile_rows;
    left = min(c.units - within, n_units - unit);
    unit += left;
    if (unit == n_units) unit = 0, tile++;
  }
};

/* Requests x of n_units units; 0 past the end of x. Columns 4 to 7 have their two 16-byte pieces of inputs
 * swapped, so that the lanes of a warp read from different banks. */
__device__ __forceinline__ void request_x(const Args &a, int first_unit, int n_units, unsigned char *x) {
  for (int i = threadIdx.x; i < n_units * kPieces; i += kThreads) {
    const int k = first_unit * kUnitIn + 8 * i;
    copy_async_16(x + 16 * (i ^ (i >> 3 & 1)), a.x + k, 2 * min(max(a.w.n_in - k, 0), 8));
  }
}

/* sum = a unit's sums of columns 2t and 2t + 1, t = lane % 4: of row lane / 4 in sum[0] and sum[1], of row
 * lane / 4 + 8 in sum[2] and sum[3]. */
template <class W>
__device__ __forceinline__ void multiply_unit(const uint4 (&v)[2][W::kVectors], const unsigned char *x,
                                              const LanePlaces<W> &lane, float (&sum)[4]) {
  const uint32_t x0 = *(const uint32_t *)(x + lane.x[0]), x1 = *(const uint32_t *)(x + lane.x[1]);
  float of[2][4] = {};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const __half2 mask = half2_bits(lane.masks[i]);
    const uint32_t b0 = bits_half2(__hmul2(half2_bits(x0), mask)),
                   b1 = bits_half2(__hmul2(half2_bits(x1), mask));
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      uint32_t numbers[4];
      W::numbers(v[tile], i, numbers);
      mma_f16_m16n8k16(of[tile], numbers, b0, b1);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) sum[i] = threadIdx.x % 4 < 2 ? of[0][i] : of[1][i];
}

/* The `table` of combine_warps(): stores by the ids of the chosen experts. */
struct ChosenIds {
  const int *ids; /* in shared memory */

  __device__ __forceinline__ void store(const ChosenExperts &c, const Epilogue &out, int tile_row, int g,
                                        float low, float high) const {
    c.store(out, ids, tile_row, g, low, high);
  }
};

/* Prefetches into L1 what the epilogue reads. For one warp. */
__device__ __forceinline__ void prefetch_of_chosen(const Args &a, const int *ids, int tile0, int n_tiles) {
  const ChosenExperts &c = a.chosen;
  for (int tile = tile0 + threadIdx.x % 32; tile < tile0 + n_tiles; tile += 32) {
    if (c.summed && a.out.kind == LINEAR_ADD_F32) prefetch_l1((const float *)a.out.y + tile * kTileOut);
    const int slot = c.summed ? 0 : divide_small(tile, c.tile_rows);
    for (int s = slot; s < (c.summed ? c.n_chosen : slot + 1); s++) {
      const int row = (ids[s] - slot) * c.tile_rows + tile;
      if (a.out.bias) prefetch_l1(a.out.bias + row * kTileOut);
      if (!c.summed && a.out.factors) prefetch_l1(a.out.factors + row * kTileOut);
    }
  }
}

/* The factors of a stretch's outputs; 1 for stacked experts, by whose factors the epilogue multiplies. */
__device__ __forceinline__ float2 factors_of(const Args &a, int row) {
  if (!a.chosen.summed || !a.out.factors) return make_float2(1, 1);
  const float *of = a.out.factors + row * kTileOut + threadIdx.x % 32 / 4;
  return make_float2(__ldg(of), __ldg(of + 8));
}

template <class W>
__global__ void __launch_bounds__(kThreads, 1) experts_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ int ids[kMaxChosen], first_tile[kWarps], last_tile[kWarps];
  const int warp = warp_of_block(), lane = threadIdx.x % 32, depth = a.plan.ring_batches;
  const int before = a.rows.begin(blockIdx.x), tile0 = a.first_tile + before,
            n_tiles = a.rows.begin(blockIdx.x + 1) - before;
  const int unit0 = a.batches.begin(blockIdx.y), n_units = a.batches.begin(blockIdx.y + 1) - unit0;
  const LanePlaces<W> places;
  const UnitRing<W> ring = {shared + warp * depth * UnitRing<W>::kBytes, a.w, places};
  unsigned char *x = shared + kWarps * depth * UnitRing<W>::kBytes;
  float *sums = (float *)(x + a.plan.max_batches * kUnitX), *mine = sums + warp * a.plan.slots * kTileOut;

  if (!a.chosen.known) wait_for_previous();
  const int id = lane < a.chosen.n_chosen ? (int)load_past_l1(a.chosen.ids + lane) : 0;
  const int total = n_tiles * n_units, begin = warp * total / kWarps, end = (warp + 1) * total / kWarps;
  Walk now, asked;
  now.tile = divide_small(begin, n_units), now.unit = begin - now.tile * n_units;
  if (lane == 0) {
    first_tile[warp] = now.tile;
    last_tile[warp] = end > begin ? divide_small(end - 1, n_units) : -1;
  }
  asked = now, asked.left = 0;
  const auto request = [&](int slot) {
    if (asked.left == 0) asked.find(a, id, tile0, unit0, n_units);
    ring.request(slot, asked.row, asked.within++, a.chosen.units);
    asked.left--;
  };
  const int early = a.chosen.known ? UnitRing<W>::kEarly : 0;
#pragma unroll 1
  for (int slot = 0; slot < depth; slot++) {
    if (slot == early) {
      wait_for_previous();
      dependents_may_start(); /* only now: dependents may read chosen.ids without waiting */
      request_x(a, unit0, n_units, x);
      copy_async_commit();
    }
    if (begin + slot < end) request(slot);
    copy_async_commit();
  }
  if (warp == 0) ids[lane] = id;
  if (a.chosen.known) /* either way waits for x */
    ring.template wait<UnitRing<W>::kEarly>(depth);
  else
    ring.template wait<0>(depth);
  __syncthreads();
  if (warp == kWarps - 1) prefetch_of_chosen(a, ids, tile0, n_tiles);

  /* Sums of rows g and g + 8: y of the stretch, sum_of_row of the tile row so far. */
  float y[2] = {}, sum_of_row[2] = {};
  const unsigned char *x_at = x + now.unit * kUnitX;
  now.find(a, id, tile0, unit0, n_units);
  float2 by = factors_of(a, now.row);
#pragma unroll 1
  for (int at = begin, slot = 0; at < end; at++, x_at += kUnitX, slot = slot + 1 < depth ? slot + 1 : 0) {
    uint4 v[2][W::kVectors];
    float sum[4];
    ring.template wait<1>(depth);
    uint32_t word;
    ring.read(slot, v, &word);
    multiply_unit<W>(v, x_at, places, sum);
    if (at + depth < end) request(slot);
    copy_async_commit();
    float2 s[2]; /* s[i]: of column 2t + i, for rows g and g + 8 */
    UnitScale<W>::get(word, s);
    y[0] += s[0].x * sum[0] + s[1].x * sum[1];
    y[1] += s[0].y * sum[2] + s[1].y * sum[3];
    const bool more = at + 1 < end;
    if (--now.left > 0 && more) continue;
    sum_of_row[0] += by.x * y[0], sum_of_row[1] += by.y * y[1];
    y[0] = y[1] = 0;
    if (now.unit == 0 || !more) { /* the end of the tile row, or of the warp's units */
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float of = lanes_sum<1, 2>(sum_of_row[r]) * W::kOfScale;
        if (lane % 4 == 0) mine[lane / 4 + 8 * r] = of;
        sum_of_row[r] = 0;
      }
      mine += kTileOut;
    }
    if (!more) break;
    x_at = x + (now.unit - 1) * kUnitX;
    now.find(a, id, tile0, unit0, n_units);
    by = factors_of(a, now.row);
  }
  __syncthreads();
  const ChosenIds table = {ids};
  combine_warps<1, true>(a, table, tile0, n_tiles, sums, first_tile, last_tile);
  if (gridDim.y > 1) combine_splits<1, true>(a, table, tile0, n_tiles);
}

} // namespace skinny_gemm

Status launch_float_experts(const LinearArgs &args, Error *err) {
  using namespace skinny_gemm;
  SkinnyPlan plan;
  TRY(make_plan(args, SKINNY_F16, &plan, err));
  return args.w->type == WEIGHT_FP4 ? launch_parts(args, plan, experts_kernel<Fp4>, err)
                                    : launch_parts(args, plan, experts_kernel<Fp8>, err);
}
