/* experts_plain.cu - experts of any type of weights, groups and number of tokens, on any chip: the entry of
 * expert_entries (linear/dispatch.c) that is never refused.
 *
 *     y[p][o] = sum_i w[expert of p][i][o] x[row of p][i]     weights dequantised one by one, all in fp32
 *
 * A block computes 64 outputs of up to 32 places (LinearExperts) of one expert. Steps of 32 inputs pass
 * through shared memory as fp32. A thread holds the sums of rows g and g + 8 (g = threadIdx.x % 8) of two
 * tile rows for four places.
 *
 *   w  [32 inputs][64 outputs]    x  [32 inputs][32 places], each row one number longer: no bank conflicts
 *
 * READS  the weights once for every 32 places of an expert, x once for every 64 outputs. */
#include <algorithm>

#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ptx/eight.cuh"

namespace {

constexpr int kTileRows = 4, kOut = kTileRows * kTileOut, kPlaces = 32, kIn = 32, kThreads = 128;

struct Args {
  QuantView w;
  const void *dense;
  size_t stride;
  const __half *x;
  int x_stride, n_out_tiles; /* n_out_tiles: an expert's outputs / kOut, rounded up */
  Epilogue out;
  GroupedExperts experts;
};

/* Tiles (quantised) and Rows (dense): a warp reads weights, 16 outputs by 32 inputs, into
 * to[input][output]. */
template <class W> struct Tiles {
  static __device__ __forceinline__ void read(const Args &a, int tile_row, int k0, float (*to)[kOut + 1]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, tile_in = k0 / kTileIn;
    const uint4 *tile = a.w.tiles + ((size_t)tile_row * a.w.n_tiles_in + tile_in) * 32 * W::kVectors + lane;
    for (int at = 0; at < 8; at++) {
      const int j = k0 % kTileIn / 16 + at / 4, i = at % 4, k = tile_k(j, t, i) - k0 % kTileIn;
      float v[2] = {0, 0};
      if (k0 + k < a.w.n_in) W::weights(a.w, tile, tile_row, tile_in, j, i, g, v);
      to[k][g] = v[0];
      to[k][g + 8] = v[1];
    }
  }
};

template <class T> struct Rows {
  static __device__ __forceinline__ void read(const Args &a, int tile_row, int k0, float (*to)[kOut + 1]) {
    const int lane = threadIdx.x % 32;
    for (int i = lane; i < kTileOut * kIn / 8; i += 32) {
      const int row = i / (kIn / 8), k = i % (kIn / 8) * 8;
      Eight<T> eight;
      float v[8];
      eight.load((const T *)a.dense + ((size_t)tile_row * kTileOut + row) * a.stride + k0 + k,
                 k0 + k < (int)a.stride);
      eight.floats(v);
      for (int j = 0; j < 8; j++) to[k + j][row] = v[j]; /* past n_in, x and the stored weights are 0 */
    }
  }
};

template <class Weights> __global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Args a) {
  __shared__ float w[kIn][kOut + 1], x[kIn][kPlaces + 1];
  __shared__ int first_tile[LINEAR_MAX_EXPERTS + 1], rows[kPlaces];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 8, m = threadIdx.x / 8 % 8, pair = threadIdx.x / 64;
  begin_overlapping();
  a.experts.count_tiles(kPlaces, first_tile);
  const int n_tiles = first_tile[a.experts.n_experts] * a.n_out_tiles;
  for (int at = blockIdx.x; at < n_tiles; at += gridDim.x) {
    const ExpertTile tile = a.experts.tile(at / a.n_out_tiles, kPlaces, first_tile);
    const int own_row = at % a.n_out_tiles * kTileRows, n_places = tile.end - tile.place;
    __syncthreads();
    if (threadIdx.x < kPlaces)
      rows[threadIdx.x] = threadIdx.x < n_places ? a.experts.row_of(tile.place + threadIdx.x) : -1;
    float sum[2][4][2] = {}; /* tile row, place, row g or g + 8 */
    for (int k0 = 0; k0 < a.w.n_in; k0 += kIn) {
      __syncthreads();
      if (own_row + warp < a.experts.tile_rows)
        Weights::read(a, tile.tile_row + own_row + warp, k0, (float(*)[kOut + 1])(&w[0][warp * kTileOut]));
      for (int i = threadIdx.x; i < kPlaces * kIn; i += kThreads) {
        const int place = i / kIn, k = i % kIn, row = rows[place];
        x[k][place] =
            row >= 0 && k0 + k < a.w.n_in ? __half2float(a.x[(size_t)row * a.x_stride + k0 + k]) : 0.0f;
      }
      __syncthreads();
#pragma unroll 4
      for (int k = 0; k < kIn; k++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const float *weights = &w[k][(2 * pair + r) * kTileOut + g];
#pragma unroll
          for (int i = 0; i < 4; i++) {
            sum[r][i][0] += weights[0] * x[k][m + 8 * i];
            sum[r][i][1] += weights[8] * x[k][m + 8 * i];
          }
        }
    }
    for (int r = 0; r < 2; r++)
      for (int i = 0; i < 4; i++)
        if (m + 8 * i < n_places && own_row + 2 * pair + r < a.experts.tile_rows)
          store_row_pair(expert_epilogue(a.out, tile.tile_row), tile.place + m + 8 * i,
                         own_row + 2 * pair + r, g, sum[r][i][0], sum[r][i][1]);
  }
}

template <class Weights> Status launch_weights(const LinearArgs &args, const Args &a, Error *err) {
  const int n_places = args.n_tokens * args.w->n_chosen,
            most = a.n_out_tiles * a.experts.most_tiles(n_places, kPlaces);
  return launch(kernel<Weights>, dim3((unsigned)std::min(most, 8 * args.device.n_sms)), kThreads, 0,
                args.stream, args.dependent, args.w->name, err, a);
}

Status launch_plain(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  Args a = {{},
            w->dense,
            w->stride,
            args.x,
            args.x_stride,
            ceil_div(w->n_out / w->n_experts, kOut),
            args.out,
            grouped_experts(args)};
  a.out.n_out = w->n_out / w->n_experts;
  a.w.n_in = w->n_in;
  if (w->type == WEIGHT_F16) return launch_weights<Rows<__half>>(args, a, err);
  if (w->type == WEIGHT_BF16) return launch_weights<Rows<__nv_bfloat16>>(args, a, err);
  if (w->type == WEIGHT_F32) return launch_weights<Rows<float>>(args, a, err);
  a.w = quant_view(*w);
  return with_weights(w->type,
                      [&](auto weights) { return launch_weights<Tiles<decltype(weights)>>(args, a, err); });
}

} // namespace

const LinearKernel experts_plain_kernel = {nullptr, launch_plain, false};
