/* float_mma.cu - 1 to 8 tokens with FP8 and FP4 weights, and integers in groups of 16, on fp16 tensor cores:
 * a decode step's matmuls.
 *
 *     y[m][o] = factor[o] * sum over groups of s[g][o] * (sum_i number(code[i][o]) x[m][i] - z[g][o] X[m][g])
 *
 * Masks and shifts alone make the numbers fp16 (layout.cuh), integers as subnormals. Only integers have zeros
 * z; X is the sum of x over a group. x stays fp16, sums and scales are fp32: only sums are rounded. The
 * weights are the sixteen-row operand of mma m16n8k16. Fewer than 8 tokens leave columns free; these hold the
 * sums of other inputs. A unit of 128 inputs has eight steps of 16, cut into kTokens sets of 8 / kTokens
 * steps. The steps of a set add to one accumulator. Its column c takes x of token c % kTokens in step c /
 * kTokens of the set, and 0 in the set's other steps. So each group of 16 inputs has its own column, and its
 * scale is multiplied once per sum, not once per weight:
 *
 *     1 token    | step 0 | step 1 | ... | step 7 |                         a set is a whole unit
 *     2 tokens   | step 0: m0 m1 | step 1: m0 m1 | step 2 | step 3 |        a set is half a unit
 *     8 tokens   | m0 | m1 | ... | m7 |                                     a set is one step
 *
 *   x     [units][kTokens sets][8 columns][4 lanes t][8 bytes]: k 2t, 2t + 1, 8 + 2t, 9 + 2t of its step
 *   sums  integers: [units][kTokens sets][8 columns] fp32, of x over the 16 inputs
 *
 * Skeleton, ring and preconditions: skinny_gemm.cuh. FP8: groups of a multiple of 128 inputs. One token's
 * experts have a kernel of their own (float_experts.cu). */
#include "cuda/kernels/linear/float_unit.cuh"

namespace skinny_gemm {

constexpr int kSteps = kUnitIn / 16; /* steps of a unit, and columns of a product */

/* A lane's scales of a unit: those of rows g and g + 8 for columns 2t and 2t + 1 of a set. */
template <class W, int kTokens> struct ColumnScales;

/* One word of scales for the unit, as in float_unit.cuh. */
template <class W> struct WordOfScales {
  uint32_t word;

  __device__ __forceinline__ void load(const QuantView &w, int tile_row, int u, int) {
    word = __ldg(UnitScale<W>::at(w, tile_row, u) + UnitScale<W>::own());
  }

  __device__ __forceinline__ void get(int, float2 (&of)[2]) const { UnitScale<W>::get(word, of); }
};

template <int kTokens> struct ColumnScales<Fp8, kTokens> : WordOfScales<Fp8> {};
template <> struct ColumnScales<Fp4, 1> : WordOfScales<Fp4> {};

template <int kTokens> struct ColumnScales<Fp4, kTokens> {
  Fp4::Meta tiles[2];

  __device__ __forceinline__ void load(const QuantView &w, int tile_row, int u, int g) {
#pragma unroll
    for (int i = 0; i < 2; i++) tiles[i] = Fp4::meta(w, tile_row, u * kUnitIn + i * kTileIn, g);
  }

  /* Both of the lane's columns are of one step. */
  __device__ __forceinline__ void get(int set, float2 (&of)[2]) const {
    constexpr int kSetSteps = kSteps / kTokens; /* 4, 2 or 1 steps, all within a tile */
    const int first = set * kSetSteps, step = first % 4 + threadIdx.x % 4 * 2 / kTokens;
    const uint2 &tile = tiles[first / 4].scales;
    const uint32_t pair = (kSetSteps == 4 ? step < 2 : first % 4 < 2) ? tile.x : tile.y;
    const uint32_t f16x2 = prmt<0x4140>(step % 2 ? pair >> 16 : pair, 0u) << 7;
    of[0] = of[1] = make_float2(f16_low(f16x2), f16_high(f16x2));
  }
};

/* Integer weights: the scales and zeros that a lane needs for a unit. It scales kOwn of the unit's steps of
 * 16 inputs. */
template <class W, int kTokens> struct IntegerColumns {
  static constexpr int kOwn = kTokens == 1 ? 2 : kTokens, kSetSteps = kSteps / kTokens;
  uint32_t scale[kOwn], zero[kOwn];

  __device__ __forceinline__ void load(const QuantView &w, int tile_row, int u, int g) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
      const int step = kTokens == 1 ? 2 * t + i : i * kSetSteps + 2 * t / kTokens;
      const size_t at = ((size_t)tile_row * w.n_groups + group_of(w, u * kUnitIn + 16 * step)) * 8 + g;
      scale[i] = __ldg(w.scales + at);
      zero[i] = __ldg((const typename W::Zero *)w.zeros + at);
    }
  }

  __device__ __forceinline__ void get(int set, float2 (&of)[2]) const {
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const uint32_t s = scale[kTokens == 1 ? c : set];
      of[c] = make_float2(f16_low(s), f16_high(s));
    }
  }

  /* Subtracts z times the sums of x from the sums of a set; `x` has the sums of columns 2t and 2t + 1. */
  __device__ __forceinline__ void subtract_zeros(int set, float2 x, float (&sum)[4]) const {
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float z[2];
      W::small_zeros(zero[kTokens == 1 ? c : set], z);
      sum[c] -= z[0] * (c ? x.y : x.x);
      sum[2 + c] -= z[1] * (c ? x.y : x.x);
    }
  }
};

template <int kTokens> struct ColumnScales<Bits4, kTokens> : IntegerColumns<Bits4, kTokens> {};
template <int kTokens> struct ColumnScales<Bits8, kTokens> : IntegerColumns<Bits8, kTokens> {};
template <> struct ColumnScales<Bits4, 1> : IntegerColumns<Bits4, 1> {};
template <> struct ColumnScales<Bits8, 1> : IntegerColumns<Bits8, 1> {};

/* kLow, kHigh: factors of the sums of rows g and g + 8. kZeros: the weights have zero points. kBlockIn: for
 * each kBlockIn inputs skinny_plan.h reserves 8 bytes beside x (integers: two sums, over 16 inputs each). */
template <class W> struct OfSums {
  static constexpr float kLow = W::kOfScale, kHigh = W::kOfScale;
  static constexpr bool kZeros = false;
  static constexpr int kBlockIn = 128;
};
struct OfIntegers {
  static constexpr float kLow = 16777216; /* 2^24 */
  static constexpr bool kZeros = true;
  static constexpr int kBlockIn = 32;
};
template <> struct OfSums<Bits4> : OfIntegers { static constexpr float kHigh = 1048576; };
template <> struct OfSums<Bits8> : OfIntegers { static constexpr float kHigh = 16777216; };

template <class W, int kBlockIn, int kIntBytes, int kTokens> struct FloatLoop {
  static_assert(kBlockIn == OfSums<W>::kBlockIn && kIntBytes == 2, "x in fp16, without scales");
  static constexpr bool kZeros = OfSums<W>::kZeros;
  static constexpr int kXIntBytes = kIntBytes, kXTokens = kTokens, kShared = 1, kLaneTokens = 4;
  static constexpr int kSetSteps = kSteps / kTokens; /* steps whose sums are columns of one accumulator */
  static constexpr int kOwn = kTokens == 1 ? 1 : 2;  /* tokens in the lane's columns 2t and 2t + 1 */
  static constexpr int kSetBytes = 256;
  typedef ColumnScales<W, kTokens> Scales;
  /* Loads the next batch's scales before this batch is multiplied, where registers suffice. */
  static constexpr bool kScalesAhead = !kZeros || kTokens <= 2;
  float y[kOwn][2];

  static __device__ __forceinline__ void store_x(const LaneInputs &in, int u, int token, bool inside,
                                                 unsigned char *x, float2 *scales) {
    const int lane = threadIdx.x % 32, step = lane / 4, column = step % kSetSteps * kTokens + token;
    if (inside)
      *(uint2 *)(x + (u * kTokens + step / kSetSteps) * kSetBytes + column * 32 + lane % 4 * 8) =
          make_uint2(in.f16x2[0], in.f16x2[1]);
    if constexpr (kZeros) {
      float v[4];
      in.floats(v);
      const float sum = lanes_sum<1, 2>(v[0] + v[1] + (v[2] + v[3]));
      if (inside && lane % 4 == 0)
        ((float *)scales)[(u * kTokens + step / kSetSteps) * kSteps + column] = sum;
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kOwn; m++) y[m][0] = y[m][1] = 0;
  }

  template <class Fetch, class Used, class OfUnit>
  __device__ __forceinline__ void multiply(Fetch fetch, Used used, const unsigned char *x,
                                           const float2 *x_sums, const OfUnit (&scales)[kUnits], int lane) {
    Unit<W> unit[2];
#pragma unroll
    for (int j = 0; j < kUnits; j++) {
      if (j % 2 == 0) fetch(j / 2, unit);
#pragma unroll
      for (int set = 0; set < kTokens; set++) {
        const uint2 own = *(const uint2 *)(x + (j * kTokens + set) * kSetBytes + lane * 8);
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < kSetSteps; i++) {
          const int step = set * kSetSteps + i;
          const bool mine = lane / 4 / kTokens == i;
          uint32_t a[4];
          W::numbers(unit[j % 2].v[step / 4], step % 4, a);
          mma_f16_m16n8k16(sum, a, mine ? own.x : 0, mine ? own.y : 0);
        }
        if constexpr (kZeros)
          scales[j].subtract_zeros(set, x_sums[(j * kTokens + set) * (kSteps / 2) + lane % 4], sum);
        float2 s[2]; /* s[i]: of column 2t + i, for rows g and g + 8 */
        scales[j].get(set, s);
#pragma unroll
        for (int c = 0; c < 2; c++) {
          y[c % kOwn][0] += s[c].x * sum[c];
          y[c % kOwn][1] += s[c].y * sum[2 + c];
        }
      }
      if (j % 2) used(j / 2);
    }
  }

  /* Writes the sums of the tile row to to[kTokens][16]: the lanes t that hold the same tokens are summed. */
  __device__ __forceinline__ void store(float *to, int lane) {
    constexpr int kLanes = kTokens / kOwn; /* lanes t < kLanes hold different tokens */
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < kOwn; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float v = y[m][r];
        for (int o = kLanes; o < 4; o *= 2) v += __shfl_xor_sync(~0u, v, o);
        if (t < kLanes) to[(2 * t + m) * kTileOut + g + 8 * r] = v * (r ? OfSums<W>::kHigh : OfSums<W>::kLow);
      }
  }
};

template <int kTokens> Status launch_float(const LinearArgs &args, const SkinnyPlan &plan, Error *err) {
  return with_weights(args.w->type, [&](auto w) {
    typedef decltype(w) W;
    return launch_block<W, FloatLoop, 2, kTokens, OfSums<W>::kBlockIn>(args, plan, err);
  });
}

static Status launch_floats(const LinearArgs &args, Error *err) {
  if (args.experts) return launch_float_experts(args, err);
  SkinnyPlan plan;
  TRY(make_plan(args, SKINNY_F16, &plan, err));
  switch (plan.tokens) {
  case 1: return launch_float<1>(args, plan, err);
  case 2: return launch_float<2>(args, plan, err);
  case 4: return launch_float<4>(args, plan, err);
  default: return launch_float<8>(args, plan, err);
  }
}

} // namespace skinny_gemm

const LinearKernel float_mma_kernel = {skinny_gemm::workspace<SKINNY_F16>, skinny_gemm::launch_floats, false};
