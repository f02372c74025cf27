/* awq_dequant.cu - the stand-alone dequantisation operator; cublas_matmul.cu multiplies its results.
 *
 *     out[o][i] = (q[i][o] - z[g(i)][o]) s[g(i)][o]      fp16, rounded once
 *
 * FP8 and FP4 have no z, and the factor of each output (layout.cuh) is not applied.
 * Two forms give the same bits: packed (lop3 and half2 instructions), and plain (shifts, fp32) for groups
 * that are not a multiple of 16 and as a reference.
 * READS + WRITES  bits / 8 + 2 bytes a weight. */
#include "cuda/kernels/linear/kernel.cuh"

namespace {

constexpr int kWarps = 8, kPitch = kTileIn + 8; /* 144 bytes: a warp's stores hit 32 banks */
constexpr int kSmall = 1 << 16;                 /* rows times tiles of a row: 4 Mi weights */

/* Dequantises the lane's vectors of one tile into rows[16][kPitch]. */
template <class W>
__device__ __forceinline__ void tile_packed(const QuantView &w, const uint4 (&v)[W::kVectors], int tile_row,
                                            int tile_in, int lane, __half (*rows)[kPitch]) {
  int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint32_t q[4];
    W::template operand<true>(v, j, W::meta(w, tile_row, tile_in * kTileIn + 16 * j, g), q);
#pragma unroll
    for (int i = 0; i < 4; i++) *(uint32_t *)&rows[g + i % 2 * 8][16 * j + 2 * t + i / 2 * 8] = q[i];
  }
}

template <class W>
__device__ __forceinline__ void tile_plain(const QuantView &w, int tile_row, int tile_in, int lane,
                                           __half (*rows)[kPitch]) {
  int g = lane / 4, t = lane % 4;
  const uint4 *at_tile = w.tiles + ((size_t)tile_row * w.n_tiles_in + tile_in) * W::kVectors * 32 + lane;
  for (int at = 0; at < 16; at++) {
    int j = at / 4, i = at % 4, k = tile_k(j, t, i);
    float weights[2];
    W::weights(w, at_tile, tile_row, tile_in, j, i, g, weights);
    rows[g][k] = __float2half_rn(weights[0]);
    rows[g + 8][k] = __float2half_rn(weights[1]);
  }
}

/* Stores the rows of one tile, 128 bytes each. */
__device__ __forceinline__ void store_rows(const QuantView &w, int n_rows, int tile_in, int lane,
                                           const __half (*rows)[kPitch], __half *out) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int r = lane / 8 + 4 * i, row = blockIdx.x * kTileOut + r, k = tile_in * kTileIn + lane % 8 * 8;
    if (row >= n_rows || k >= w.n_in) continue;
    __half *to = out + (size_t)row * w.n_in + k;
    if (w.n_in % 8 == 0)
      *(uint4 *)to = *(const uint4 *)&rows[r][lane % 8 * 8];
    else
      for (int j = 0; j < 8 && k + j < w.n_in; j++) to[j] = rows[r][lane % 8 * 8 + j];
  }
}

/* A warp takes kTiles tiles of one tile row, all loads in flight at once, and transposes each in shared
 * memory. */
template <class W, bool kPlain, int kTiles>
__global__ void __launch_bounds__(32 * kWarps)
    dequantise(const __grid_constant__ QuantView w, int first_tile, int n_rows, __half *out) {
  __shared__ __align__(16) __half buffer[kWarps][kTileOut][kPitch];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tile_row = first_tile + blockIdx.x;
  int tile_in0 = (blockIdx.y * kWarps + warp) * kTiles;
  __half(*rows)[kPitch] = buffer[warp];
  uint4 v[kTiles][W::kVectors];
#pragma unroll
  for (int i = 0; i < kTiles; i++)
#pragma unroll
    for (int j = 0; j < W::kVectors; j++)
      if (!kPlain && tile_in0 + i < w.n_tiles_in)
        v[i][j] = load_once(w.tiles +
                            (((size_t)tile_row * w.n_tiles_in + tile_in0 + i) * W::kVectors + j) * 32 + lane);
#pragma unroll
  for (int i = 0; i < kTiles; i++) {
    if (tile_in0 + i >= w.n_tiles_in) break;
    if (kPlain)
      tile_plain<W>(w, tile_row, tile_in0 + i, lane, rows);
    else
      tile_packed<W>(w, v[i], tile_row, tile_in0 + i, lane, rows);
    __syncwarp();
    store_rows(w, n_rows, tile_in0 + i, lane, rows, out);
    __syncwarp();
  }
}

template <class W>
Status launch_dequantise(const DeviceLinear *w, int first_row, int n_rows, bool plain, void *out,
                         cudaStream_t stream, Error *err) {
  QuantView view = quant_view(*w);
  const auto run = [&](auto kernel, int tiles) {
    const dim3 grid((unsigned)ceil_div(n_rows, kTileOut),
                    (unsigned)ceil_div(view.n_tiles_in, tiles * kWarps));
    return launch(kernel, grid, 32 * kWarps, 0, stream, false, w->name, err, view, first_row / kTileOut,
                  n_rows, (__half *)out);
  };
  if (plain) return run(dequantise<W, true, 4>, 4);
  /* A small matrix is divided among many short warps, so that most SMs have work. */
  return (int64_t)n_rows * view.n_tiles_in < kSmall ? run(dequantise<W, false, 1>, 1)
                                                    : run(dequantise<W, false, 4>, 4);
}

} // namespace

Status linear_dequantise(const DeviceLinear *w, int first_row, int n_rows, bool plain, void *out,
                         cudaStream_t stream, Error *err) {
  if (!weight_is_quantised(w->type))
    return error_set(err, STATUS_MODEL, "%s: %s weights are not quantised", w->name,
                     weight_type_name(w->type));
  if (first_row < 0 || first_row % kTileOut || n_rows <= 0 || first_row + n_rows > w->n_out)
    return error_set(err, STATUS_FAILED, "%s: rows %d to %d of %d", w->name, first_row, first_row + n_rows,
                     w->n_out);
  bool one_by_one = plain || w->group % 16 != 0; /* the packed form needs one group for 16 inputs */
  return with_weights(w->type, [&](auto weights) {
    return launch_dequantise<decltype(weights)>(w, first_row, n_rows, one_by_one, out, stream, err);
  });
}
