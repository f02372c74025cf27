/* scales.cu - the scales that are best for given levels; see rounding.h and src/quantize/refine.c. A
 * block solves for one output, in doubles. */
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>

#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/rounding/rounding.h"

namespace {

constexpr int kWarps = 8, kSolvers = 128;

/* to[o * step + group] = factor * the sum over the group's inputs i of x[o][i] levels[o][i]. A warp makes one
 * sum. */
__global__ void group_dots(RoundingLevels l, const float *x, float factor, float *to, size_t step) {
  const int lane = threadIdx.x % 32, o = blockIdx.x * kWarps + threadIdx.x / 32, group = blockIdx.y;
  if (o >= l.n_out) return;
  const size_t at = (size_t)o * l.n_in + (size_t)group * l.group;
  float sum = 0;
  for (int i = lane; i < l.group; i += 32) sum = fmaf(x[at + i], l.levels[at + i], sum);
  sum = warp_sum(sum);
  if (lane == 0) to[o * step + group] = factor * sum;
}

/* If A + ridge I is positive definite, solves (A + ridge I) d = b. Then adds d to those scales that change by
 * less than a factor of 2 and fit fp16. l[k][i], i >= k, is row i of column k of the Cholesky factor. */
__global__ void __launch_bounds__(kSolvers)
    solve_scales(RoundingLevels levels, int n, const float *a, const float *b, double *factor) {
  const int o = blockIdx.x, me = threadIdx.x;
  a += (size_t)o * n * n, b += (size_t)o * n;
  double *l = factor + (size_t)o * n * (n + 1), *y = l + (size_t)n * n, ridge = 0;
  for (int g = 0; g < n; g++) ridge += 1e-4 * (double)a[(size_t)g * n + g] / n;
  for (int j = 0; j < n; j++) {
    for (int i = j + me; i < n; i += kSolvers) {
      double sum = (double)a[(size_t)i * n + j] + (i == j ? ridge : 0);
      for (int k = 0; k < j; k++) sum -= l[(size_t)k * n + i] * l[(size_t)k * n + j];
      l[(size_t)j * n + i] = sum;
    }
    __syncthreads();
    const double pivot = l[(size_t)j * n + j];
    __syncthreads();
    if (!(pivot > 0)) return;
    const double root = sqrt(pivot);
    for (int i = j + me; i < n; i += kSolvers)
      l[(size_t)j * n + i] = i == j ? root : l[(size_t)j * n + i] / root;
    __syncthreads();
  }
  for (int i = me; i < n; i += kSolvers) y[i] = b[i];
  for (int turn = 0; turn < 2 * n; turn++) { /* down with the factor, up with its transpose */
    const bool down = turn < n;
    const int k = down ? turn : 2 * n - 1 - turn;
    __syncthreads();
    const double own = y[k] / l[(size_t)k * n + k];
    __syncthreads();
    for (int i = (down ? k + 1 : 0) + me; i < (down ? n : k); i += kSolvers)
      y[i] -= (down ? l[(size_t)k * n + i] : l[(size_t)i * n + k]) * own;
    if (me == 0) y[k] = own;
  }
  __syncthreads();
  for (int g = me; g < n; g += kSolvers) {
    float *scale = levels.scales + (size_t)g * levels.row + o;
    const double now = (double)*scale + y[g];
    if (now > 0.5 * (double)*scale && now < 2 * (double)*scale && now < 65504 && now >= 0x1p-24)
      *scale = __half2float(__float2half_rn((float)now));
  }
}

} // namespace

Status rounding_fold(const RoundingLevels *l, int g, const float *products, float *a, cudaStream_t stream,
                     Error *err) {
  const int n = l->n_in / l->group;
  return launch(group_dots, dim3(ceil_div(l->n_out, kWarps), g + 1), 32 * kWarps, 0, stream, false,
                "scales of groups", err, *l, products, 1.0f, a + (size_t)g * n, (size_t)n * n);
}

Status rounding_right_sides(const RoundingLevels *l, const float *slopes, float *b, cudaStream_t stream,
                            Error *err) {
  const int n = l->n_in / l->group;
  return launch(group_dots, dim3(ceil_div(l->n_out, kWarps), n), 32 * kWarps, 0, stream, false,
                "scales of groups", err, *l, slopes, -1.0f, b, (size_t)n);
}

Status rounding_solve(const RoundingLevels *l, const float *a, const float *b, double *factor,
                      cudaStream_t stream, Error *err) {
  return launch(solve_scales, l->n_out, kSolvers, 0, stream, false, "scales of groups", err, *l,
                l->n_in / l->group, a, b, factor);
}
