/* awq_tensorcore.cu - 2 to some hundred tokens on fp16 tensor cores, weights dequantised in registers.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * The weights are the sixteen-row operand of mma m16n8k16 and x is the eight-column one, so few tokens waste
 * little. A lane's 16 bytes of a tile are its own operand for 64 inputs (layout.cuh): shared memory only
 * keeps many copies in flight, and lop3 and one packed half instruction turn a word into q - z, exactly. x is
 * loaded by ldmatrix. With few tokens per stage the sums of a group are scaled in fp32; with many, scaling
 * the operand (one rounding to fp16) is cheaper.
 *
 *   block: 16 kTileRows outputs x kTokens tokens
 *   warps: kWarpsM x kWarpsN, each 16 kR outputs x 8 kN tokens
 *   stage: x [kK][kTokens][128 bytes], 16-byte vector c of token r at c ^ (r % 8): no bank conflicts
 *          weights, scales and zeros as in weight_stage.cuh
 *
 * Stream-K divides the work over all SMs.
 * PRECOND  group % F == 0, F = 32 or 64; x 16-byte aligned, x_stride % 8 == 0.
 * READS    weights once for every kTokens tokens, x once for every 16 kTileRows outputs. */
#include "cuda/linear/kernel.cuh"
#include "cuda/linear/stream_k.cuh"
#include "cuda/linear/weight_stage.cuh"

namespace {

template <class W_, int kR_, int kWarpsM_, int kWarpsN_, int kN_, int kK_, int kStages_, int kBlocks_,
          bool kScaled_>
struct Shape {
  typedef W_ W;
  static constexpr int kR = kR_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kN = kN_, kK = kK_,
                       kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  /* per SM */
  static constexpr bool kScaled = kScaled_; /* scales the operand in fp16, else the sums in fp32 */
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN, kTileRows = kR * kWarpsM,
                       kTokens = 8 * kN * kWarpsN;
  static constexpr int kXBytes = kK * kTokens * 128;
  template <int F> using Weights = WeightStage<W, kTileRows, kK, F, kThreads>;
  template <int F> static __host__ __device__ constexpr int stage_bytes() {
    return kXBytes + Weights<F>::kBytes;
  }
};

struct Args {
  QuantView w;
  const __half *x;
  int x_stride, n_tokens, n_token_tiles;
  stream_k::Work work;
  Epilogue out;
  float *partial;
  unsigned *counters;
};

/* Copies x of one stage to shared memory: a thread copies the same 8 inputs of every kRowStep-th token. */
template <class S> struct XStage {
  static constexpr int kChunks = S::kK * 8, kRowStep = S::kThreads / kChunks;
  static constexpr int kEach = (S::kTokens + kRowStep - 1) / kRowStep;
  static_assert(kRowStep % 8 == 0 || kEach == 1, "a thread's rows have one swizzle");
  const __half *from;
  int n_inside, k, to;

  __device__ __forceinline__ void start(const Args &a, int token0, int tile_in) {
    int row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
    k = tile_in * kTileIn + chunk * 8;
    from = a.x + (size_t)(token0 + row) * a.x_stride + k;
    n_inside = (min(a.n_tokens - token0, S::kTokens) - row + kRowStep - 1) / kRowStep;
    to = (chunk / 8 * S::kTokens + row) * 128 + ((chunk % 8) ^ (row % 8)) * 16;
  }

  __device__ __forceinline__ void load(const Args &a, unsigned char *stage) {
    int valid = max(0, min(16, 2 * (a.w.n_in - k)));
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      bool inside = i < n_inside && valid > 0;
      const __half *at = inside ? from + (size_t)i * kRowStep * a.x_stride : a.x;
      if (S::kTokens % kRowStep == 0 || threadIdx.x / kChunks + i * kRowStep < S::kTokens)
        copy_async_16(stage + to + i * kRowStep * 128, at, inside ? valid : 0);
    }
    from += S::kK * kTileIn;
    k += S::kK * kTileIn;
  }
};

/* Adds one stage to the sums acc[kR][kN] of mma_f16. */
template <class S, int F>
__device__ __forceinline__ void multiply_stage(const unsigned char *stage, float (&acc)[S::kR * S::kN][4]) {
  typedef typename S::W W;
  typedef typename S::template Weights<F> Weights;
  constexpr int kPerTile = kTileIn < F ? 1 : kTileIn / F; /* groups of a tile, 1 if one group covers it */
  const unsigned char *weights = stage + S::kXBytes;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = warp % S::kWarpsM * S::kR, g = lane / 4;
  int token0 = warp / S::kWarpsM * S::kN * 8;
  uint32_t x0 = shared_address(stage) + (uint32_t)(token0 + lane % 8) * 128;
#pragma unroll
  for (int kk = 0; kk < S::kK; kk++) {
    uint4 v[S::kR][W::kVectors];
#pragma unroll
    for (int r = 0; r < S::kR; r++) Weights::vectors(weights, row0 + r, kk, lane, v[r]);
#pragma unroll
    for (int f = 0; f < kPerTile; f++) {
      uint32_t scale[S::kR];
      typename W::HalfZeros zero[S::kR];
#pragma unroll
      for (int r = 0; r < S::kR; r++) {
        uint32_t z;
        Weights::group(weights, row0 + r, kk * kPerTile + f, g, &scale[r], &z);
        zero[r] = W::half_zeros(z);
      }
      float group_sum[S::kScaled ? 1 : S::kR * S::kN][4] = {};
#pragma unroll
      for (int h = f * 2 / kPerTile; h < (f + 1) * 2 / kPerTile; h++) {
        uint32_t q[S::kR][2][4];
#pragma unroll
        for (int r = 0; r < S::kR; r++)
#pragma unroll
          for (int j = 0; j < 2; j++) {
            W::halves(v[r], 2 * h + j, zero[r], q[r][j]);
            if (S::kScaled) scale_halves(scale[r], q[r][j]);
          }
#pragma unroll
        for (int n = 0; n < S::kN; n++) {
          uint32_t x[4];
          ldmatrix_x4(
              x, x0 + (uint32_t)((kk * S::kTokens + n * 8) * 128 + ((h * 4 + lane / 8) ^ (lane % 8)) * 16));
#pragma unroll
          for (int r = 0; r < S::kR; r++) {
            float(&sum)[4] = S::kScaled ? acc[r * S::kN + n] : group_sum[S::kScaled ? 0 : r * S::kN + n];
            mma_f16_m16n8k16(sum, q[r][0], x[0], x[1]);
            mma_f16_m16n8k16(sum, q[r][1], x[2], x[3]);
          }
        }
      }
      if (!S::kScaled)
#pragma unroll
        for (int r = 0; r < S::kR; r++)
#pragma unroll
          for (int n = 0; n < S::kN; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
              acc[r * S::kN + n][i] +=
                  (i < 2 ? f16_low(scale[r]) : f16_high(scale[r])) * group_sum[r * S::kN + n][i];
    }
  }
}

template <class S>
__device__ __forceinline__ void store_tile(const Args &a, int tile_row0, int token0,
                                           float (&acc)[S::kR * S::kN][4]) {
  int warp = threadIdx.x / 32;
#pragma unroll
  for (int r = 0; r < S::kR; r++)
    store_fragments<S::kN>(a.out, tile_row0 + warp % S::kWarpsM * S::kR + r,
                           token0 + warp / S::kWarpsM * S::kN * 8, 0, a.n_tokens, acc[r * S::kN]);
}

template <class S, int F>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  XStage<S> x;
  typename S::template Weights<F> weights;
  float acc[S::kR * S::kN][4] = {};
  float(&flat)[S::kR * S::kN * 4] = reinterpret_cast<float(&)[S::kR * S::kN * 4]>(acc);
  stream_k::run<S::kStages, S::template stage_bytes<F>(), S::kThreads>(
      a.work, a.n_token_tiles, shared, a.partial, a.counters,
      [&](unsigned char *stage, const stream_k::Cursor &at, bool jumps) {
        if (jumps) {
          x.start(a, at.column * S::kTokens, at.step * S::kK);
          weights.start(a.w, at.row * S::kTileRows, at.step * S::kK);
        }
        x.load(a, stage);
        weights.load(a.w, stage + S::kXBytes);
      },
      [&](const unsigned char *stage) { multiply_stage<S, F>(stage, acc); },
      [&](const stream_k::Cursor &at, auto whole) {
        if (whole(flat)) store_tile<S>(a, at.row * S::kTileRows, at.column * S::kTokens, acc);
#pragma unroll
        for (float &sum : flat) sum = 0;
      });
}

template <class S> stream_k::Work work_of(const QuantView &w, int n_tokens, int n_sms) {
  constexpr int kLeastSteps = 256 / (S::kK * kTileIn); /* fewer inputs in a block are all pipeline ramp */
  return stream_k::even_work(ceil_div(w.n_tiles_out, S::kTileRows) * ceil_div(n_tokens, S::kTokens),
                             w.n_tiles_in / S::kK, n_sms * S::kBlocks, kLeastSteps);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  Args a = {quant_view(*args.w),
            args.x,
            args.x_stride,
            args.n_tokens,
            ceil_div(args.n_tokens, S::kTokens),
            {},
            args.out,
            (float *)args.workspace,
            args.counters};
  a.work = work_of<S>(a.w, args.n_tokens, args.device.n_sms);
  dim3 grid((unsigned)a.work.n_blocks);
  if (args.w->group % 64 == 0)
    return launch(kernel<S, 64>, grid, S::kThreads, S::kStages * S::template stage_bytes<64>(), args.stream,
                  args.dependent, args.w->name, err, a);
  return launch(kernel<S, 32>, grid, S::kThreads, S::kStages * S::template stage_bytes<32>(), args.stream,
                args.dependent, args.w->name, err, a);
}

template <class S> size_t shape_bytes(const DeviceLimits &device) {
  return stream_k::partial_bytes(device.n_sms * S::kBlocks, S::kThreads, S::kR * S::kN * 4);
}

/* Tile shapes by tokens; order and thresholds are measured (cuda/NOTES.md). Variant n is the n-th shape. */
struct Choice {
  int max_tokens;
  size_t shared_4, shared_8; /* shared memory of a block, bytes */
  Status (*launch_4)(const LinearArgs &args, Error *err), (*launch_8)(const LinearArgs &args, Error *err);
  size_t (*bytes_4)(const DeviceLimits &device), (*bytes_8)(const DeviceLimits &device);
};

template <int kR, int kWarpsM, int kWarpsN, int kN, int kK, int kStages, int kBlocks, bool kScaled>
constexpr Choice choice(int max_tokens) {
  typedef Shape<Bits4, kR, kWarpsM, kWarpsN, kN, kK, kStages, kBlocks, kScaled> S4;
  typedef Shape<Bits8, kR, kWarpsM, kWarpsN, kN, kK, 3, kBlocks, kScaled> S8; /* twice the bytes */
  return {max_tokens,
          (size_t)kStages * S4::template stage_bytes<32>(),
          (size_t)3 * S8::template stage_bytes<32>(),
          launch_shape<S4>,
          launch_shape<S8>,
          shape_bytes<S4>,
          shape_bytes<S8>};
}

constexpr Choice choices[] = {
    /* kR, kWarpsM, kWarpsN, kN, kK, kStages, kBlocks, kScaled */
    choice<2, 4, 1, 1, 2, 5, 2, false>(8),      choice<2, 4, 1, 2, 2, 5, 3, false>(16),
    choice<2, 4, 1, 4, 2, 4, 2, false>(32),     choice<2, 4, 1, 4, 2, 4, 2, true>(64),
    choice<4, 4, 1, 8, 1, 4, 2, true>(1 << 30),
};

/* The smallest shape that holds all tokens, or the next smaller one that fits in the chip's shared memory. */
const Choice *choose(const DeviceLinear *w, int n_tokens, const DeviceLimits &device, int variant) {
  if (variant > 0)
    return variant <= (int)(sizeof choices / sizeof *choices) ? &choices[variant - 1] : nullptr;
  const Choice *c = choices;
  while (n_tokens > c->max_tokens) c++;
  while (c > choices && (w->type == WEIGHT_AWQ4 ? c->shared_4 : c->shared_8) > device.shared_bytes) c--;
  return c;
}

Status launch_awq_tensorcore(const LinearArgs &args, Error *err) {
  const Choice *c = choose(args.w, args.n_tokens, args.device, args.variant);
  if (!c) return error_set(err, STATUS_USAGE, "awq_tensorcore has no variant %d", args.variant);
  return (args.w->type == WEIGHT_AWQ4 ? c->launch_4 : c->launch_8)(args, err);
}

size_t workspace(const DeviceLinear *w, int, const DeviceLimits &device) {
  size_t most = 0;
  for (const Choice &c : choices) {
    size_t bytes = (w->type == WEIGHT_AWQ4 ? c.bytes_4 : c.bytes_8)(device);
    if (bytes > most) most = bytes;
  }
  return most;
}

} // namespace

const LinearKernel awq_tensorcore_kernel = {workspace, launch_awq_tensorcore, false};
