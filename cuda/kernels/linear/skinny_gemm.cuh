/* skinny_gemm.cuh - the matmul of a few tokens, bound by reading the weights: one skeleton, two inner loops
 * here and one in float_mma.cu.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i],   m < kTokens
 *
 * A block owns consecutive tile rows (16 outputs each). If the matrix has too few of them to fill the chip,
 * or x is too large to hold, the inputs are split over blocks (split-K). The weights of a block are one
 * sequence of batches. A batch is 16 outputs x 512 inputs (4 KB at 4 bits): two stages of two units of 128
 * inputs. Each warp streams an equal, contiguous part of this sequence through its own ring in shared memory.
 * The ring is filled before x is read. As soon as a stage is used, its successor is requested:
 *
 *     batches | tile row 0: b b b b b b b b | tile row 1: b b b b b b b b | ...
 *     warps   |---- 0 ----|---- 1 ----|---- 2 ----|---- 3 ----| ...
 *
 * x is held as integers, quantised by the block itself (quantise.cuh), or as fp16 (float_mma.cu). When a warp
 * leaves a tile row it writes its sums to shared memory. At the end the sums of the warps are added in a
 * fixed order, and so are those of the splits of a tile row. The last block to finish adds the splits, so no
 * block waits for another.
 *
 * One token of a mixture of experts (linear.h, LinearExperts) multiplies the chosen experts as one matrix. A
 * table in shared memory says where each tile row (stacked) or unit (summed) of the block lies. The choice is
 * known late and a warp has few batches, so its ring holds two batches where they fit.
 *
 * In MmaLoop four lanes, t = lane % 4, share a row. With one or two tokens several of them would hold the
 * same sum. So kShared units are multiplied before they are scaled. Each such lane keeps the sum of a
 * different unit; it reads and applies the scale and zero of that unit only.
 *
 * PRECOND  kTokens >= n_tokens; group % kBlockIn == 0 if x is integers; the sizes are skinny_plan.h's.
 * READS    integer weights: n_in * n_out * bits / 8 + n_in / group * n_out * (2 + bits / 8) bytes. */
#pragma once

#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/linear/skinny_plan.h"
#include "cuda/kernels/ptx/lanes.cuh"

namespace skinny_gemm {

constexpr int kWarps = SKINNY_WARPS, kThreads = 32 * kWarps, kUnitIn = SKINNY_UNIT_IN, kUnits = SKINNY_UNITS;
static_assert(kUnitIn == kPadIn, "a tile row is whole units");

/* n things cut into n_parts ranges whose lengths differ by at most one. */
struct Cut {
  int each, longer; /* the first `longer` ranges have each + 1 */

  __device__ __forceinline__ int begin(int part) const { return part * each + min(part, longer); }
};

inline Cut cut(int n, int n_parts) {
  return {n / n_parts, n % n_parts};
}

/* a / b, rounded down, for 0 <= a < 2^20, b > 0. (a + 0.5) / b is 0.5 / b or more away from an integer. Its
 * computed value errs by less than 2^-21 of itself. */
__device__ __forceinline__ int divide_small(int a, int b) {
  return (int)__fdividef((float)a + 0.5f, (float)b);
}

/* A batch of a block: its tile row, and its number there, both counted from the block's first. */
struct Cursor {
  int tile, batch;

  __device__ __forceinline__ void advance(int n_batches) {
    if (++batch == n_batches) batch = 0, tile++;
  }
};

struct Args {
  QuantView w;
  const __half *x;
  int x_stride, n_tokens;
  int first_tile; /* first tile row of this launch */
  Cut rows;       /* the launch's tile rows over blocks */
  Cut batches;    /* batches of a tile row over splits */
  SkinnyPlan plan;
  Epilogue out;
  float *partial; /* [tile rows][splits][kTokens][16] */
  unsigned *counters;
  ChosenExperts chosen; /* set if kExperts */
};

/* A tile row and a unit of it, in the memory of the matrix. */
struct Place {
  int tile_row, unit;
};

/* Where the tile rows and units of a block's chosen experts lie. Stacked: an entry for each tile row, {first
 * tile row of its expert in the matrix, choice}. Summed: an entry for each unit, {first tile row of its
 * expert, unit of the expert}. Then {first tile row} of each choice. */
struct ExpertTable {
  int2 *entries; /* [n + n_chosen] in shared memory */
  int first, n;  /* first: tile row or unit of entry 0; n: tile rows or units */

  /* Fills the table. For all threads of the block; the caller synchronises them. */
  __device__ __forceinline__ void fill(const ChosenExperts &c) const {
    const int size = c.summed ? c.units : c.tile_rows, last = c.n_chosen * size - 1;
    for (int i = threadIdx.x; i < n + c.n_chosen; i += kThreads) {
      const int at = i < n ? min(first + i, last) : (i - n) * size, slot = divide_small(at, size);
      entries[i] =
          make_int2((int)load_past_l1(c.ids + slot) * c.tile_rows, c.summed ? at - slot * size : slot);
    }
  }

  __device__ __forceinline__ Place place(const ChosenExperts &c, int tile_row, int unit) const {
    const int2 of = entries[(c.summed ? unit : tile_row) - first];
    return {of.x + (c.summed ? tile_row : tile_row - of.y * c.tile_rows), c.summed ? of.y : unit};
  }

  __device__ __forceinline__ void store(const ChosenExperts &c, const Epilogue &out, int tile_row, int g,
                                        float low, float high) const {
    if (c.summed) {
      c.store_sum(
          out, [&](int slot) { return entries[n + slot].x; }, tile_row, g, low, high);
    } else {
      const int2 of = entries[tile_row - first];
      store_row_pair(expert_epilogue(out, of.x), of.y, tile_row - of.y * c.tile_rows, g, low, high);
    }
  }
};

/* Stores the sums of rows g and g + 8 of a tile row for one token; sums of experts by table.store(). */
template <bool kExperts, class Table>
__device__ __forceinline__ void store_sums(const Args &a, const Table &table, int token, int tile_row, int g,
                                           float low, float high) {
  if (kExperts)
    table.store(a.chosen, a.out, tile_row, g, low, high);
  else
    store_row_pair(a.out, token, tile_row, g, low, high);
}

/* One unit in registers. */
template <class W> struct Unit {
  static constexpr int kVectors = 2 * W::kVectors;
  uint4 v[2][W::kVectors];
};

/* The warp's ring: stages of two units in shared memory, two stages for each batch in flight. A lane reads
 * only what it requested itself, so it waits for its own groups of copies (cp.async) and needs no barrier:
 *
 *     lane   wait(): the oldest of 2 n_batches groups has landed | read() | multiply | request() of the batch
 *            n_batches later into the same stage; past the last batch it commits an empty group
 */
template <class W> struct Ring {
  static constexpr int kUnitVectors = 32 * Unit<W>::kVectors;
  uint4 *slots; /* [batches][kUnits][kUnitVectors], of this lane */
  const QuantView &w;

  __device__ __forceinline__ Ring(void *shared, const QuantView &view, int n_batches)
      : slots((uint4 *)shared + threadIdx.x / 32 * (n_batches * kUnits * kUnitVectors) + threadIdx.x % 32),
        w(view) {}

  /* Requests units `unit` and `second` of the matrix for a stage, if `wanted`; always commits a group. */
  __device__ __forceinline__ void request(int stage, bool wanted, int unit, int second) {
    if (wanted) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const uint4 *from = w.tiles + (size_t)(i ? second : unit) * kUnitVectors + threadIdx.x % 32;
#pragma unroll
        for (int j = 0; j < Unit<W>::kVectors; j++)
          copy_async_16(slots + (2 * stage + i) * kUnitVectors + 32 * j, from + 32 * j, 16);
      }
    }
    copy_async_commit();
  }

  /* Waits for the oldest stage of the n_batches that are in flight. */
  __device__ __forceinline__ void wait(int n_batches) {
    if (n_batches == 1)
      copy_async_wait<1>();
    else
      copy_async_wait<3>();
  }

  __device__ __forceinline__ void read(int unit, Unit<W> &to) {
#pragma unroll
    for (int j = 0; j < Unit<W>::kVectors; j++)
      to.v[j / W::kVectors][j % W::kVectors] = slots[unit * kUnitVectors + 32 * j];
  }
};

/* Scales and zeros of rows g and g + 8, g = lane / 4, for each block of kBlockIn inputs of a unit. */
template <class W, int kBlockIn> struct Groups {
  uint32_t scale[kUnitIn / kBlockIn], zero[kUnitIn / kBlockIn];
  __device__ __forceinline__ void load(const QuantView &w, int tile, int u, int g) {
#pragma unroll
    for (int f = 0; f < kUnitIn / kBlockIn; f++) {
      size_t at = ((size_t)tile * w.n_groups + group_of(w, u * kUnitIn + f * kBlockIn)) * 8 + g;
      scale[f] = __ldg(w.scales + at);
      zero[f] = __ldg((const typename W::Zero *)w.zeros + at);
    }
  }
};

/* Reads the inputs of n_units units, and calls store(inputs of the lane, unit, token, inside); `unit` counts
 * from first_unit. Tokens past n_tokens repeat the last token, and their results are dropped. If `inside` is
 * false, store() has to drop the inputs. */
template <int kTokens, bool kWhole, class Store>
__device__ __forceinline__ void read_units(const Args &a, int first_unit, int n_units, Store store) {
  constexpr int kAtOnce = kTokens > 2 ? 8 : 6; /* loads in flight before the first is used */
  int warp = warp_of_block(), lane = threadIdx.x % 32, n = n_units * kTokens;
  for (int i0 = warp; i0 < n; i0 += kWarps * kAtOnce) {
    LaneInputs in[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) {
      int i = min(i0 + j * kWarps, n - 1), token = min(i % kTokens, a.n_tokens - 1);
      in[j] = read_inputs<kWhole>(a.x + (size_t)token * a.x_stride, (first_unit + i / kTokens) * kUnitIn,
                                  a.w.n_in, lane);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) { /* few branches, so that latencies overlap */
      if (j % 2 == 0 && i0 + j * kWarps >= n) break;
      int i = i0 + j * kWarps;
      store(in[j], i / kTokens, i % kTokens, i < n);
    }
  }
}

/* Quantises a unit's inputs of one token to x_ints [units][2 tiles][kTokens][kIntBytes][64] and scales
 * [units][kUnitIn / kBlockIn][kTokens] {d, d * sum}. */
template <int kIntBytes, int kTokens, int kBlockIn>
__device__ __forceinline__ void quantise_unit(const LaneInputs &in, int u, int token, bool inside,
                                              unsigned char *x_ints, float2 *scales) {
  int lane = threadIdx.x % 32, sum;
  uint32_t word[kIntBytes];
  float v[4];
  in.floats(v);
  float d = quantise_values<kIntBytes, kBlockIn>(v, word, &sum);
  unsigned char *to = x_ints + ((2 * u + lane / 16) * kTokens + token) * kIntBytes * kTileIn;
#pragma unroll
  for (int p = 0; p < kIntBytes; p++)
    if (inside) *(uint32_t *)(to + p * kTileIn + lane % 4 * 16 + lane / 4 % 4 * 4) = word[p];
  if (inside && lane % (kBlockIn / 4) == 0)
    scales[(u * (kUnitIn / kBlockIn) + lane / (kBlockIn / 4)) * kTokens + token] =
        make_float2(d, d * (float)sum);
}

/* The inner loop on dp4a, for any chip from sm_61 on: a lane sums its own 16 inputs of each 64 for rows g and
 * g + 8. */
template <class W, int kBlockIn, int kIntBytes, int kTokens> struct DotLoop {
  static constexpr int kXIntBytes = kIntBytes, kXTokens = kTokens, kShared = 1, kLaneTokens = 4;
  typedef Groups<W, kBlockIn> Scales; /* of a unit */
  static constexpr bool kScalesAhead = false, kForExperts = false;

  static __device__ __forceinline__ void store_x(const LaneInputs &in, int u, int token, bool inside,
                                                 unsigned char *x, float2 *scales) {
    quantise_unit<kIntBytes, kTokens, kBlockIn>(in, u, token, inside, x, scales);
  }

  float y[kTokens][2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kTokens; m++) y[m][0] = y[m][1] = 0;
  }

  /* The sums of one token over block f of a unit, for rows g and g + 8; x: the lane's integers of the
   * unit. */
  static __device__ __forceinline__ void multiply_block(const Unit<W> &unit, const unsigned char *x, int f,
                                                        int (&sum)[kIntBytes][2]) {
#pragma unroll
    for (int h = f * kBlockIn / 32; h < (f + 1) * kBlockIn / 32; h++) {
      uint32_t a[4];
      W::bytes(unit.v[h / 2], h % 2, a);
#pragma unroll
      for (int p = 0; p < kIntBytes; p++) {
        uint2 b = *(const uint2 *)(x + (h / 2 * kTokens * kIntBytes + p) * kTileIn + h % 2 * 8);
        sum[p][0] = dp4a_u8s8(a[2], b.y, dp4a_u8s8(a[0], b.x, sum[p][0]));
        sum[p][1] = dp4a_u8s8(a[3], b.y, dp4a_u8s8(a[1], b.x, sum[p][1]));
      }
    }
  }

  template <class Fetch, class Used, class OfUnit>
  __device__ __forceinline__ void multiply(Fetch fetch, Used used, const unsigned char *x_ints,
                                           const float2 *scales, const OfUnit (&groups)[kUnits], int lane) {
    /* Only lane t = 0 subtracts the zero point's term. kHigh is for the bytes of row g + 8, not for zeros. */
    float once = lane % 4 == 0 ? 1.0f : 0.0f;
    Unit<W> unit[2];
#pragma unroll
    for (int j = 0; j < kUnits; j++) {
      if (j % 2 == 0) fetch(j / 2, unit);
#pragma unroll
      for (int m = 0; m < kTokens; m++)
#pragma unroll
        for (int f = 0; f < kUnitIn / kBlockIn; f++) {
          int sum[kIntBytes][2] = {};
          multiply_block(unit[j % 2], x_ints + (2 * j * kTokens + m) * kIntBytes * kTileIn + lane % 4 * 16, f,
                         sum);
          float2 d = scales[(j * (kUnitIn / kBlockIn) + f) * kTokens + m];
          float low = (float)(kIntBytes == 2 ? 256 * sum[0][0] + sum[kIntBytes - 1][0] : sum[0][0]);
          float high =
              (float)(kIntBytes == 2 ? 256 * sum[0][1] + sum[kIntBytes - 1][1] : sum[0][1]) * W::kHigh;
          uint32_t z = groups[j].zero[f];
          y[m][0] += f16_low(groups[j].scale[f]) * (d.x * low - once * small_float(W::zero_low(z)) * d.y);
          y[m][1] += f16_high(groups[j].scale[f]) * (d.x * high - once * small_float(W::zero_high(z)) * d.y);
        }
      if (j % 2) used(j / 2);
    }
  }

  /* Sets to[kTokens][16]: the sums of the tile row. */
  __device__ __forceinline__ void store(float *to, int lane) {
#pragma unroll
    for (int m = 0; m < kTokens; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float v = lanes_sum<1, 2>(y[m][r]);
        if (lane % 4 == 0) to[m * kTileOut + lane / 4 + 8 * r] = v;
      }
  }
};

/* The inner loop on integer tensor cores: the high and low bytes of x are columns of mma_u8s8, two for each
 * token. One token costs what four do; eight take two instructions. The accumulators start at
 * kIntBiasBits. Read as a float, minus kIntBias, they are the sum: |sum| <= 128 * 255 * 128 < 2^22. */
template <class W, int kBlockIn, int kIntBytes, int kTokens> struct MmaLoop {
  static_assert(kIntBytes == 2, "two columns a token");
  static constexpr int kXIntBytes = kIntBytes, kXTokens = kTokens;
  static constexpr int kColumns = 2 * kTokens < 8 ? 2 * kTokens : 8, kBlocks = (2 * kTokens + 7) / 8;
  /* Lane t sums token t % kLaneTokens of each four, in unit t / kLaneTokens of each kShared. */
  static constexpr int kLaneTokens = kTokens < 4 ? kTokens : 4;
  static constexpr int kShared = 4 / kLaneTokens;
  static constexpr int kUnitBlocks = kUnitIn / kBlockIn;
  typedef Groups<W, kBlockIn> Scales; /* of a unit */
  static constexpr bool kScalesAhead = false, kForExperts = true;

  static __device__ __forceinline__ void store_x(const LaneInputs &in, int u, int token, bool inside,
                                                 unsigned char *x, float2 *scales) {
    quantise_unit<kIntBytes, kTokens, kBlockIn>(in, u, token, inside, x, scales);
  }

  float y[kBlocks][2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int b = 0; b < kBlocks; b++) y[b][0] = y[b][1] = 0;
  }

  /* The sums of one unit: acc[block of kBlockIn inputs][block of 8 columns]. */
  static __device__ __forceinline__ void multiply_unit(const Unit<W> &unit, const unsigned char *x,
                                                       int (&acc)[kUnitBlocks][kBlocks][4]) {
#pragma unroll
    for (int f = 0; f < kUnitBlocks; f++) {
#pragma unroll
      for (int b = 0; b < kBlocks; b++)
        acc[f][b][0] = acc[f][b][1] = acc[f][b][2] = acc[f][b][3] = kIntBiasBits;
#pragma unroll
      for (int h = f * kBlockIn / 32; h < (f + 1) * kBlockIn / 32; h++) {
        uint32_t a[4];
        W::bytes(unit.v[h / 2], h % 2, a);
#pragma unroll
        for (int b = 0; b < kBlocks; b++) {
          uint4 v = *(const uint4 *)(x + (h / 2 * 2 * kTokens + 8 * b) * kTileIn);
          mma_u8s8_m16n8k32(acc[f][b], a, h % 2 ? v.z : v.x, h % 2 ? v.w : v.y);
        }
      }
    }
  }

  /* fetch(stage, unit[2]) reads a stage of the batch, used(stage) allows refilling it. */
  template <class Fetch, class Used, class OfUnit>
  __device__ __forceinline__ void multiply(Fetch fetch, Used used, const unsigned char *x_ints,
                                           const float2 *scales, const OfUnit (&groups)[kUnits / kShared],
                                           int lane) {
    const unsigned char *x = x_ints + lane / 4 % kColumns * kTileIn + lane % 4 * 16;
    int own = lane % 4 / kLaneTokens;
    Unit<W> unit[2];
#pragma unroll
    for (int first = 0; first < kUnits; first += kShared) {
      int sum[kUnitBlocks][kBlocks][4];
#pragma unroll
      for (int j = first; j < first + kShared; j++) {
        int acc[kUnitBlocks][kBlocks][4];
        if (j % 2 == 0) fetch(j / 2, unit);
        multiply_unit(unit[j % 2], x + j * (kUnitIn * kIntBytes * kTokens), acc);
        if (j % 2) used(j / 2);
#pragma unroll
        for (int f = 0; f < kUnitBlocks; f++)
#pragma unroll
          for (int b = 0; b < kBlocks; b++)
#pragma unroll
            for (int i = 0; i < 4; i++)
              sum[f][b][i] = j == first || own == j - first ? acc[f][b][i] : sum[f][b][i];
      }
      const Groups<W, kBlockIn> &of = groups[first / kShared];
#pragma unroll
      for (int f = 0; f < kUnitBlocks; f++) {
        float s_low = f16_low(of.scale[f]), s_high = f16_high(of.scale[f]);
        float z_low = small_float(W::zero_low(of.zero[f])), z_high = small_float(W::zero_high(of.zero[f]));
#pragma unroll
        for (int b = 0; b < kBlocks; b++) {
          float2 d = scales[((first + own) * kUnitBlocks + f) * kTokens + 4 * b + lane % kLaneTokens];
          float v[4];
#pragma unroll
          for (int i = 0; i < 4; i++) v[i] = __int_as_float(sum[f][b][i]) - kIntBias;
          y[b][0] += s_low * (d.x * (256.0f * v[0] + v[1]) - z_low * d.y);
          y[b][1] += s_high * (d.x * W::kHigh * (256.0f * v[2] + v[3]) - z_high * d.y);
        }
      }
    }
  }

  __device__ __forceinline__ void store(float *to, int lane) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < kBlocks; b++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float v = y[b][r];
        for (int o = kLaneTokens; o < 4; o *= 2) v += __shfl_xor_sync(~0u, v, o);
        if (t < kLaneTokens) to[(4 * b + t) * kTileOut + g + 8 * r] = v;
      }
  }
};

/* Adds the partial sums of each tile row's splits, in the order of the splits, and stores the results. Only
 * the last block to finish with these tile rows does so. */
template <int kTokens, bool kExperts, class Table>
__device__ void combine_splits(const Args &a, const Table &table, int first_tile, int n_tiles) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = count_up(a.counters + blockIdx.x) == gridDim.y - 1;
    if (last) a.counters[blockIdx.x] = 0;
  }
  __syncthreads();
  if (!last) return;
  for (int i = threadIdx.x; i < n_tiles * kTokens * 8; i += kThreads) {
    int g = i % 8, token = i / 8 % kTokens, tile = first_tile + i / 8 / kTokens;
    float low = 0, high = 0;
    for (int s = 0; s < (int)gridDim.y; s++) {
      const float *from = a.partial + (((size_t)tile * gridDim.y + s) * kTokens + token) * kTileOut + g;
      low += __ldcg(from);
      high += __ldcg(from + 8);
    }
    if (token < a.n_tokens) store_sums<kExperts>(a, table, token, tile, g, low, high);
  }
}

/* Adds the partial sums of the block's warps. Stores the results, or with splits writes them to a.partial.
 * Warp w has sums of tile rows first[w] .. last[w] of the block. */
template <int kTokens, bool kExperts, class Table>
__device__ void combine_warps(const Args &a, const Table &table, int first_tile, int n_tiles,
                              const float *sums, const int *first, const int *last) {
  for (int i = threadIdx.x; i < n_tiles * kTokens * 8; i += kThreads) {
    int g = i % 8, token = i / 8 % kTokens, tile = i / 8 / kTokens;
    float low = 0, high = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
      bool inside = tile >= first[w] && tile <= last[w];
      const float *from =
          sums + ((w * a.plan.slots + (inside ? tile - first[w] : 0)) * kTokens + token) * kTileOut + g;
      low += inside ? from[0] : 0.0f;
      high += inside ? from[8] : 0.0f;
    }
    if (gridDim.y == 1) {
      if (token < a.n_tokens) store_sums<kExperts>(a, table, token, first_tile + tile, g, low, high);
    } else {
      float *to = a.partial +
                  (((size_t)(first_tile + tile) * gridDim.y + blockIdx.y) * kTokens + token) * kTileOut + g;
      __stcg(to, low);
      __stcg(to + 8, high);
    }
  }
}

/* Prefetches residuals, factors and biases of chosen experts into L1 for the epilogue. For one warp. */
__device__ __forceinline__ void prefetch_of_experts(const Args &a, const ExpertTable &table, int tile0,
                                                    int n_tiles) {
  const ChosenExperts &c = a.chosen;
  for (int i = threadIdx.x % 32; i < n_tiles; i += 32) {
    if (c.summed && a.out.kind == LINEAR_ADD_F32)
      prefetch_l1((const float *)a.out.y + (tile0 + i) * kTileOut);
    if (!c.summed && a.out.factors)
      prefetch_l1(a.out.factors + table.place(c, tile0 + i, 0).tile_row * kTileOut);
    for (int s = 0; a.out.bias && s < (c.summed ? c.n_chosen : 1); s++) {
      const int row =
          c.summed ? table.entries[table.n + s].x + tile0 + i : table.place(c, tile0 + i, 0).tile_row;
      prefetch_l1(a.out.bias + row * kTileOut);
    }
  }
}

/* Prefetches the block's residuals and factors, and the biases of experts, into L1 for the epilogue. For one
 * warp. */
template <bool kExperts>
__device__ __forceinline__ void prefetch_results(const Args &a, const ExpertTable &table, int tile0,
                                                 int n_tiles) {
  if constexpr (kExperts) return prefetch_of_experts(a, table, tile0, n_tiles);
  if (a.out.factors)
    for (int i = threadIdx.x % 32; i < n_tiles; i += 32) prefetch_l1(a.out.factors + (tile0 + i) * kTileOut);
  if (a.out.kind != LINEAR_ADD_F32) return;
  for (int m = 0; m < a.n_tokens; m++)
    for (int i = threadIdx.x % 32; i < n_tiles; i += 32)
      prefetch_l1((const float *)a.out.y + m * a.out.stride + (tile0 + i) * kTileOut);
}

/* Where the weights of a block's batches lie. */
template <class W, class Loop, bool kExperts> struct BlockWeights {
  typedef typename Loop::Scales Scales[kUnits / Loop::kShared];
  const Args &a;
  const ExpertTable &table;
  int tile0, batch0; /* the block's first tile row and first batch */

  /* Past the end of a tile row the last unit is read again: x is 0 there. */
  __device__ __forceinline__ Place place(const Cursor &of, int unit) const {
    const int row = tile0 + of.tile, u = min((batch0 + of.batch) * kUnits + unit, a.plan.n_units - 1);
    return kExperts ? table.place(a.chosen, row, u) : Place{row, u};
  }

  __device__ __forceinline__ int unit_at(const Place &p) const {
    return p.tile_row * (kExperts ? a.chosen.units : a.plan.n_units) + p.unit;
  }

  __device__ __forceinline__ void request(Ring<W> &ring, int turn, int stage, const Cursor &of,
                                          bool wanted) const {
    ring.request(2 * turn + stage, wanted, unit_at(place(of, 2 * stage)), unit_at(place(of, 2 * stage + 1)));
  }

  __device__ __forceinline__ void load_groups(Scales &to, const Cursor &of) const {
    const int lane = threadIdx.x % 32, own = lane % 4 / Loop::kLaneTokens;
#pragma unroll
    for (int i = 0; i < kUnits / Loop::kShared; i++) {
      const Place p = place(of, i * Loop::kShared + own);
      to[i].load(a.w, p.tile_row, p.unit, lane / 4);
    }
  }
};

/* One block on an SM. Without this bound the compiler leaves room for a second block, with 64 registers a
 * thread, and decode of NVFP4 is a quarter slower. */
template <class W, class Loop, int kBlockIn, bool kExperts>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Args a) {
  constexpr int kIntBytes = Loop::kXIntBytes, kTokens = Loop::kXTokens, kShared = Loop::kShared;
  constexpr int kBatchInts = kUnits * kUnitIn * kIntBytes * kTokens,
                kBatchScales = kUnits * (kUnitIn / kBlockIn) * kTokens;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ int first_tile[kWarps], last_tile[kWarps];
  const int warp = warp_of_block(), lane = threadIdx.x % 32, depth = kExperts ? a.plan.ring_batches : 1;
  const int before = a.rows.begin(blockIdx.x), tile0 = a.first_tile + before,
            n_tiles = a.rows.begin(blockIdx.x + 1) - before;
  const int batch0 = a.batches.begin(blockIdx.y), n_batches = a.batches.begin(blockIdx.y + 1) - batch0;
  Ring<W> ring(shared, a.w, depth);
  unsigned char *x_ints = shared + kWarps * depth * kUnits * Ring<W>::kUnitVectors * 16;
  float2 *scales = (float2 *)(x_ints + (size_t)a.plan.max_batches * kBatchInts);
  float *sums = (float *)(scales + a.plan.max_batches * kBatchScales);
  const ExpertTable table = {(int2 *)(sums + kWarps * a.plan.slots * kTokens * kTileOut),
                             a.chosen.summed ? batch0 * kUnits : tile0,
                             a.chosen.summed ? n_batches * kUnits : n_tiles};

  if (!kExperts) dependents_may_start();
  const int total = n_tiles * n_batches, end = (warp + 1) * total / kWarps;
  int at = warp * total / kWarps;
  const int tile = divide_small(at, n_batches);
  Cursor now = {tile, at - tile * n_batches};
  if (lane == 0) {
    first_tile[warp] = tile;
    last_tile[warp] = end > at ? divide_small(end - 1, n_batches) : -1;
  }
  if constexpr (kExperts) {
    if (!a.chosen.known) wait_for_previous();
    table.fill(a.chosen);
    __syncthreads();
  }
  const BlockWeights<W, Loop, kExperts> weights = {a, table, tile0, batch0};
  typename BlockWeights<W, Loop, kExperts>::Scales groups;
  Cursor asked = now; /* the next batch to request */
  for (int turn = 0; turn < depth; turn++) {
    const bool wanted = at + turn < end;
    weights.request(ring, turn, 0, asked, wanted);
    weights.request(ring, turn, 1, asked, wanted);
    if (turn == 0 && wanted) weights.load_groups(groups, now);
    if (wanted) asked.advance(n_batches);
  }
  if constexpr (kExperts) {
    if (a.chosen.known) wait_for_previous();
    dependents_may_start(); /* after wait_for_previous(): a dependent can read `ids` before it waits */
  } else {
    wait_for_previous();
  }
  const int n_units = n_batches * kUnits;
  const auto store_x = [&](const LaneInputs &in, int u, int token, bool inside) {
    Loop::store_x(in, u, token, inside, x_ints, scales);
  };
  if ((batch0 * kUnits + n_units) * kUnitIn <= a.w.n_in)
    read_units<kTokens, true>(a, batch0 * kUnits, n_units, store_x);
  else
    read_units<kTokens, false>(a, batch0 * kUnits, n_units, store_x);
  __syncthreads();
  if (warp == kWarps - 1) prefetch_results<kExperts>(a, table, tile0, n_tiles);

  Loop loop;
  loop.clear();
  float *mine = sums + (size_t)warp * a.plan.slots * kTokens * kTileOut;
  for (int turn = 0; at < end; at++, turn = depth - 1 - turn) {
    const unsigned char *x = x_ints + now.batch * kBatchInts;
    const float2 *d = scales + now.batch * kBatchScales;
    const bool more = at + 1 < end, ask = at + depth < end;
    now.advance(n_batches);
    if (!kExperts) asked = now;
    const auto fetch = [&](int stage, Unit<W>(&unit)[2]) {
      ring.wait(depth);
      ring.read(4 * turn + 2 * stage, unit[0]);
      ring.read(4 * turn + 2 * stage + 1, unit[1]);
    };
    const auto used = [&](int stage) { weights.request(ring, turn, stage, asked, ask); };
    if constexpr (Loop::kScalesAhead || kExperts) { /* `ahead` is in flight while this batch is multiplied */
      typename BlockWeights<W, Loop, kExperts>::Scales ahead = {};
      if (more) weights.load_groups(ahead, now);
      loop.multiply(fetch, used, x, d, groups, lane);
#pragma unroll
      for (int i = 0; i < kUnits / kShared; i++) groups[i] = ahead[i];
    } else {
      loop.multiply(fetch, used, x, d, groups, lane);
      if (more) weights.load_groups(groups, now);
    }
    if (kExperts && ask) asked.advance(n_batches);
    if (now.batch == 0 || !more) {
      loop.store(mine, lane);
      loop.clear();
      mine += kTokens * kTileOut;
    }
  }
  __syncthreads();
  combine_warps<kTokens, kExperts>(a, table, tile0, n_tiles, sums, first_tile, last_tile);
  if (gridDim.y > 1) combine_splits<kTokens, kExperts>(a, table, tile0, n_tiles);
}

inline SkinnyPlan plan_of(const DeviceLinear *w, int n_tokens, int int_bytes, const DeviceLimits &device) {
  const LinearQuery query =
      linear_query(*w, ACT_F16, n_tokens < SKINNY_MAX_TOKENS ? n_tokens : SKINNY_MAX_TOKENS, device);
  return skinny_plan(&query, int_bytes);
}

/* The plan, or an error if x does not fit. */
inline Status make_plan(const LinearArgs &args, int int_bytes, SkinnyPlan *plan, Error *err) {
  *plan = plan_of(args.w, args.n_tokens, int_bytes, args.device);
  if (plan->splits > 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: %d rows of x do not fit in shared memory", args.w->name,
                   args.n_tokens);
}

/* Launches the kernel for each plan.launch_rows tile rows. */
inline Status launch_parts(const LinearArgs &args, const SkinnyPlan &plan, void (*kernel)(Args), Error *err) {
  Args a = {};
  a.w = quant_view(*args.w);
  a.x = args.x, a.x_stride = args.x_stride, a.n_tokens = args.n_tokens;
  a.plan = plan, a.out = args.out;
  a.partial = (float *)args.workspace, a.counters = args.counters;
  a.chosen = chosen_experts(args);
  const int n_tile_rows = args.experts ? a.chosen.n_tile_rows() : a.w.n_tiles_out;
  if (args.experts) {
    if (a.chosen.summed) a.w.n_in = plan.n_units * kUnitIn;
    a.out.n_out = args.w->n_out / args.w->n_experts;
  }
  for (int tiles; a.first_tile < n_tile_rows; a.first_tile += tiles) {
    const int left = n_tile_rows - a.first_tile;
    tiles = left < plan.launch_rows ? left : plan.launch_rows;
    const int blocks = tiles < plan.blocks ? tiles : plan.blocks;
    a.rows = cut(tiles, blocks), a.batches = cut(plan.n_batches, plan.splits);
    const dim3 grid((unsigned)blocks, (unsigned)plan.splits);
    TRY(launch(kernel, grid, kThreads, plan.shared_bytes, args.stream, args.dependent, args.w->name, err, a));
  }
  return STATUS_OK;
}

template <class W, template <class, int, int, int> class Loop, int kIntBytes, int kTokens, int kBlockIn,
          bool kExperts = false>
Status launch_block(const LinearArgs &args, const SkinnyPlan &plan, Error *err) {
  return launch_parts(args, plan, kernel<W, Loop<W, kBlockIn, kIntBytes, kTokens>, kBlockIn, kExperts>, err);
}

template <template <class, int, int, int> class Loop, int kIntBytes, int kTokens, class W,
          bool kExperts = false>
Status launch_group(const LinearArgs &args, const SkinnyPlan &plan, Error *err) {
  if constexpr (W::kLeastBlockIn == 32) {
    if (plan.block_in == 64) return launch_block<W, Loop, kIntBytes, kTokens, 64, kExperts>(args, plan, err);
    if (plan.block_in == 32) return launch_block<W, Loop, kIntBytes, kTokens, 32, kExperts>(args, plan, err);
  }
  return launch_block<W, Loop, kIntBytes, kTokens, 128, kExperts>(args, plan, err);
}

template <template <class, int, int, int> class Loop, int kIntBytes, class W>
Status launch_tokens(const LinearArgs &args, const SkinnyPlan &plan, Error *err) {
  if constexpr (Loop<W, kUnitIn, kIntBytes, 1>::kForExperts)
    if (args.experts) return launch_group<Loop, kIntBytes, 1, W, true>(args, plan, err);
  switch (plan.tokens) {
  case 1: return launch_group<Loop, kIntBytes, 1, W>(args, plan, err);
  case 2: return launch_group<Loop, kIntBytes, 2, W>(args, plan, err);
  case 4: return launch_group<Loop, kIntBytes, 4, W>(args, plan, err);
  default: return launch_group<Loop, kIntBytes, 8, W>(args, plan, err);
  }
}

template <template <class, int, int, int> class Loop, int kIntBytes>
Status launch_plan(const LinearArgs &args, Error *err) {
  SkinnyPlan plan;
  TRY(make_plan(args, kIntBytes, &plan, err));
  return weight_bits(args.w->type) == 4 ? launch_tokens<Loop, kIntBytes, Bits4>(args, plan, err)
                                        : launch_tokens<Loop, kIntBytes, Bits8>(args, plan, err);
}

template <int kIntBytes> size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return plan_of(w, n_tokens, kIntBytes, device).partial_bytes;
}

/* The matmul with x as kIntBytes bytes, for weights of 4 and of 8 bits. */
template <template <class, int, int, int> class Loop, int kIntBytes>
constexpr LinearKernel skinny_kernel = {workspace<kIntBytes>, launch_plan<Loop, kIntBytes>, false};

} // namespace skinny_gemm
