/* altup.cu - see altup.h.   Reference: src/cpu/mixers/altup.c.
 *
 * A block takes a row. A kernel here is bound by memory or, with one token, by its launch. Sums are made by a
 * block in a fixed order, so that a row's bits do not depend on the step's other rows. */
#include "cuda/kernels/ops/altup.h"

#include <cuda_fp16.h>

#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;
constexpr float kLeast = 1e-5f; /* lower bound of a mean square in a divisor */

/* block_sum() that can follow another block_sum() at once: first waits until the shared memory is free. */
__device__ __forceinline__ float next_sum(float value) {
  __syncthreads();
  return block_sum<kThreads>(value);
}

__device__ __forceinline__ float mean_square(const float *x, int n) {
  float squares = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) squares += x[i] * x[i];
  return next_sum(squares) / n;
}

__global__ void __launch_bounds__(kThreads) begin_kernel(AltupStreams a, const float *x, float divisor) {
  begin_overlapping();
  const float *first = x + (size_t)blockIdx.x * a.hidden;
  float *streams = a.streams + (size_t)blockIdx.x * a.n * a.hidden;
  const float size = sqrtf(mean_square(first, a.hidden));
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) streams[i] = first[i];
  for (int s = 1; s < a.n; s++) {
    float *to = streams + s * a.hidden;
    const float own = mean_square(to, a.hidden) * divisor * divisor,
                factor = size * divisor * rsqrtf(fmaxf(own, kLeast));
    for (int i = threadIdx.x; i < a.hidden; i += kThreads) to[i] *= factor;
  }
}

/* c[0 .. n_out) = router.coefficients times m (AltupRouter). c and m are in shared memory, m [n]. */
__device__ void make_coefficients(const AltupStreams &a, const AltupRouter &router, const float *x, int n_out,
                                  float *m, float *c) {
  const float inverse = rsqrtf(mean_square(x, a.hidden) + a.eps);
  for (int s = 0; s < a.n; s++) {
    const float *row = router.router + (size_t)s * a.hidden;
    float sum = 0;
    for (int i = threadIdx.x; i < a.hidden; i += kThreads) sum += x[i] * router.norm[i] * row[i];
    sum = next_sum(sum);
    if (threadIdx.x == 0) m[s] = tanhf(sum * inverse / a.hidden);
  }
  __syncthreads();
  for (int o = threadIdx.x; o < n_out; o += kThreads) {
    float sum = 0;
    for (int s = 0; s < a.n; s++) sum += router.coefficients[o * a.n + s] * m[s];
    c[o] = sum;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) predict_kernel(AltupStreams a, AltupRouter router, float *x) {
  __shared__ float m[MAX_STREAMS], c[MAX_STREAMS * MAX_STREAMS];
  begin_overlapping();
  float *streams = a.streams + (size_t)blockIdx.x * a.n * a.hidden;
  make_coefficients(a, router, streams, a.n * a.n, m, c);
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) {
    float before[MAX_STREAMS];
    for (int s = 0; s < a.n; s++) before[s] = streams[s * a.hidden + i];
    for (int to = 0; to < a.n; to++) {
      float sum = before[to];
      for (int s = 0; s < a.n; s++) sum += c[to * a.n + s] * before[s];
      streams[to * a.hidden + i] = sum;
      if (to == 0) x[(size_t)blockIdx.x * a.hidden + i] = sum;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    correct_kernel(AltupStreams a, AltupRouter router, const float *scale, float *x) {
  __shared__ float m[MAX_STREAMS], c[MAX_STREAMS];
  begin_overlapping();
  float *streams = a.streams + (size_t)blockIdx.x * a.n * a.hidden, *own = x + (size_t)blockIdx.x * a.hidden;
  make_coefficients(a, router, own, a.n, m, c);
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) {
    const float change = own[i] - streams[i];
    for (int s = 0; s < a.n; s++) streams[s * a.hidden + i] += (1 + c[s]) * change;
    own[i] = streams[i] * scale[i];
  }
}

__global__ void __launch_bounds__(kThreads) add_kernel(AltupStreams a, const float *y, const float *norm) {
  begin_overlapping();
  const float *from = y + (size_t)blockIdx.x * a.hidden;
  float *streams = a.streams + (size_t)blockIdx.x * a.n * a.hidden;
  const float inverse = rsqrtf(mean_square(from, a.hidden) + a.eps);
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) {
    const float v = from[i] * inverse * norm[i];
    for (int s = 1; s < a.n; s++) streams[s * a.hidden + i] += v;
  }
}

__global__ void __launch_bounds__(kThreads) laurel_kernel(Laurel a) {
  begin_overlapping();
  const float *l = a.l + (size_t)blockIdx.x * a.hidden;
  float *x = a.x + (size_t)blockIdx.x * a.hidden;
  const float of_x = rsqrtf(mean_square(x, a.hidden) + a.eps),
              of_l = rsqrtf(mean_square(l, a.hidden) + a.eps);
  for (int i = threadIdx.x; i < a.hidden; i += kThreads)
    x[i] = (x[i] + x[i] * of_x * a.attn_norm[i] + l[i] * of_l * a.laurel_norm[i]) * sqrtf(0.5f);
}

__device__ __forceinline__ const float *streams_of(const AltupStreams &a, const AltupRows &rows) {
  const size_t row = rows.rows ? (size_t)rows.rows[blockIdx.x] : (size_t)rows.first_row + blockIdx.x;
  return a.streams + row * a.n * a.hidden;
}

/* The mean square of a stream as a divisor: at least 1e-30. */
__device__ __forceinline__ float square_of(const float *stream, int hidden) {
  return fmaxf(mean_square(stream, hidden), 1e-30f);
}

__global__ void __launch_bounds__(kThreads)
    unit_kernel(AltupStreams a, AltupRows rows, int index, __half *out, int out_stride) {
  begin_overlapping();
  const float *from = streams_of(a, rows) + index * a.hidden, inverse = rsqrtf(square_of(from, a.hidden));
  for (int i = threadIdx.x; i < a.hidden; i += kThreads)
    out[(size_t)blockIdx.x * out_stride + i] = clamp_half(from[i] * inverse);
}

__global__ void __launch_bounds__(kThreads) join_kernel(AltupStreams a, AltupRows rows, float *projected,
                                                        const float *norm, __half *out, int out_stride) {
  begin_overlapping();
  const float *streams = streams_of(a, rows);
  float *own = projected + (size_t)blockIdx.x * a.n * a.hidden;
  const float size = sqrtf(mean_square(streams, a.hidden));
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) own[i] = streams[i];
  for (int s = 1; s < a.n; s++) { /* own[i] is read by the thread that wrote it */
    const float *part = own + s * a.hidden, square = square_of(streams + s * a.hidden, a.hidden);
    const float factor = size * sqrtf(square) * rsqrtf(fmaxf(mean_square(part, a.hidden) * square, kLeast));
    for (int i = threadIdx.x; i < a.hidden; i += kThreads) own[i] += factor * part[i];
  }
  float squares = 0;
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) own[i] /= a.n, squares += own[i] * own[i];
  const float inverse = rsqrtf(next_sum(squares) / a.hidden + a.eps);
  for (int i = threadIdx.x; i < a.hidden; i += kThreads)
    out[(size_t)blockIdx.x * out_stride + i] = clamp_half(own[i] * inverse * norm[i]);
}

__global__ void __launch_bounds__(kThreads) cut_kernel(float *gates, size_t stride, int n, float deviations) {
  begin_overlapping();
  float *own = gates + blockIdx.x * stride, sum = 0, squares = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) sum += own[i];
  const float mean = next_sum(sum) / n;
  for (int i = threadIdx.x; i < n; i += kThreads) squares += (own[i] - mean) * (own[i] - mean);
  const float cut = mean + deviations * sqrtf(next_sum(squares) / n);
  for (int i = threadIdx.x; i < n; i += kThreads)
    own[i] = own[i] <= cut ? 0 : own[i] - cut; /* NaN stays NaN */
}

} // namespace

Status ops_altup_begin(const AltupStreams *call, const float *x, float divisor, int n_rows,
                       cudaStream_t stream, Error *err) {
  return launch(begin_kernel, n_rows, kThreads, 0, stream, true, "streams", err, *call, x, divisor);
}

Status ops_altup_predict(const AltupStreams *call, const AltupRouter *router, float *x, int n_rows,
                         cudaStream_t stream, Error *err) {
  return launch(predict_kernel, n_rows, kThreads, 0, stream, true, "prediction of streams", err, *call,
                *router, x);
}

Status ops_altup_correct(const AltupStreams *call, const AltupRouter *router, const float *scale, float *x,
                         int n_rows, cudaStream_t stream, Error *err) {
  return launch(correct_kernel, n_rows, kThreads, 0, stream, true, "correction of streams", err, *call,
                *router, scale, x);
}

Status ops_altup_add(const AltupStreams *call, const float *y, const float *norm, int n_rows,
                     cudaStream_t stream, Error *err) {
  return launch(add_kernel, n_rows, kThreads, 0, stream, true, "inputs of layers", err, *call, y, norm);
}

Status ops_add_laurel(const Laurel *call, int n_rows, cudaStream_t stream, Error *err) {
  return launch(laurel_kernel, n_rows, kThreads, 0, stream, true, "LAuReL", err, *call);
}

Status ops_altup_unit(const AltupStreams *call, AltupRows rows, int index, int n_rows, void *out,
                      int out_stride, cudaStream_t stream, Error *err) {
  return launch(unit_kernel, n_rows, kThreads, 0, stream, true, "streams", err, *call, rows, index,
                (__half *)out, out_stride);
}

Status ops_altup_join(const AltupStreams *call, AltupRows rows, float *projected, const float *norm,
                      int n_rows, void *out, int out_stride, cudaStream_t stream, Error *err) {
  return launch(join_kernel, n_rows, kThreads, 0, stream, true, "mean of streams", err, *call, rows,
                projected, norm, (__half *)out, out_stride);
}

Status ops_cut_gates(float *gates, size_t stride, int n, float deviations, int n_rows, cudaStream_t stream,
                     Error *err) {
  return launch(cut_kernel, n_rows, kThreads, 0, stream, true, "sparse gates", err, gates, stride, n,
                deviations);
}
