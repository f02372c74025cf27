/* factor.cu - the steps of a Cholesky factorisation, and of the inversion of its factor, that are not
 * products of large matrices; see rounding.h and src/quantize/factor.c. Sums within a block of columns are
 * doubles, in the CPU's order. */
#include <math.h>
#include <stdint.h>

#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/rounding/rounding.h"

namespace {

constexpr int kBlock = ROUNDING_BLOCK;

__global__ void reverse(int n, const float *h, double more, int size, float *c) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j >= size) return;
  float value = i == j ? 1.0f : 0.0f;
  if (i < n && j < n) value = h[(size_t)(n - 1 - i) * n + n - 1 - j] + (i == j ? (float)more : 0.0f);
  c[(size_t)i * size + j] = value;
}

/* A thread has a row of the block. */
__global__ void __launch_bounds__(kBlock) factor_block(int size, int k, float *c, int *indefinite) {
  __shared__ float block[kBlock][kBlock + 1];
  const int me = threadIdx.x;
  float *own = c + (size_t)k * size + k;
  for (int r = 0; r < kBlock; r++) block[r][me] = own[(size_t)r * size + me];
  __syncthreads();
  for (int j = 0; j < kBlock; j++) {
    double sum = block[me][j];
    for (int m = 0; m < j; m++) sum -= (double)block[me][m] * (double)block[j][m];
    if (me == j) {
      if (!(sum > 0)) *indefinite = 1;
      block[j][j] = (float)sqrt(sum > 0 ? sum : 1.0);
    }
    __syncthreads();
    if (me > j) block[me][j] = (float)(sum / (double)block[j][j]);
    __syncthreads();
  }
  for (int r = 0; r < kBlock; r++) own[(size_t)r * size + me] = block[r][me];
}

/* A thread solves for one row; the block's threads load and store all rows together. */
__global__ void __launch_bounds__(kBlock)
    solve_rows(int size, int k, const float *c, int first, int end, bool identity, float *m, float *negated) {
  __shared__ float block[kBlock][kBlock + 1], rows[kBlock][kBlock + 1];
  const int me = threadIdx.x, begin = first + blockIdx.x * kBlock;
  for (int r = 0; r < kBlock; r++) {
    const int row = begin + r;
    block[r][me] = c[(size_t)(k + r) * size + k + me];
    float value = row < end ? m[(size_t)row * size + k + me] : 0;
    if (identity) value = row < k ? -value : row - k == me;
    rows[r][me] = value;
  }
  __syncthreads();
  for (int j = 0; j < kBlock; j++) {
    double sum = rows[me][j];
    for (int i = 0; i < j; i++) sum -= (double)rows[me][i] * (double)block[j][i];
    rows[me][j] = (float)(sum / (double)block[j][j]);
  }
  __syncthreads();
  for (int r = 0; r < kBlock && begin + r < end; r++) {
    m[(size_t)(begin + r) * size + k + me] = rows[r][me];
    if (negated) negated[(size_t)(begin + r - first) * kBlock + me] = -rows[r][me];
  }
}

__global__ void take_lower(int n, int size, const float *t, float *lower) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
  if (i < n) lower[(size_t)j * n + i] = i > j ? 0.0f : t[(size_t)(n - 1 - j) * size + n - 1 - i];
}

} // namespace

Status rounding_reverse(int n, const float *h, double more, int size, float *c, cudaStream_t stream,
                        Error *err) {
  return launch(reverse, dim3(ceil_div(size, 256), size), 256, 0, stream, false, "a factor of inputs", err, n,
                h, more, size, c);
}

Status rounding_factor_block(int size, int k, float *c, int *indefinite, cudaStream_t stream, Error *err) {
  return launch(factor_block, 1, kBlock, 0, stream, false, "a factor of inputs", err, size, k, c, indefinite);
}

Status rounding_solve_rows(int size, int k, const float *c, int first, int end, bool identity, float *m,
                           float *negated, cudaStream_t stream, Error *err) {
  return launch(solve_rows, ceil_div(end - first, kBlock), kBlock, 0, stream, false, "a factor of inputs",
                err, size, k, c, first, end, identity, m, negated);
}

Status rounding_lower(int n, int size, const float *t, float *lower, cudaStream_t stream, Error *err) {
  return launch(take_lower, dim3(ceil_div(n, 256), n), 256, 0, stream, false, "a factor of inputs", err, n,
                size, t, lower);
}
