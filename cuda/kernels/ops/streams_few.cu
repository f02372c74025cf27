/* streams_few.cu - see streams_few.h.   Reference: src/cpu/mixers/streams.c.
 *
 * down_kernel: a block has kOut rows of down and inject, and all inputs. A thread has the same vectors of 8
 * inputs of each row, and loads their weights before it waits for the streams. Every block adds the injection
 * to the streams itself. Each vector of the result is stored by one of the blocks. It is not stored in place,
 * because other blocks can still be reading the streams.
 * up_kernel: a warp has a column of h. Eight lanes multiply the row of `up` of one stream. */
#include "cuda/kernels/ops/streams_few.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/early.cuh"
#include "cuda/kernels/ptx/eight.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kVectors = 4, kOut = 3;
constexpr int kMostStreams = 4, kColumns = 8, kRankVectors = 8;

/* Loads 8 weights, if `inside`, else zeros; can run before the previous kernel has ended. */
template <class T> __device__ __forceinline__ void load_weights(Eight<T> &to, const T *from, bool inside) {
  to.v[0] = inside ? load_early((const uint4 *)from) : make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ void load_8(const float *from, float (&to)[8]) {
  const float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

/* v = the thread's numbers of a row's streams, with the injection; stores this block's vectors to
 * next_streams. */
__device__ __forceinline__ void take_streams(const FewMix &c, int row, float (&v)[kVectors][8]) {
  const int all = c.n * c.hidden;
#pragma unroll
  for (int j = 0; j < kVectors; j++) {
    const int vector = threadIdx.x + j * kThreads, at = 8 * vector, stream = at / c.hidden;
    if (at >= all) break;
    load_8(c.streams + (size_t)row * all + at, v[j]);
    if (!c.x) continue;
    float x[8];
    load_8(c.x + (size_t)row * c.hidden + at - stream * c.hidden, x);
    const float factor = c.factors[row * c.n + stream];
#pragma unroll
    for (int i = 0; i < 8; i++) v[j][i] += factor * x[i];
    if (vector % gridDim.x != blockIdx.x) continue;
    float4 *to = (float4 *)(c.next_streams + (size_t)row * all + at);
    to[0] = make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);
    to[1] = make_float4(v[j][4], v[j][5], v[j][6], v[j][7]);
  }
}

/* inverses[n] = 1 / rms of each stream, in every thread; `sums` is shared memory. */
__device__ __forceinline__ void find_inverses(const FewMix &c, const float (&v)[kVectors][8],
                                              float (*sums)[kWarps], float (&inverses)[kMostStreams]) {
  float squares[kMostStreams] = {};
#pragma unroll
  for (int j = 0; j < kVectors; j++) {
    const int at = 8 * (threadIdx.x + j * kThreads), stream = at / c.hidden;
    float own = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) own += v[j][i] * v[j][i];
#pragma unroll
    for (int s = 0; s < kMostStreams; s++)
      if (at < c.n * c.hidden && stream == s) squares[s] += own;
  }
  const float sum = warp_sums(squares); /* of stream lane / 8 */
  if (threadIdx.x % 8 == 0) sums[threadIdx.x % 32 / 8][threadIdx.x / 32] = sum;
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kMostStreams; s++) {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) all += sums[s][w];
    inverses[s] = rsqrtf(all / c.hidden + c.eps);
  }
}

/* Stores an output of a row: either a number of `ranks` (the input of `up`) or a factor. */
__device__ __forceinline__ void store_output(const FewMix &c, int row, int output, float sum) {
  if (output < c.rank)
    c.ranks[(size_t)row * c.rank + output] = silu(sum / c.n);
  else if (output < c.rank + (c.new_factors ? c.n : 0))
    c.new_factors[row * c.n + output - c.rank] = 2 * sigmoid(sum / c.n);
}

template <class T> __global__ void __launch_bounds__(kThreads) down_kernel(FewMix c, int n_rows) {
  __shared__ float squares[kMostStreams][kWarps], sums[kOut][kWarps];
  const int all = c.n * c.hidden, first = blockIdx.x * kOut, lane = threadIdx.x % 32;
  dependents_may_start();
  Eight<T> w[kOut][kVectors];
#pragma unroll
  for (int r = 0; r < kOut; r++) {
    const int output = first + r;
    const bool is_rank = output < c.rank;
    const T *from = is_rank ? (const T *)c.down + (size_t)output * c.down_stride
                            : (const T *)c.inject + (size_t)(output - c.rank) * c.inject_stride;
    const bool there = output < c.rank + (c.new_factors ? c.n : 0);
#pragma unroll
    for (int j = 0; j < kVectors; j++) {
      const int at = 8 * (threadIdx.x + j * kThreads);
      load_weights(w[r][j], from + at, there && at < all);
    }
  }
  wait_for_previous();
  for (int row = 0; row < n_rows; row++) {
    float v[kVectors][8] = {}, inverses[kMostStreams], dots[kOut] = {};
    take_streams(c, row, v);
    find_inverses(c, v, squares, inverses);
#pragma unroll
    for (int j = 0; j < kVectors; j++) {
      const int at = 8 * (threadIdx.x + j * kThreads), stream = at / c.hidden;
      if (at >= all) break;
      float norm[8], inverse = 0;
      load_8(c.norm + at, norm);
#pragma unroll
      for (int s = 0; s < kMostStreams; s++) inverse = stream == s ? inverses[s] : inverse;
#pragma unroll
      for (int r = 0; r < kOut; r++) {
        float weights[8];
        w[r][j].floats(weights);
        float own = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) own += weights[i] * (v[j][i] * norm[i]);
        dots[r] += own * inverse;
      }
    }
#pragma unroll
    for (int r = 0; r < kOut; r++) {
      const float sum = warp_sum(dots[r]);
      if (lane == 0) sums[r][threadIdx.x / 32] = sum;
    }
    __syncthreads(); /* for sums[], which the next row writes after another barrier (find_inverses()) */
    if (threadIdx.x < kOut) {
      float sum = 0;
      for (int i = 0; i < kWarps; i++) sum += sums[threadIdx.x][i];
      store_output(c, row, first + (int)threadIdx.x, sum);
    }
    if (blockIdx.x == 0 && threadIdx.x < (unsigned)c.n) {
      float inverse = 0;
#pragma unroll
      for (int s = 0; s < kMostStreams; s++) inverse = (int)threadIdx.x == s ? inverses[s] : inverse;
      c.inverses[row * c.n + threadIdx.x] = inverse;
    }
  }
}

template <class T> __global__ void __launch_bounds__(32 * kColumns) up_kernel(FewMix c, int n_rows) {
  const int lane = threadIdx.x % 32, stream = lane / 8, part = lane % 8,
            column = blockIdx.x * kColumns + threadIdx.x / 32, at = stream * c.hidden + column;
  const bool there = column < c.hidden && stream < c.n;
  dependents_may_start();
  Eight<T> w[kRankVectors];
#pragma unroll
  for (int j = 0; j < kRankVectors; j++) {
    const int k = 8 * (part + 8 * j);
    load_weights(w[j], (const T *)c.up + (size_t)at * c.up_stride + k, there && k < c.rank);
  }
  const float norm = there ? c.norm[at] : 0;
  wait_for_previous();
  if (column >= c.hidden) return;
  const float *const streams = c.x ? c.next_streams : c.streams;
  for (int row = 0; row < n_rows; row++) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kRankVectors; j++) {
      const int k = 8 * (part + 8 * j);
      if (k >= c.rank) break;
      float ranks[8], weights[8];
      load_8(c.ranks + (size_t)row * c.rank + k, ranks);
      w[j].floats(weights);
#pragma unroll
      for (int i = 0; i < 8; i++) sum += weights[i] * ranks[i];
    }
    sum = lanes_sum<4, 2, 1>(sum);
    const float own = there ? sigmoid(sum) * (streams[(size_t)row * c.n * c.hidden + at] *
                                              c.inverses[row * c.n + stream] * norm)
                            : 0,
                mean = lanes_sum<8, 16>(own) / c.n;
    if (lane > 0) continue;
    ((__half *)c.h)[(size_t)row * c.h_stride + column] = clamp_half(mean);
    if (c.mixed) c.mixed[(size_t)row * c.hidden + column] = mean;
    if (c.zeroed) c.zeroed[(size_t)row * c.hidden + column] = 0;
  }
}

template <class T> Status run(const FewMix &c, int n_rows, cudaStream_t stream, Error *err) {
  const int n_out = c.rank + (c.new_factors ? c.n : 0);
  TRY(launch(down_kernel<T>, ceil_div(n_out, kOut), kThreads, 0, stream, true, "mix of streams", err, c,
             n_rows));
  return launch(up_kernel<T>, ceil_div(c.hidden, kColumns), 32 * kColumns, 0, stream, true, "mix of streams",
                err, c, n_rows);
}

} // namespace

bool ops_streams_few_supports(const FewMix *c, int n_rows) {
  return n_rows <= STREAMS_FEW_ROWS && c->n <= kMostStreams && c->hidden % 8 == 0 && c->rank % 8 == 0 &&
         c->n * c->hidden <= 8 * kVectors * kThreads && c->rank <= 64 * kRankVectors;
}

Status ops_streams_few(const FewMix *c, int n_rows, cudaStream_t stream, Error *err) {
  return c->bf16 ? run<__nv_bfloat16>(*c, n_rows, stream, err) : run<__half>(*c, n_rows, stream, err);
}
