/* awq_plain.cu - quantised weights in groups of any size, any number of tokens, any chip: what dispatch.c
 * chooses if no other entry fits.
 *
 *     y[m][o] = sum_i w[i][o] x[m][i]     each weight dequantised by itself, in fp32
 *
 * A block takes one tile row and up to 8 tokens; each of its 8 warps takes every eighth tile of inputs. The
 * kernel serves groups that are not a multiple of 16, and tests compare the other kernels with it.
 * READS    all weights once for every 8 tokens; the kernel is far slower than memory, because it looks up
 *          each weight's group. */
#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace {

constexpr int kWarps = 8, kTokens = 8;

template <class W>
__global__ void __launch_bounds__(32 * kWarps) kernel(const __grid_constant__ QuantArgs a) {
  __shared__ float sums[kWarps][kTokens][kTileOut];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int tile = blockIdx.x, token0 = blockIdx.y * kTokens;
  float y[kTokens][2] = {};
  begin_overlapping();
  for (int tile_in = warp; tile_in < a.w.n_tiles_in; tile_in += kWarps) {
    const uint4 *at_tile = a.w.tiles + ((size_t)tile * a.w.n_tiles_in + tile_in) * 32 * W::kVectors + lane;
    for (int at = 0; at < 16; at++) {
      int k = tile_in * kTileIn + tile_k(at / 4, t, at % 4);
      if (k >= a.w.n_in) continue;
      float weights[2];
      W::weights(a.w, at_tile, tile, tile_in, at / 4, at % 4, g, weights);
      for (int m = 0; m < kTokens; m++) {
        if (token0 + m >= a.n_tokens) break;
        float x = __half2float(a.x[(size_t)(token0 + m) * a.x_stride + k]);
        y[m][0] += weights[0] * x;
        y[m][1] += weights[1] * x;
      }
    }
  }
  for (int m = 0; m < kTokens; m++)
    for (int r = 0; r < 2; r++) {
      const float v = lanes_sum<1, 2>(y[m][r]);
      if (t == 0) sums[warp][m][g + 8 * r] = v;
    }
  __syncthreads();
  int m = threadIdx.x / 8;
  if (m >= kTokens || token0 + m >= a.n_tokens) return;
  float low = 0, high = 0;
  for (int w = 0; w < kWarps; w++) {
    low += sums[w][m][threadIdx.x % 8];
    high += sums[w][m][threadIdx.x % 8 + 8];
  }
  store_row_pair(a.out, token0 + m, tile, threadIdx.x % 8, low, high);
}

Status launch_awq_plain(const LinearArgs &args, Error *err) {
  const QuantArgs a = quant_args(args);
  dim3 grid((unsigned)a.w.n_tiles_out, (unsigned)ceil_div(args.n_tokens, kTokens));
  return with_weights(args.w->type, [&](auto weights) {
    return launch(kernel<decltype(weights)>, grid, 32 * kWarps, 0, args.stream, args.dependent, args.w->name,
                  err, a);
  });
}

} // namespace

const LinearKernel awq_plain_kernel = {nullptr, launch_awq_plain, false};
