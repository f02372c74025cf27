/* int8_token.cu - W8A8 checkpoints: int8 weights with one scale per output, activations rounded to int8 with
 * one scale per token (model.h, LINEAR_INT8).
 *
 *     s[m] = max |x[m][i]| / 127.5      p[m][i] = x[m][i] / s[m] to the nearest, ties to even, -128 .. 127
 *     y[m][o] = (s[m] scales[o]) sum_i weight[o][i] p[m][i]
 *
 * The sum is exact in int32 (n_in 2^14 < 2^31) and every other step rounds once, as the CPU's does, so equal
 * tokens give equal bits. One kernel rounds the tokens, the next multiplies tiles on mma m16n8k32. Stream-K
 * divides the work; its partial tiles are integers too. A token with an infinity or NaN gives NaN.
 *
 *   x      [n_in / 64][tokens][64 bytes] int8 in the order of the weights: a lane's operands are 16 bytes
 *   scales [tokens]
 *   stage  x [kK][kTokens][64]   then weights [kTileRows][kK][1024 bytes]
 *
 * READS weights once for every kTokens tokens. */
#include <float.h>

#include "cuda/linear/kernel.cuh"
#include "cuda/linear/quantise.cuh"
#include "cuda/linear/stream_k.cuh"

namespace {

constexpr int kTokenPad = 16, kRoundWarps = 8, kK = 2;

struct RoundedX {
  unsigned char *x;
  float *scales;
  int padded; /* tokens, rounded up to kTokenPad */
};

/* The largest |x| of a token as bits, which order infinity and NaN above any number. */
__device__ __forceinline__ unsigned largest_bits(const __half *row, int n_in, int n_units) {
  __shared__ unsigned of_warps[kRoundWarps];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned top = 0;
  for (int unit = warp; unit < n_units; unit += kRoundWarps) {
    LaneInputs in = read_inputs<false>(row, unit * kPadIn, n_in, lane);
#pragma unroll
    for (int i = 0; i < 2; i++)
      top = max(top, max(__float_as_uint(fabsf(f16_low(in.pair[i]))),
                         __float_as_uint(fabsf(f16_high(in.pair[i])))));
  }
#pragma unroll
  for (int o = 16; o; o /= 2) top = max(top, __shfl_xor_sync(~0u, top, o));
  if (lane == 0) of_warps[warp] = top;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kRoundWarps; w++) top = max(top, of_warps[w]);
  return top;
}

/* A block rounds one token. Padding tokens and inputs become 0. */
__global__ void round_rows(const __half *x, int x_stride, int n_tokens, int n_in, int n_units, RoundedX to) {
  int lane = threadIdx.x % 32, token = blockIdx.x;
  dependents_may_start();
  wait_for_previous();
  const __half *row = x + (size_t)token * x_stride;
  unsigned top = token < n_tokens ? largest_bits(row, n_in, n_units) : 0;
  bool finite = top < 0x7f800000u;
  float scale = __fdiv_rn(__uint_as_float(top), 127.5f);
  if (scale == 0) scale = FLT_EPSILON;
  for (int unit = threadIdx.x / 32; unit < n_units; unit += kRoundWarps) {
    LaneInputs in = {{0, 0}};
    if (token < n_tokens && finite) in = read_inputs<false>(row, unit * kPadIn, n_in, lane);
    float v[4] = {f16_low(in.pair[0]), f16_low(in.pair[1]), f16_high(in.pair[0]), f16_high(in.pair[1])};
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) { /* the low bits of the sum are the nearest integer */
      int p = (int)(__float_as_uint(__fadd_rn(__fdiv_rn(v[i], scale), 12582912.0f)) - 0x4b400000u);
      word |= (uint32_t)(min(p, 127) & 255) << (8 * i);
    }
    unsigned char *at = to.x + ((size_t)(2 * unit + lane / 16) * to.padded + token) * kTileIn;
    *(uint32_t *)(at + lane % 4 * 16 + lane / 4 % 4 * 4) = word;
  }
  if (threadIdx.x == 0) to.scales[token] = finite ? scale : __uint_as_float(0x7fffffffu);
}

template <int kR_, int kWarpsM_, int kWarpsN_, int kN_, int kBlocks_> struct Shape {
  static constexpr int kR = kR_, kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kN = kN_, kBlocks = kBlocks_;
  static constexpr int kStages = 3, kThreads = 32 * kWarpsM * kWarpsN, kTileRows = kR * kWarpsM,
                       kTokens = 8 * kN * kWarpsN;
  static constexpr int kRun = kK * 64; /* vectors of a tile row */
  static constexpr int kXBytes = kK * kTokens * kTileIn, kStageBytes = kXBytes + kTileRows * kRun * 16;
};

struct Args {
  const uint4 *tiles;
  const float *w_scales; /* [n_tiles_out * 16] */
  RoundedX x;
  int n_tiles_out, n_tiles_in;
  int n_tokens, first_token, n_token_tiles; /* this launch: token tiles from first_token on */
  stream_k::Work work;
  Epilogue out;
  int *partial;
  unsigned *counters;
};

/* Copies x and weights of one stage to shared memory, zeroes past the end of either. */
template <class S>
__device__ __forceinline__ void load_stage(const Args &a, unsigned char *stage, int tile_row0, int token0,
                                           int tile_in) {
#pragma unroll
  for (int c = threadIdx.x; c < S::kXBytes / 16; c += S::kThreads) {
    int token = token0 + c / 4 % S::kTokens;
    bool inside = token < a.x.padded;
    size_t tile = (size_t)(tile_in + c / 4 / S::kTokens) * a.x.padded + token;
    copy_async_16(stage + c * 16, inside ? a.x.x + tile * kTileIn + c % 4 * 16 : a.x.x, inside ? 16 : 0);
  }
#pragma unroll
  for (int c = threadIdx.x; c < S::kTileRows * S::kRun; c += S::kThreads) {
    int row = tile_row0 + c / S::kRun;
    bool inside = row < a.n_tiles_out;
    const uint4 *from = a.tiles + ((size_t)row * a.n_tiles_in + tile_in) * 64 + c % S::kRun;
    copy_async_16(stage + S::kXBytes + c * 16, inside ? from : a.tiles, inside ? 16 : 0);
  }
}

/* Adds one stage to the sums, fragments of mma m16n8k32. */
template <class S>
__device__ __forceinline__ void multiply(const unsigned char *stage, int (&sum)[S::kR * S::kN][4]) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int row0 = warp % S::kWarpsM * S::kR, token0 = warp / S::kWarpsM * S::kN * 8;
  const unsigned char *x = stage + token0 * kTileIn + lane * 16;
  const uint4 *weights = (const uint4 *)(stage + S::kXBytes) + row0 * S::kRun + lane;
#pragma unroll
  for (int h = 0; h < 2 * kK; h++) {
    uint32_t q[S::kR][4];
#pragma unroll
    for (int r = 0; r < S::kR; r++) {
      uint4 v = weights[r * S::kRun + 32 * h];
      q[r][0] = v.x;
      q[r][1] = v.y;
      q[r][2] = v.z;
      q[r][3] = v.w;
    }
#pragma unroll
    for (int n = 0; n < S::kN; n++) {
      uint2 b = *(const uint2 *)(x + (h / 2 * S::kTokens + n * 8) * kTileIn + h % 2 * 8);
#pragma unroll
      for (int r = 0; r < S::kR; r++) mma_s8s8_m16n8k32(sum[r * S::kN + n], q[r], b.x, b.y);
    }
  }
}

/* Multiplies the sums of a warp's tile rows by both scales and stores them. */
template <class S>
__device__ __forceinline__ void store(const Args &a, int tile_row0, int token0,
                                      const int (&sum)[S::kR * S::kN][4]) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < S::kR; r++) {
    if (tile_row0 + r >= a.n_tiles_out) continue;
    const float *scales = a.w_scales + (tile_row0 + r) * kTileOut + g;
    float low = scales[0], high = scales[8], y[4 * S::kN];
#pragma unroll
    for (int n = 0; n < S::kN; n++)
#pragma unroll
      for (int c = 0; c < 4; c++) {
        float s = a.x.scales[min(token0 + 8 * n + 2 * t + c % 2, a.x.padded - 1)];
        y[4 * n + c] = __fmul_rn((float)sum[r * S::kN + n][c], __fmul_rn(s, c < 2 ? low : high));
      }
    store_fragments<S::kN>(a.out, tile_row0 + r, token0, 0, a.n_tokens, y);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  int flat[S::kR * S::kN * 4] = {};
  int(&sum)[S::kR * S::kN][4] = reinterpret_cast<int(&)[S::kR * S::kN][4]>(flat);
  stream_k::run<S::kStages, S::kStageBytes, S::kThreads>(
      a.work, a.n_token_tiles, shared, a.partial, a.counters,
      [&](unsigned char *stage, const stream_k::Cursor &at, bool) {
        load_stage<S>(a, stage, at.row * S::kTileRows, a.first_token + at.column * S::kTokens, at.step * kK);
      },
      [&](const unsigned char *stage) { multiply<S>(stage, sum); },
      [&](const stream_k::Cursor &at, auto whole) {
        int warp = threadIdx.x / 32;
        if (whole(flat))
          store<S>(a, at.row * S::kTileRows + warp % S::kWarpsM * S::kR,
                   a.first_token + at.column * S::kTokens + warp / S::kWarpsM * S::kN * 8, sum);
#pragma unroll
        for (int &one : flat) one = 0;
      });
}

/* Scratch: x, its scales, then the partial tiles of stream-K. */
struct Scratch {
  size_t x, scales, partial;
};

template <class S> Scratch scratch_of(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  size_t padded = (size_t)ceil_div(n_tokens, kTokenPad) * kTokenPad,
         units = (size_t)ceil_div(w->n_in, kPadIn);
  return {align_up(padded * units * kPadIn), align_up(padded * sizeof(float)),
          stream_k::partial_bytes(device.n_sms * S::kBlocks, S::kThreads, S::kR * S::kN * 4)};
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  Scratch scratch = scratch_of<S>(w, args.n_tokens, args.device);
  int n_units = ceil_div(w->n_in, kPadIn);
  Args a = {};
  a.tiles = (const uint4 *)w->tiles;
  a.w_scales = (const float *)w->scales;
  a.x.x = args.workspace;
  a.x.scales = (float *)(args.workspace + scratch.x);
  a.x.padded = ceil_div(args.n_tokens, kTokenPad) * kTokenPad;
  a.n_tiles_out = ceil_div(w->n_out, kTileOut);
  a.n_tiles_in = 2 * n_units;
  a.n_tokens = args.n_tokens;
  a.out = args.out;
  a.partial = (int *)(args.workspace + scratch.x + scratch.scales);
  a.counters = args.counters;
  TRY(launch(round_rows, dim3((unsigned)a.x.padded), 32 * kRoundWarps, 0, args.stream, args.dependent,
             w->name, err, args.x, args.x_stride, args.n_tokens, w->n_in, n_units, a.x));
  /* A launch takes as many token tiles as there are counters for. */
  int rows = ceil_div(a.n_tiles_out, S::kTileRows), most = rows < kCounters ? kCounters / rows : 1;
  for (; a.first_token < args.n_tokens; a.first_token += a.n_token_tiles * S::kTokens) {
    int left = ceil_div(args.n_tokens - a.first_token, S::kTokens);
    a.n_token_tiles = left < most ? left : most;
    a.work = stream_k::even_work(rows * a.n_token_tiles, n_units, args.device.n_sms * S::kBlocks, 2);
    TRY(launch(kernel<S>, dim3((unsigned)a.work.n_blocks), S::kThreads, S::kStages * S::kStageBytes,
               args.stream, args.dependent, w->name, err, a));
  }
  return STATUS_OK;
}

/* Tile shapes by tokens. */
struct Choice {
  int max_tokens;
  size_t shared;
  Status (*launch)(const LinearArgs &args, Error *err);
  Scratch (*scratch)(const DeviceLinear *, int, const DeviceLimits &);
};

template <int kR, int kWarpsM, int kWarpsN, int kN, int kBlocks> constexpr Choice choice(int max_tokens) {
  typedef Shape<kR, kWarpsM, kWarpsN, kN, kBlocks> S;
  return {max_tokens, (size_t)S::kStages * S::kStageBytes, launch_shape<S>, scratch_of<S>};
}

constexpr Choice choices[] = {
    /* kR, kWarpsM, kWarpsN, kN, kBlocks */
    choice<2, 4, 1, 1, 3>(8),
    choice<2, 4, 1, 4, 3>(64),
    choice<4, 4, 2, 4, 1>(1 << 30),
};
constexpr int kChoices = sizeof choices / sizeof *choices;

const Choice *choose(const LinearArgs &args) {
  if (args.variant > 0) return args.variant <= kChoices ? &choices[args.variant - 1] : nullptr;
  const Choice *c = choices;
  while (args.n_tokens > c->max_tokens) c++;
  while (c > choices && c->shared > args.device.shared_bytes) c--;
  return c;
}

size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  size_t most = 0;
  for (const Choice &c : choices) {
    Scratch s = c.scratch(w, n_tokens, device);
    if (s.x + s.scales + s.partial > most) most = s.x + s.scales + s.partial;
  }
  return most;
}

Status launch_int8_token(const LinearArgs &args, Error *err) {
  const Choice *c = choose(args);
  if (!c) return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
  return c->launch(args, err);
}

} // namespace

const LinearKernel int8_token_kernel = {workspace, launch_int8_token, false};
