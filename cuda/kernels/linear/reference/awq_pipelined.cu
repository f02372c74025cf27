/* awq_pipelined.cu - many tokens on CUDA cores: double-buffered tiles in shared memory, 4 x 4 sums a thread.
 *
 * A block computes 64 outputs x 64 tokens in steps of 32 inputs. While it multiplies one buffer it loads the
 * next step's words into registers, dequantises them to fp32 and stores them in the other buffer: one barrier
 * a step. Kept as a reference to compare with: other kernels are faster on every chip.
 *
 *     weights [2][32 k][64 + 4]   x [2][32 k][64 + 4]   fp32, padded against bank conflicts
 *
 *     step s   registers <- s + 1 | multiply buffer s % 2 | buffer (s + 1) % 2 <- registers | __syncthreads()
 *
 * PRECOND  group % 32 == 0; x 16-byte aligned, x_stride % 8 == 0.
 * READS    weights once for every 64 tokens. */
#include "cuda/kernels/linear/kernel.cuh"

namespace {

constexpr int kSide = 64, kStep = 32, kThreads = 256, kPitch = kSide + 4;

/* A thread's part of the next step, in registers: 16 weights (threads 0 .. 127), 8 numbers of x. */
template <class W> struct Staged {
  uint32_t words[W::kVectors * 2]; /* of 4 or 8 bits: rows g and g + 8, two runs of four inputs */
  uint32_t scale, zero;
  uint4 x;
};

/* Threads 0 .. 127 load weights: tile row thread / 32 of the block's four, one lane of half a tile each. All
 * threads load x: token thread / 4, inputs 8 (thread % 4) .. + 7 of the step. */
template <class W>
__device__ __forceinline__ void fetch(const QuantArgs &a, Staged<W> &s, int tile_row0, int token0, int step) {
  int thread = threadIdx.x, lane = thread % 32, tile_row = tile_row0 + thread / 32;
  if (thread < 128) {
    bool inside = tile_row < a.w.n_tiles_out;
    const uint4 *lane_at =
        a.w.tiles +
        ((size_t)min(tile_row, a.w.n_tiles_out - 1) * a.w.n_tiles_in + step / 2) * 32 * W::kVectors;
    if (W::kBits == 4) {
      uint2 v = __ldg((const uint2 *)(lane_at + lane) + step % 2);
      s.words[0] = v.x;
      s.words[1] = v.y;
    } else {
      uint4 v = __ldg(lane_at + step % 2 * 32 + lane);
      s.words[0] = v.x;
      s.words[1] = v.y;
      s.words[W::kVectors * 2 - 2] = v.z;
      s.words[W::kVectors * 2 - 1] = v.w;
    }
    size_t group =
        ((size_t)min(tile_row, a.w.n_tiles_out - 1) * a.w.n_groups + group_of(a.w, step * kStep)) * 8 +
        lane / 4;
    s.scale = inside ? a.w.scales[group] : 0;
    s.zero = ((const typename W::Zero *)a.w.zeros)[group];
  }
  int token = token0 + thread / 4, k = step * kStep + thread % 4 * 8;
  s.x = make_uint4(0, 0, 0, 0);
  if (token < a.n_tokens && k + 8 <= a.w.n_in) {
    s.x = *(const uint4 *)(a.x + (size_t)token * a.x_stride + k);
  } else if (token < a.n_tokens) {
    __half *values = (__half *)&s.x;
    for (int i = 0; i < 8; i++)
      if (k + i < a.w.n_in) values[i] = a.x[(size_t)token * a.x_stride + k + i];
  }
}

template <class W>
__device__ __forceinline__ void put(const Staged<W> &s, float (*weights)[kPitch], float (*x)[kPitch]) {
  int thread = threadIdx.x, lane = thread % 32, g = lane / 4, t = lane % 4, row = thread / 32 * 16 + g;
  if (thread < 128) {
    float low = f16_low(s.scale), high = f16_high(s.scale);
    int z_low = W::zero_low(s.zero), z_high = W::zero_high(s.zero);
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int k = tile_k(j, t, i);
        int q[2];
        W::unpack(s.words, j, i, q);
        weights[k][row] = (float)(q[0] - z_low) * low;
        weights[k][row + 8] = (float)(q[1] - z_high) * high;
      }
  }
  const __half *values = (const __half *)&s.x;
#pragma unroll
  for (int i = 0; i < 8; i++) x[thread % 4 * 8 + i][thread / 4] = __half2float(values[i]);
}

template <class W> __global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ QuantArgs a) {
  __shared__ float weights[2][kStep][kPitch], x[2][kStep][kPitch];
  int tile_row0 = blockIdx.x * (kSide / kTileOut), token0 = blockIdx.y * kSide, n_steps = 2 * a.w.n_tiles_in;
  /* A thread sums rows g and g + 8 of a tile for two g and 4 tokens: the epilogue needs both rows. */
  int row = threadIdx.x / 16 / 4 * 16 + threadIdx.x / 16 % 4 * 2, token = threadIdx.x % 16 * 4;
  float sum[4][4] = {};
  Staged<W> staged;
  begin_overlapping();
  fetch(a, staged, tile_row0, token0, 0);
  put(staged, weights[0], x[0]);
  __syncthreads();
  for (int step = 0; step < n_steps; step++) {
    if (step + 1 < n_steps) fetch(a, staged, tile_row0, token0, step + 1);
    float(*w_now)[kPitch] = weights[step % 2], (*x_now)[kPitch] = x[step % 2];
#pragma unroll 8
    for (int k = 0; k < kStep; k++) {
      float2 low = *(const float2 *)&w_now[k][row], high = *(const float2 *)&w_now[k][row + 8];
      float4 v = *(const float4 *)&x_now[k][token];
      float w4[4] = {low.x, low.y, high.x, high.y}, x4[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int r = 0; r < 4; r++)
#pragma unroll
        for (int m = 0; m < 4; m++) sum[r][m] += w4[r] * x4[m];
    }
    if (step + 1 < n_steps) put(staged, weights[(step + 1) % 2], x[(step + 1) % 2]);
    __syncthreads();
  }
  int tile = tile_row0 + row / 16;
  if (tile >= a.w.n_tiles_out) return;
  for (int m = 0; m < 4; m++) {
    if (token0 + token + m >= a.n_tokens) return;
    for (int r = 0; r < 2; r++)
      store_row_pair(a.out, token0 + token + m, tile, row % 16 + r, sum[r][m], sum[r + 2][m]);
  }
}

Status launch_awq_pipelined(const LinearArgs &args, Error *err) {
  const QuantArgs a = quant_args(args);
  dim3 grid((unsigned)ceil_div(a.w.n_tiles_out, kSide / kTileOut), (unsigned)ceil_div(args.n_tokens, kSide));
  return launch(args.w->type == WEIGHT_AWQ4 ? kernel<Bits4> : kernel<Bits8>, grid, kThreads, 0, args.stream,
                args.dependent, args.w->name, err, a);
}

} // namespace

const LinearKernel awq_pipelined_kernel = {nullptr, launch_awq_pipelined, false};
