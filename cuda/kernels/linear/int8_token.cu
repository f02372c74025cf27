/* int8_token.cu - W8A8 checkpoints: int8 weights with one scale per output, activations rounded to int8 with
 * one scale per token (model.h, LINEAR_INT8).
 *
 *     s[m] = max |x[m][i]| / 127.5      p[m][i] = x[m][i] / s[m] to the nearest, ties to even, -128 .. 127
 *     y[m][o] = (s[m] scales[o]) sum_i weight[o][i] p[m][i]
 *
 * The sum is exact in int32 (n_in 2^14 < 2^31). Every other step rounds once, as the CPU's does. So equal
 * tokens give equal bits. One kernel rounds the tokens, the next multiplies tiles on mma m16n8k32. Stream-K
 * divides the work; its partial tiles are integers too. A token with an infinity or NaN gives NaN.
 *
 *   x      [n_in / 64][tokens][64 bytes] int8 in the order of the weights: a lane's operands are 16 bytes
 *   scales [tokens]
 *   stage  x [kK][kTokens][64]   then weights [16 kTileRows][128 bytes]: two tiles a row, four vectors each;
 *          odd rows have the second tile first, so that a warp's loads hit all banks
 *
 * READS weights once for every kTokens tokens. */
#include <float.h>

#include "cuda/kernels/linear/int8_x.cuh"

namespace {

constexpr int kRoundWarps = 8, kK = 2;

/* The bits of a token's largest |x|. As bits, infinity and NaN are larger than any number. */
__device__ __forceinline__ unsigned largest_bits(const __half *x, int n_in, int n_units) {
  __shared__ unsigned of_warps[kRoundWarps];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned top = 0;
  for (int unit = warp; unit < n_units; unit += kRoundWarps) {
    LaneInputs in = read_inputs<false>(x, unit * kPadIn, n_in, lane);
#pragma unroll
    for (int i = 0; i < 2; i++)
      top = max(top, max(__float_as_uint(fabsf(f16_low(in.f16x2[i]))),
                         __float_as_uint(fabsf(f16_high(in.f16x2[i])))));
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
__global__ void round_tokens(const __half *x, int x_stride, int n_tokens, int n_in, int n_units, Int8X to,
                             float *scales) {
  int lane = threadIdx.x % 32, token = blockIdx.x;
  begin_overlapping();
  x += (size_t)token * x_stride;
  unsigned top = token < n_tokens ? largest_bits(x, n_in, n_units) : 0;
  bool finite = top < 0x7f800000u;
  float scale = __fdiv_rn(__uint_as_float(top), 127.5f);
  if (scale == 0) scale = FLT_EPSILON;
  for (int unit = threadIdx.x / 32; unit < n_units; unit += kRoundWarps) {
    LaneInputs in = {{0, 0}};
    if (token < n_tokens && finite) in = read_inputs<false>(x, unit * kPadIn, n_in, lane);
    float v[4];
    in.floats(v);
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) { /* the low bits of the sum are the nearest integer */
      int p = (int)(__float_as_uint(__fadd_rn(__fdiv_rn(v[i], scale), kIntBias)) - (unsigned)kIntBiasBits);
      word |= (uint32_t)(min(p, 127) & 255) << (8 * i);
    }
    to.store(unit, token, lane, word);
  }
  if (threadIdx.x == 0) scales[token] = finite ? scale : __uint_as_float(0x7fffffffu);
}

template <int kR, int kWarpsM, int kWarpsN, int kN, int kBlocks_>
struct Shape : WarpGrid<kR, kWarpsM, kWarpsN, kN> {
  typedef WarpGrid<kR, kWarpsM, kWarpsN, kN> Grid;
  static constexpr int kBlocks = kBlocks_, kStages = 3;
  static constexpr int kRowVectors = kK * 4; /* of a row in a stage, 16 bytes each */
  static constexpr int kXBytes = kK * Grid::kTokens * kTileIn;
  static constexpr int kStageBytes = kXBytes + Grid::kTileRows * kTileOut * kRowVectors * 16;
  typedef int IntSums[kR * kN][4];
};

struct Args {
  const uint4 *weights;
  const float *w_scales; /* [n_tiles_out * 16] */
  Int8X x;
  const float *x_scales; /* [x.padded] */
  int n_tiles_out, n_tiles_in;
  TileArgs<int> tiles;
};

/* Copies the weights of one stage to shared memory, zeros past the matrix. */
template <class S>
__device__ __forceinline__ void load_weights(const Args &a, unsigned char *stage, int tile_row0,
                                             int tile_in) {
#pragma unroll
  for (int c = threadIdx.x; c < S::kTileRows * kTileOut * S::kRowVectors; c += S::kThreads) {
    const int row = c / S::kRowVectors, v = c % S::kRowVectors;
    const bool inside = tile_row0 + row / kTileOut < a.n_tiles_out;
    const uint4 *from = a.weights + ((size_t)(tile_row0 * kTileOut + row) * a.n_tiles_in + tile_in) * 4 + v;
    copy_async_16(stage + S::kXBytes + (row * S::kRowVectors + (v ^ row % 2 * 4)) * 16,
                  inside ? from : a.weights, inside ? 16 : 0);
  }
}

/* Adds the products of one stage to the sums, fragments of mma m16n8k32. */
template <class S>
__device__ __forceinline__ void multiply(const unsigned char *stage, typename S::IntSums &sum) {
  int lane = threadIdx.x % 32;
  const unsigned char *x = stage + S::warp_token() * kTileIn + lane * 16;
  const int g = lane / 4, t = lane % 4;
  const uint4 *weights =
      (const uint4 *)(stage + S::kXBytes) + (S::warp_tile_row() * kTileOut + g) * S::kRowVectors;
#pragma unroll
  for (int tile = 0; tile < kK; tile++) {
    uint4 low[S::kR], high[S::kR];
#pragma unroll
    for (int r = 0; r < S::kR; r++) {
      const uint4 *row = weights + r * kTileOut * S::kRowVectors + (4 * tile + t ^ g % 2 * 4);
      low[r] = row[0];
      high[r] = row[8 * S::kRowVectors];
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t q[S::kR][4];
#pragma unroll
      for (int r = 0; r < S::kR; r++) {
        q[r][0] = half ? low[r].z : low[r].x;
        q[r][1] = half ? high[r].z : high[r].x;
        q[r][2] = half ? low[r].w : low[r].y;
        q[r][3] = half ? high[r].w : high[r].y;
      }
#pragma unroll
      for (int n = 0; n < S::kN; n++) {
        uint2 b = *(const uint2 *)(x + (tile * S::kTokens + n * 8) * kTileIn + half * 8);
#pragma unroll
        for (int r = 0; r < S::kR; r++) mma_s8s8_m16n8k32(sum[r * S::kN + n], q[r], b.x, b.y);
      }
    }
  }
}

/* Multiplies the sums of a warp's tile rows by both scales and stores them. */
template <class S>
__device__ __forceinline__ void store(const Args &a, int tile_row0, int token0,
                                      const typename S::IntSums &sum) {
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
        float s = a.x_scales[min(token0 + 8 * n + 2 * t + c % 2, a.x.padded - 1)];
        y[4 * n + c] = __fmul_rn((float)sum[r * S::kN + n][c], __fmul_rn(s, c < 2 ? low : high));
      }
    store_fragments<S::kN>(a.tiles.out, tile_row0 + r, token0, 0, a.tiles.n_tokens, y);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  int flat[S::kR * S::kN * 4] = {};
  typename S::IntSums &sum = reinterpret_cast<typename S::IntSums &>(flat);
  stream_k::run<S::kStages, S::kStageBytes, S::kThreads>(
      a.tiles.work, a.tiles.n_token_tiles, shared, a.tiles.partial, a.tiles.counters,
      [&](unsigned char *stage, const stream_k::Cursor &at, bool) {
        load_weights<S>(a, stage, at.out_tile * S::kTileRows, at.step * kK);
      },
      [&](unsigned char *stage, const stream_k::Cursor &at, bool) {
        a.x.load<S>(stage, at.token_tile * S::kTokens, at.step * kK);
      },
      [&](const unsigned char *stage) { multiply<S>(stage, sum); },
      [&](const stream_k::Cursor &at, auto whole) {
        if (whole(flat))
          store<S>(a, at.out_tile * S::kTileRows + S::warp_tile_row(),
                   at.token_tile * S::kTokens + S::warp_token(), sum);
#pragma unroll
        for (int &one : flat) one = 0;
      });
}

template <class S> size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return int8_scratch<S>(w, n_tokens, device, sizeof(float)).all();
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  const Int8Scratch scratch = int8_scratch<S>(w, args.n_tokens, args.device, sizeof(float));
  const int n_units = ceil_div(w->n_in, kPadIn), n_tiles_out = ceil_div(w->n_out, kTileOut);
  const Int8X x = {args.workspace, scratch.padded};
  float *x_scales = (float *)(args.workspace + scratch.x);
  int *partial = (int *)(args.workspace + scratch.x + scratch.scales);
  TRY(launch(round_tokens, dim3((unsigned)x.padded), 32 * kRoundWarps, 0, args.stream, args.dependent,
             w->name, err, args.x, args.x_stride, args.n_tokens, w->n_in, n_units, x, x_scales));
  const Args a = {(const uint4 *)w->tiles,
                  (const float *)w->scales,
                  x,
                  x_scales,
                  n_tiles_out,
                  2 * n_units,
                  tile_args<S>(args, n_units, 2, partial)};
  return launch(kernel<S>, dim3((unsigned)a.tiles.work.n_blocks), S::kThreads, S::kStages * S::kStageBytes,
                args.stream, args.dependent, w->name, err, a);
}

template <int kR, int kWarpsM, int kWarpsN, int kN, int kBlocks> constexpr TileShape shape(int max_tokens) {
  typedef Shape<kR, kWarpsM, kWarpsN, kN, kBlocks> S;
  return {max_tokens, {(size_t)S::kStages * S::kStageBytes}, {launch_shape<S>}, {workspace<S>}};
}

constexpr TileShape shapes[] = {
    /* kR, kWarpsM, kWarpsN, kN, kBlocks */
    shape<2, 4, 1, 1, 3>(8),
    shape<2, 4, 1, 4, 3>(64),
    shape<4, 4, 2, 4, 1>(1 << 30),
};

} // namespace

const LinearKernel int8_token_kernel = tile_kernel<shapes>;
