/* int8_act.cu - W4A8 and W8A8: activations quantised to int8 on the fly, the matmul on integer units.
 *
 *     x[m][i] ~ d[m][b] X[m][i], b = i / F     one scale and sum for F inputs, d = max |x| / 127
 *     y[m][o] = sum_b s d (sum_i q X - z sum_i X)
 *
 * int8_gemv  1 to 8 tokens: int8_gemv.cu int8_mma   any number: one kernel quantises x, the next multiplies
 * tiles on mma m16n8k32 int8_dp4a  the same tiles on dp4a, for chips without integer tensor cores, and to
 * compare with
 *
 * The sum over a block of inputs is exact: the accumulators start at 1.5 * 2^23 - z sum X (times 16 if the
 * weights are, layout.cuh) in integer form, so that read as a float less 1.5 * 2^23 they are the finished
 * sum. Stream-K divides the work.
 *
 *   x      [n_in / 64][tokens][64 bytes] int8 in the order of the weights: a lane's operands are 16 bytes
 *   blocks [n_in / F][tokens] {float d, int sum}
 *   stage  x [kK][kTokens][64]   blocks [kK 64 / F][kTokens]   then weights as in weight_stage.cuh
 *
 * PRECOND  group % F == 0, F = 32, 64 or 128. READS weights once for every kTokens tokens. */
#include "cuda/linear/kernel.cuh"
#include "cuda/linear/quantise.cuh"
#include "cuda/linear/stream_k.cuh"
#include "cuda/linear/weight_stage.cuh"
#include "cuda/ptx/lanes.cuh"

namespace {

constexpr int kTokenPad = 16;

struct QuantX {
  unsigned char *x;
  int2 *blocks; /* bits of d, sum */
  int padded;   /* tokens, rounded up to kTokenPad */
};

/* A warp quantises 128 inputs of one token. Padding tokens and inputs become 0. */
template <int F>
__global__ void quantise_x(const __half *x, int x_stride, int n_tokens, int n_in, int n_units, QuantX to) {
  int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, unit = i % n_units,
      token = i / n_units;
  dependents_may_start();
  wait_for_previous();
  if (token >= to.padded) return;
  uint32_t word[1];
  int sum;
  LaneInputs in = {{0, 0}};
  if (token < n_tokens) in = read_inputs<false>(x + (size_t)token * x_stride, unit * 128, n_in, lane);
  float d = quantise_inputs<1, F>(in, word, &sum);
  unsigned char *at = to.x + ((size_t)(2 * unit + lane / 16) * to.padded + token) * kTileIn;
  *(uint32_t *)(at + lane % 4 * 16 + lane / 4 % 4 * 4) = word[0];
  if (lane % (F / 4) == 0)
    to.blocks[(size_t)(unit * (128 / F) + lane / (F / 4)) * to.padded + token] =
        make_int2(__float_as_int(d), sum);
}

template <class W_, int kR_, int kWarpsM_, int kWarpsN_, int kN_, int kStages_, int kBlocks_, bool kDot_>
struct Shape {
  typedef W_ W;
  static constexpr int kR = kR_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kN = kN_, kStages = kStages_,
                       kBlocks = kBlocks_;
  static constexpr bool kDot = kDot_; /* dp4a, else mma */
  static constexpr int kK = 2, kThreads = 32 * kWarpsM * kWarpsN, kTileRows = kR * kWarpsM,
                       kTokens = 8 * kN * kWarpsN;
  static constexpr int kXBytes = kK * kTokens * kTileIn;
  template <int F> using Weights = WeightStage<W, kTileRows, kK, F, kThreads>;
  template <int F> static __host__ __device__ constexpr int stage_bytes() {
    return (kXBytes + Weights<F>::kGroups * kTokens * 8 + 127) / 128 * 128 + Weights<F>::kBytes;
  }
  template <int F> static __host__ __device__ constexpr int weights_at() {
    return stage_bytes<F>() - Weights<F>::kBytes;
  }
};

struct Args {
  QuantView w;
  QuantX x;
  int n_tokens, n_token_tiles;
  stream_k::Work work;
  Epilogue out;
  float *partial;
  unsigned *counters;
};

/* Copies x of one stage, and its blocks' scales and sums, to shared memory. x is padded to whole units of
 * inputs. */
template <class S, int F>
__device__ __forceinline__ void load_x(const Args &a, unsigned char *stage, int token0, int tile_in) {
#pragma unroll
  for (int c = threadIdx.x; c < S::kXBytes / 16; c += S::kThreads) {
    int kk = c / (S::kTokens * 4), token = token0 + c / 4 % S::kTokens;
    bool inside = token < a.x.padded;
    const unsigned char *from = a.x.x + ((size_t)(tile_in + kk) * a.x.padded + token) * kTileIn + c % 4 * 16;
    copy_async_16(stage + c * 16, inside ? from : a.x.x, inside ? 16 : 0);
  }
  constexpr int kGroups = S::template Weights<F>::kGroups;
#pragma unroll
  for (int c = threadIdx.x; c < kGroups * S::kTokens / 2; c += S::kThreads) {
    int f = c / (S::kTokens / 2), token = token0 + c % (S::kTokens / 2) * 2;
    bool inside = token < a.x.padded;
    const int2 *from = a.x.blocks + (size_t)(tile_in * kTileIn / F + f) * a.x.padded + token;
    copy_async_16(stage + S::kXBytes + c * 16, inside ? (const void *)from : a.x.blocks, inside ? 16 : 0);
  }
}

/* Scales and zeros of a lane for one tile row and group. */
template <class W> struct LaneGroup {
  float s_low, s_high;
  int z_low, z_high; /* times 16 if the weights are */
  __device__ __forceinline__ LaneGroup(uint32_t scale, uint32_t zero)
      : s_low(f16_low(scale)), s_high(f16_high(scale) * W::kHigh), z_low(W::zero_low(zero)),
        z_high(W::zero_high(zero) * (int)(1.0f / W::kHigh)) {}
};

template <class S, int F>
__device__ __forceinline__ LaneGroup<typename S::W> lane_group(const unsigned char *weights, int row, int f,
                                                               int g) {
  uint32_t scale, zero;
  S::template Weights<F>::group(weights, row, f, g, &scale, &zero);
  return LaneGroup<typename S::W>(scale, zero);
}

constexpr int kStart = 0x4b400000;
constexpr float kStartFloat = 12582912.0f;

/* Adds one stage to y[kR kN][4], fragments of mma m16n8k32. */
template <class S, int F> struct Mma {
  float y[S::kR * S::kN][4];

  __device__ __forceinline__ void multiply(const unsigned char *stage) {
    typedef typename S::W W;
    typedef typename S::template Weights<F> Weights;
    constexpr int kGroups = Weights::kGroups;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = warp % S::kWarpsM * S::kR, g = lane / 4,
        t = lane % 4;
    int token0 = warp / S::kWarpsM * S::kN * 8;
    const unsigned char *weights = stage + S::template weights_at<F>(),
                        *x = stage + token0 * kTileIn + lane * 16;
    const int4 *blocks = (const int4 *)(stage + S::kXBytes) + token0 / 2 + t;
#pragma unroll
    for (int f = 0; f < kGroups; f++) {
      int acc[S::kR * S::kN][4];
#pragma unroll
      for (int r = 0; r < S::kR; r++) {
        LaneGroup<W> group = lane_group<S, F>(weights, row0 + r, f, g);
#pragma unroll
        for (int n = 0; n < S::kN; n++) {
          int4 b = blocks[(f * S::kTokens + n * 8) / 2];
          acc[r * S::kN + n][0] = kStart - group.z_low * b.y;
          acc[r * S::kN + n][1] = kStart - group.z_low * b.w;
          acc[r * S::kN + n][2] = kStart - group.z_high * b.y;
          acc[r * S::kN + n][3] = kStart - group.z_high * b.w;
        }
      }
#pragma unroll
      for (int h = f * F / 32; h < (f + 1) * F / 32; h++) {
        uint32_t q[S::kR][4];
#pragma unroll
        for (int r = 0; r < S::kR; r++) {
          uint4 v[W::kVectors];
          Weights::vectors(weights, row0 + r, h / 2, lane, v);
          W::bytes(v, h % 2, q[r]);
        }
#pragma unroll
        for (int n = 0; n < S::kN; n++) {
          uint2 b = *(const uint2 *)(x + (h / 2 * S::kTokens + n * 8) * kTileIn + h % 2 * 8);
#pragma unroll
          for (int r = 0; r < S::kR; r++) mma_u8s8_m16n8k32(acc[r * S::kN + n], q[r], b.x, b.y);
        }
      }
#pragma unroll
      for (int r = 0; r < S::kR; r++) {
        LaneGroup<W> group = lane_group<S, F>(weights, row0 + r, f, g);
#pragma unroll
        for (int n = 0; n < S::kN; n++) {
          int4 b = blocks[(f * S::kTokens + n * 8) / 2];
#pragma unroll
          for (int c = 0; c < 4; c++)
            y[r * S::kN + n][c] += (c < 2 ? group.s_low : group.s_high) * __int_as_float(c % 2 ? b.z : b.x) *
                                   (__int_as_float(acc[r * S::kN + n][c]) - kStartFloat);
        }
      }
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < S::kR * S::kN; i++) y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0;
  }
  __device__ __forceinline__ void finish(float (&to)[S::kR * S::kN][4]) {
#pragma unroll
    for (int i = 0; i < S::kR * S::kN; i++)
#pragma unroll
      for (int c = 0; c < 4; c++) to[i][c] = y[i][c];
  }
};

/* The same on dp4a: lane (g, t) sums its own inputs for all tokens; finish() adds the four lanes t. */
template <class S, int F> struct Dot {
  float y[S::kR][8 * S::kN][2];

  __device__ __forceinline__ void multiply(const unsigned char *stage) {
    typedef typename S::W W;
    typedef typename S::template Weights<F> Weights;
    constexpr int kGroups = Weights::kGroups;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = warp % S::kWarpsM * S::kR, g = lane / 4,
        t = lane % 4;
    int token0 = warp / S::kWarpsM * S::kN * 8;
    const unsigned char *weights = stage + S::template weights_at<F>(),
                        *x = stage + token0 * kTileIn + t * 16;
    const int2 *blocks = (const int2 *)(stage + S::kXBytes) + token0;
#pragma unroll
    for (int f = 0; f < kGroups; f++)
#pragma unroll
      for (int r = 0; r < S::kR; r++) {
        LaneGroup<W> group = lane_group<S, F>(weights, row0 + r, f, g);
        int z_low = t == 0 ? group.z_low : 0, z_high = t == 0 ? group.z_high : 0;
        uint4 v[2][W::kVectors];
        Weights::vectors(weights, row0 + r, 0, lane, v[0]);
        Weights::vectors(weights, row0 + r, 1, lane, v[1]);
#pragma unroll
        for (int m = 0; m < 8 * S::kN; m++) {
          int2 b = blocks[f * S::kTokens + m];
          int low = -z_low * b.y, high = -z_high * b.y;
#pragma unroll
          for (int h = f * F / 32; h < (f + 1) * F / 32; h++) {
            uint32_t q[4];
            W::bytes(v[h / 2], h % 2, q);
            uint2 xv = *(const uint2 *)(x + (h / 2 * S::kTokens + m) * kTileIn + h % 2 * 8);
            low = dp4a_u8s8(q[2], xv.y, dp4a_u8s8(q[0], xv.x, low));
            high = dp4a_u8s8(q[3], xv.y, dp4a_u8s8(q[1], xv.x, high));
          }
          y[r][m][0] += group.s_low * __int_as_float(b.x) * (float)low;
          y[r][m][1] += group.s_high * __int_as_float(b.x) * (float)high;
        }
      }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < S::kR; r++)
#pragma unroll
      for (int m = 0; m < 8 * S::kN; m++) y[r][m][0] = y[r][m][1] = 0;
  }
  __device__ __forceinline__ void finish(float (&to)[S::kR * S::kN][4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < S::kR; r++)
#pragma unroll
      for (int m = 0; m < 8 * S::kN; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float v = lanes_sum<1, 2>(y[r][m][half]);
          if (m % 8 / 2 == t) to[r * S::kN + m / 8][m % 2 + 2 * half] = v;
        }
  }
};

template <class S, int F>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  typename S::template Weights<F> weights;
  typename std::conditional<S::kDot, Dot<S, F>, Mma<S, F>>::type sums;
  sums.clear();
  stream_k::run<S::kStages, S::template stage_bytes<F>(), S::kThreads>(
      a.work, a.n_token_tiles, shared, a.partial, a.counters,
      [&](unsigned char *stage, const stream_k::Cursor &at, bool jumps) {
        if (jumps) weights.start(a.w, at.row * S::kTileRows, at.step * S::kK);
        load_x<S, F>(a, stage, at.column * S::kTokens, at.step * S::kK);
        weights.load(a.w, stage + S::template weights_at<F>());
      },
      [&](const unsigned char *stage) { sums.multiply(stage); },
      [&](const stream_k::Cursor &at, auto whole) {
        float acc[S::kR * S::kN][4];
        sums.finish(acc);
        if (whole(reinterpret_cast<float(&)[S::kR * S::kN * 4]>(acc))) {
          int warp = threadIdx.x / 32;
#pragma unroll
          for (int r = 0; r < S::kR; r++)
            store_fragments<S::kN>(a.out, at.row * S::kTileRows + warp % S::kWarpsM * S::kR + r,
                                   at.column * S::kTokens + warp / S::kWarpsM * S::kN * 8, 0, a.n_tokens,
                                   acc[r * S::kN]);
        }
        sums.clear();
      });
}

/* Scratch: x, blocks, then the partial tiles of stream-K. */
struct Scratch {
  size_t x, blocks, partial;
};

template <class S> Scratch scratch_of(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  size_t padded = (size_t)ceil_div(n_tokens, kTokenPad) * kTokenPad, units = (size_t)ceil_div(w->n_in, 128);
  return {align_up(padded * units * 128), align_up(padded * units * 4 * sizeof(int2)),
          stream_k::partial_bytes(device.n_sms * S::kBlocks, S::kThreads, S::kR * S::kN * 4)};
}

template <class S, int F> Status launch_block(const LinearArgs &args, Error *err) {
  Scratch scratch = scratch_of<S>(args.w, args.n_tokens, args.device);
  Args a = {};
  a.w = quant_view(*args.w);
  a.x.x = args.workspace;
  a.x.blocks = (int2 *)(args.workspace + scratch.x);
  a.x.padded = ceil_div(args.n_tokens, kTokenPad) * kTokenPad;
  a.n_tokens = args.n_tokens;
  a.n_token_tiles = ceil_div(args.n_tokens, S::kTokens);
  a.work = stream_k::even_work(ceil_div(a.w.n_tiles_out, S::kTileRows) * a.n_token_tiles,
                               a.w.n_tiles_in / S::kK, args.device.n_sms * S::kBlocks, 2);
  a.out = args.out;
  a.partial = (float *)(args.workspace + scratch.x + scratch.blocks);
  a.counters = args.counters;
  int units = a.w.n_tiles_in / 2;
  TRY(launch(quantise_x<F>, dim3((unsigned)ceil_div((long)units * a.x.padded, 8)), 256, 0, args.stream,
             args.dependent, args.w->name, err, args.x, args.x_stride, args.n_tokens, a.w.n_in, units, a.x));
  return launch(kernel<S, F>, dim3((unsigned)a.work.n_blocks), S::kThreads,
                S::kStages * S::template stage_bytes<F>(), args.stream, args.dependent, args.w->name, err, a);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  if (args.w->group % 128 == 0) return launch_block<S, 128>(args, err);
  if (args.w->group % 64 == 0) return launch_block<S, 64>(args, err);
  return launch_block<S, 32>(args, err);
}

/* Tile shapes by tokens, as in awq_tensorcore.cu. */
struct Choice {
  int max_tokens;
  size_t shared_4, shared_8;
  Status (*launch_4)(const LinearArgs &args, Error *err), (*launch_8)(const LinearArgs &args, Error *err);
  Scratch (*scratch_4)(const DeviceLinear *, int, const DeviceLimits &),
      (*scratch_8)(const DeviceLinear *, int, const DeviceLimits &);
};

template <int kR, int kWarpsM, int kWarpsN, int kN, int kStages, int kBlocks, bool kDot>
constexpr Choice choice(int max_tokens) {
  typedef Shape<Bits4, kR, kWarpsM, kWarpsN, kN, kStages, kBlocks, kDot> S4;
  typedef Shape<Bits8, kR, kWarpsM, kWarpsN, kN, 3, kBlocks, kDot> S8; /* twice the bytes */
  return {max_tokens,
          (size_t)kStages * S4::template stage_bytes<32>(),
          (size_t)3 * S8::template stage_bytes<32>(),
          launch_shape<S4>,
          launch_shape<S8>,
          scratch_of<S4>,
          scratch_of<S8>};
}

constexpr Choice mma_choices[] = {
    /* kR, kWarpsM, kWarpsN, kN, kStages, kBlocks, kDot */
    choice<2, 4, 1, 2, 5, 3, false>(16),
    choice<2, 4, 1, 4, 4, 3, false>(64),
    choice<4, 4, 2, 4, 3, 1, false>(1 << 30),
};

constexpr Choice dot_choices[] = {
    choice<1, 4, 1, 1, 4, 2, true>(8),
    choice<1, 4, 2, 2, 4, 2, true>(1 << 30),
};

template <size_t n>
const Choice *choose(const Choice (&choices)[n], const DeviceLinear *w, int n_tokens,
                     const DeviceLimits &device, int variant) {
  if (variant > 0) return variant <= (int)n ? &choices[variant - 1] : nullptr;
  const Choice *c = choices;
  while (n_tokens > c->max_tokens) c++;
  while (c > choices && (w->type == WEIGHT_AWQ4 ? c->shared_4 : c->shared_8) > device.shared_bytes) c--;
  return c;
}

template <size_t n>
size_t scratch_bytes(const Choice (&choices)[n], const DeviceLinear *w, int n_tokens,
                     const DeviceLimits &device) {
  size_t most = 0;
  for (const Choice &c : choices) {
    Scratch s = (w->type == WEIGHT_AWQ4 ? c.scratch_4 : c.scratch_8)(w, n_tokens, device);
    if (s.x + s.blocks + s.partial > most) most = s.x + s.blocks + s.partial;
  }
  return most;
}

size_t mma_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return scratch_bytes(mma_choices, w, n_tokens, device);
}

size_t dot_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return scratch_bytes(dot_choices, w, n_tokens, device);
}

Status launch_choice(const Choice *c, const LinearArgs &args, Error *err) {
  if (!c) return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
  return (args.w->type == WEIGHT_AWQ4 ? c->launch_4 : c->launch_8)(args, err);
}

Status launch_int8_mma(const LinearArgs &args, Error *err) {
  return launch_choice(choose(mma_choices, args.w, args.n_tokens, args.device, args.variant), args, err);
}

Status launch_int8_dp4a(const LinearArgs &args, Error *err) {
  return launch_choice(choose(dot_choices, args.w, args.n_tokens, args.device, args.variant), args, err);
}

} // namespace

const LinearKernel int8_mma_kernel = {mma_workspace, launch_int8_mma, false};
const LinearKernel int8_dp4a_kernel = {dot_workspace, launch_int8_dp4a, false};
