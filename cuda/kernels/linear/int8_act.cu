/* int8_act.cu - activations quantised to int8 on the fly, weights in groups with 4 or 8 bits: the matmul on
 * integer units.
 *
 *     x[m][i] ~ d[m][b] X[m][i], b = i / kBlockIn     one scale and sum a block, d = max |x| / 127
 *     y[m][o] = sum_b s d (sum_i q X - z sum_i X)
 *
 *   int8_gemv  1 to 8 tokens: int8_gemv.cu
 *   int8_mma   any number: one kernel quantises x, the next multiplies tiles on mma m16n8k32
 *
 * The sum over a block of inputs is exact. In int8_mma an accumulator starts at kIntBiasBits - z sum X (row
 * g + 8 of 4-bit weights: 16 z; g = lane / 4: layout.cuh). Its final bits, read as a float, are the sum plus
 * kIntBias. Stream-K divides the work.
 *
 *   x      [n_in / 64][tokens][64 bytes] int8 in the order of the weights: a lane's operands are 16 bytes
 *   blocks [n_in / kBlockIn][tokens] {float d, int sum}
 *   stage  x [kK][kTokens][64]   blocks [kK 64 / kBlockIn][kTokens]   then weights as in weight_stage.cuh
 *
 * PRECOND  group % kBlockIn == 0, kBlockIn = 32, 64 or 128.
 * READS    weights once for every kTokens tokens. */
#include "cuda/kernels/linear/int8_x.cuh"
#include "cuda/kernels/linear/weight_stage.cuh"

namespace {

/* A warp quantises 128 inputs of one token; blocks: {bits of d, sum}. Padding tokens and inputs become 0. */
template <int kBlockIn>
__global__ void quantise_x(const __half *x, int x_stride, int n_tokens, int n_in, int n_units, Int8X to,
                           int2 *blocks) {
  int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, unit = i % n_units,
      token = i / n_units;
  begin_overlapping();
  if (token >= to.padded) return;
  uint32_t word[1];
  int sum;
  LaneInputs in = {{0, 0}};
  if (token < n_tokens) in = read_inputs<false>(x + (size_t)token * x_stride, unit * kPadIn, n_in, lane);
  float v[4];
  in.floats(v);
  float d = quantise_values<1, kBlockIn>(v, word, &sum);
  to.store(unit, token, lane, word[0]);
  if (lane % (kBlockIn / 4) == 0)
    blocks[(size_t)(unit * (kPadIn / kBlockIn) + lane / (kBlockIn / 4)) * to.padded + token] =
        make_int2(__float_as_int(d), sum);
}

template <class W_, int kR, int kWarpsM, int kWarpsN, int kN, int kStages_, int kBlocks_>
struct Shape : WarpGrid<kR, kWarpsM, kWarpsN, kN> {
  typedef W_ W;
  typedef WarpGrid<kR, kWarpsM, kWarpsN, kN> Grid;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_, kK = 2;
  static constexpr int kXBytes = kK * Grid::kTokens * kTileIn;
  template <int kBlockIn> using Weights = WeightStage<W, Grid::kTileRows, kK, kBlockIn, Grid::kThreads>;
  template <int kBlockIn> static __host__ __device__ constexpr int stage_bytes() {
    return (kXBytes + Weights<kBlockIn>::kGroups * Grid::kTokens * 8 + 127) / 128 * 128 +
           Weights<kBlockIn>::kBytes;
  }
  template <int kBlockIn> static __host__ __device__ constexpr int weights_at() {
    return stage_bytes<kBlockIn>() - Weights<kBlockIn>::kBytes;
  }
};

struct Args {
  QuantView w;
  Int8X x;
  int2 *blocks;
  TileArgs<float> tiles;
};

/* Copies the scales and sums of one stage of x to shared memory. */
template <class S, int kBlockIn>
__device__ __forceinline__ void load_blocks(const Args &a, unsigned char *stage, int token0, int tile_in) {
  constexpr int kGroups = S::template Weights<kBlockIn>::kGroups;
#pragma unroll
  for (int c = threadIdx.x; c < kGroups * S::kTokens / 2; c += S::kThreads) {
    int f = c / (S::kTokens / 2), token = token0 + c % (S::kTokens / 2) * 2;
    bool inside = token < a.x.padded;
    const int2 *from = a.blocks + (size_t)(tile_in * kTileIn / kBlockIn + f) * a.x.padded + token;
    copy_async_16(stage + S::kXBytes + c * 16, inside ? (const void *)from : a.blocks, inside ? 16 : 0);
  }
}

/* Scales and zeros of a lane for one tile row and group. */
template <class W> struct LaneGroup {
  float s_low, s_high;
  int z_low, z_high; /* z_high: 16 times the zero point with 4 bits */
  __device__ __forceinline__ LaneGroup(uint32_t scale, uint32_t zero)
      : s_low(f16_low(scale)), s_high(f16_high(scale) * W::kHigh), z_low(W::zero_low(zero)),
        z_high(W::zero_high(zero) * (int)(1.0f / W::kHigh)) {}
};

template <class S, int kBlockIn>
__device__ __forceinline__ LaneGroup<typename S::W> lane_group(const unsigned char *weights, int r, int f) {
  uint32_t scale, zero;
  S::template Weights<kBlockIn>::group(weights, S::warp_tile_row() + r, f, threadIdx.x % 32 / 4, &scale,
                                       &zero);
  return LaneGroup<typename S::W>(scale, zero);
}

/* The inner loop on mma m16n8k32: y[kR kN] are its fragments. */
template <class S, int kBlockIn> struct MmaLoop {
  typename S::Sums y;

  /* {d, sum} of the lane's two tokens in fragment n, for block f of the stage. */
  static __device__ __forceinline__ int4 blocks_of(const unsigned char *stage, int f, int n) {
    const int4 *blocks = (const int4 *)(stage + S::kXBytes) + S::warp_token() / 2 + threadIdx.x % 4;
    return blocks[(f * S::kTokens + n * 8) / 2];
  }

  /* The exact sums of block f of the stage, as floats that are kIntBias too large. */
  static __device__ __forceinline__ void multiply_block(const unsigned char *stage, int f,
                                                        int (&acc)[S::kR * S::kN][4]) {
    typedef typename S::W W;
    const unsigned char *weights = stage + S::template weights_at<kBlockIn>();
    int lane = threadIdx.x % 32;
    const unsigned char *x = stage + S::warp_token() * kTileIn + lane * 16;
#pragma unroll
    for (int r = 0; r < S::kR; r++) {
      LaneGroup<W> group = lane_group<S, kBlockIn>(weights, r, f);
#pragma unroll
      for (int n = 0; n < S::kN; n++) {
        int4 b = blocks_of(stage, f, n);
        acc[r * S::kN + n][0] = kIntBiasBits - group.z_low * b.y;
        acc[r * S::kN + n][1] = kIntBiasBits - group.z_low * b.w;
        acc[r * S::kN + n][2] = kIntBiasBits - group.z_high * b.y;
        acc[r * S::kN + n][3] = kIntBiasBits - group.z_high * b.w;
      }
    }
#pragma unroll
    for (int h = f * kBlockIn / 32; h < (f + 1) * kBlockIn / 32; h++) {
      uint32_t q[S::kR][4];
#pragma unroll
      for (int r = 0; r < S::kR; r++) {
        uint4 v[W::kVectors];
        S::template Weights<kBlockIn>::vectors(weights, S::warp_tile_row() + r, h / 2, lane, v);
        W::bytes(v, h % 2, q[r]);
      }
#pragma unroll
      for (int n = 0; n < S::kN; n++) {
        uint2 b = *(const uint2 *)(x + (h / 2 * S::kTokens + n * 8) * kTileIn + h % 2 * 8);
#pragma unroll
        for (int r = 0; r < S::kR; r++) mma_u8s8_m16n8k32(acc[r * S::kN + n], q[r], b.x, b.y);
      }
    }
  }

  __device__ __forceinline__ void multiply(const unsigned char *stage) {
#pragma unroll
    for (int f = 0; f < S::template Weights<kBlockIn>::kGroups; f++) {
      int acc[S::kR * S::kN][4];
      multiply_block(stage, f, acc);
#pragma unroll
      for (int r = 0; r < S::kR; r++) {
        LaneGroup<typename S::W> group =
            lane_group<S, kBlockIn>(stage + S::template weights_at<kBlockIn>(), r, f);
#pragma unroll
        for (int n = 0; n < S::kN; n++) {
          int4 b = blocks_of(stage, f, n);
#pragma unroll
          for (int c = 0; c < 4; c++)
            y[r * S::kN + n][c] += (c < 2 ? group.s_low : group.s_high) * __int_as_float(c % 2 ? b.z : b.x) *
                                   (__int_as_float(acc[r * S::kN + n][c]) - kIntBias);
        }
      }
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < S::kR * S::kN; i++) y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0;
  }
};

template <class S, int kBlockIn>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  typename S::template Weights<kBlockIn> weights;
  MmaLoop<S, kBlockIn> sums;
  sums.clear();
  stream_k::run<S::kStages, S::template stage_bytes<kBlockIn>(), S::kThreads>(
      a.tiles.work, a.tiles.n_token_tiles, shared, a.tiles.partial, a.tiles.counters,
      [&](unsigned char *stage, const stream_k::Cursor &at, bool jumps) {
        if (jumps) weights.start(a.w, at.out_tile * S::kTileRows, at.step * S::kK);
        weights.load(a.w, stage + S::template weights_at<kBlockIn>());
      },
      [&](unsigned char *stage, const stream_k::Cursor &at, bool) {
        a.x.load<S>(stage, at.token_tile * S::kTokens, at.step * S::kK);
        load_blocks<S, kBlockIn>(a, stage, at.token_tile * S::kTokens, at.step * S::kK);
      },
      [&](const unsigned char *stage) { sums.multiply(stage); },
      [&](const stream_k::Cursor &at, auto whole) {
        if (whole(reinterpret_cast<float(&)[S::kR * S::kN * 4]>(sums.y)))
          S::store(a.tiles.out, at.out_tile * S::kTileRows, at.token_tile * S::kTokens, a.tiles.n_tokens,
                   sums.y);
        sums.clear();
      });
}

template <class S> Int8Scratch scratch_of(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return int8_scratch<S>(w, n_tokens, device, ceil_div(w->n_in, kPadIn) * 4 * sizeof(int2));
}

template <class S> size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return scratch_of<S>(w, n_tokens, device).all();
}

template <class S, int kBlockIn> Status launch_block(const LinearArgs &args, Error *err) {
  const Int8Scratch scratch = scratch_of<S>(args.w, args.n_tokens, args.device);
  const QuantView w = quant_view(*args.w);
  const Int8X x = {args.workspace, scratch.padded};
  int2 *blocks = (int2 *)(args.workspace + scratch.x);
  float *partial = (float *)(args.workspace + scratch.x + scratch.scales);
  const int units = w.n_tiles_in / 2;
  const Args a = {w, x, blocks, tile_args<S>(args, w.n_tiles_in / S::kK, 2, partial)};
  TRY(launch(quantise_x<kBlockIn>, dim3((unsigned)ceil_div((long)units * x.padded, 8)), 256, 0, args.stream,
             args.dependent, args.w->name, err, args.x, args.x_stride, args.n_tokens, w.n_in, units, x,
             blocks));
  return launch(kernel<S, kBlockIn>, dim3((unsigned)a.tiles.work.n_blocks), S::kThreads,
                S::kStages * S::template stage_bytes<kBlockIn>(), args.stream, args.dependent, args.w->name,
                err, a);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  if (args.w->group % 128 == 0) return launch_block<S, 128>(args, err);
  if (args.w->group % 64 == 0) return launch_block<S, 64>(args, err);
  return launch_block<S, 32>(args, err);
}

template <int kR, int kWarpsM, int kWarpsN, int kN, int kStages, int kBlocks>
constexpr TileShape shape(int max_tokens) {
  typedef Shape<Bits4, kR, kWarpsM, kWarpsN, kN, kStages, kBlocks> S4;
  typedef Shape<Bits8, kR, kWarpsM, kWarpsN, kN, 3, kBlocks> S8; /* 3 stages: twice the bytes */
  return {max_tokens,
          {(size_t)kStages * S4::template stage_bytes<32>(), (size_t)3 * S8::template stage_bytes<32>()},
          {launch_shape<S4>, launch_shape<S8>},
          {workspace<S4>, workspace<S8>}};
}

constexpr TileShape mma_shapes[] = {
    /* kR, kWarpsM, kWarpsN, kN, kStages, kBlocks */
    shape<2, 4, 1, 2, 5, 3>(16),
    shape<2, 4, 1, 4, 4, 3>(64),
    shape<4, 4, 2, 4, 3, 1>(1 << 30),
};

} // namespace

const LinearKernel int8_mma_kernel = tile_kernel<mma_shapes>;
