/* squares.cu - square matrices of second moments; see rounding.h. */
#include <stdint.h>

#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/rounding/rounding.h"

namespace {

constexpr int kTile = 32, kTileRows = 8, kWarps = 8;

/* A block transposes a tile of 32 by 32. `symmetric`: from == to, and tiles above the diagonal are not
 * read. */
__global__ void transpose(const float *from, size_t stride, int n_rows, int n_columns, float *to,
                          size_t to_stride, bool symmetric) {
  __shared__ float tile[kTile][kTile + 1];
  const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
  if (symmetric && first_column > first_row) return;
  for (int r = threadIdx.y; r < kTile; r += kTileRows) {
    const int row = first_row + r, column = first_column + threadIdx.x;
    if (row < n_rows && column < n_columns) tile[r][threadIdx.x] = from[row * stride + column];
  }
  __syncthreads();
  for (int r = threadIdx.y; r < kTile; r += kTileRows) {
    const int row = first_column + r, column = first_row + threadIdx.x;
    if (row < n_columns && column < n_rows && !(symmetric && column <= row))
      to[row * to_stride + column] = tile[threadIdx.x][r];
  }
}

__global__ void multiply(size_t n, float factor, float *numbers) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) numbers[i] *= factor;
}

__global__ void dampen(int n, float more, float *square) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < (size_t)n) square[i * n + i] += more;
}

__global__ void rescale(int n, const float *scales, float *square, float *lower) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j >= n) return;
  square[(size_t)i * n + j] /= scales[i] * scales[j];
  if (lower) lower[(size_t)i * n + j] *= scales[i];
}

__global__ void take_shares(int n, float share, const float *from, const float *scales, float *to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const size_t at = (size_t)blockIdx.y * n + i;
  if (i < n) to[at] = share * (from[at] / (scales ? scales[i] : 1.0f));
}

__global__ void take_diagonal(int n, const float *square, float *to) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < (size_t)n) to[i] = square[i * n + i];
}

__global__ void take_blocks(int n, int group, const float *lower, float *u) {
  const size_t j = threadIdx.x, i = blockIdx.x, at = (size_t)blockIdx.y * group;
  u[(at + i) * group + j] = lower[(at + j) * n + at + i];
}

__global__ void dots(int n_rows, int n, const float *a, const float *b, double *sums) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= n_rows) return;
  double sum = 0;
  for (int i = lane; i < n; i += 32) sum += (double)(a[(size_t)row * n + i] * b[(size_t)row * n + i]);
  sum = warp_sum(sum);
  if (lane == 0) sums[row] = sum;
}

} // namespace

Status rounding_transpose(const float *from, size_t stride, int n_rows, int n_columns, float *to,
                          size_t to_stride, cudaStream_t stream, Error *err) {
  return launch(transpose, dim3(ceil_div(n_columns, kTile), ceil_div(n_rows, kTile)), dim3(kTile, kTileRows),
                0, stream, false, "a transpose", err, from, stride, n_rows, n_columns, to, to_stride, false);
}

Status rounding_multiply(size_t n, float factor, float *numbers, cudaStream_t stream, Error *err) {
  return launch(multiply, (unsigned)((n + 255) / 256), 256, 0, stream, false, "moments", err, n, factor,
                numbers);
}

Status rounding_mirror(int n, float *square, cudaStream_t stream, Error *err) {
  const float *from = square;
  return launch(transpose, dim3(ceil_div(n, kTile), ceil_div(n, kTile)), dim3(kTile, kTileRows), 0, stream,
                false, "moments", err, from, (size_t)n, n, n, square, (size_t)n, true);
}

Status rounding_dampen(int n, float more, float *square, cudaStream_t stream, Error *err) {
  return launch(dampen, ceil_div(n, 256), 256, 0, stream, false, "moments", err, n, more, square);
}

Status rounding_rescale(int n, const float *scales, float *square, float *lower, cudaStream_t stream,
                        Error *err) {
  return launch(rescale, dim3(ceil_div(n, 256), n), 256, 0, stream, false, "moments", err, n, scales, square,
                lower);
}

Status rounding_shares(int n_rows, int n, float share, const float *from, const float *scales, float *to,
                       cudaStream_t stream, Error *err) {
  return launch(take_shares, dim3(ceil_div(n, 256), n_rows), 256, 0, stream, false, "targets", err, n, share,
                from, scales, to);
}

Status rounding_diagonal(int n, const float *square, float *to, cudaStream_t stream, Error *err) {
  return launch(take_diagonal, ceil_div(n, 256), 256, 0, stream, false, "moments", err, n, square, to);
}

Status rounding_blocks(int n, int group, const float *lower, float *u, cudaStream_t stream, Error *err) {
  return launch(take_blocks, dim3(group, n / group), group, 0, stream, false, "a factor of inputs", err, n,
                group, lower, u);
}

Status rounding_dots(int n_rows, int n, const float *a, const float *b, double *sums, cudaStream_t stream,
                     Error *err) {
  return launch(dots, ceil_div(n_rows, kWarps), 32 * kWarps, 0, stream, false, "a loss", err, n_rows, n, a, b,
                sums);
}
