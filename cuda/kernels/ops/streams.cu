/* streams.cu - see streams.h.   Reference: src/cpu/mixers/streams.c.
 *
 * A kernel here is bound by memory or, with one token, by its launch. Sums over a stream are made by a block
 * in a fixed order, so that a row's bits do not depend on the step's other rows. */
#include "cuda/kernels/ops/streams.h"

#include <cuda_fp16.h>

#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256;

/* The block's row of the streams. */
__device__ __forceinline__ const float *streams_of(const StreamRows &a) {
  const size_t row = a.rows ? (size_t)a.rows[blockIdx.x] : (size_t)a.first_row + blockIdx.x;
  return a.streams + row * a.n * a.hidden;
}

__global__ void __launch_bounds__(kThreads) begin_kernel(const float *x, int n, int hidden, float *streams) {
  begin_overlapping();
  const float *from = x + (size_t)blockIdx.x * hidden;
  float *to = streams + (size_t)blockIdx.x * n * hidden;
  for (int i = threadIdx.x; i < hidden; i += kThreads) {
    const float v = from[i];
    for (int s = 0; s < n; s++) to[s * hidden + i] = v;
  }
}

/* A block takes a stream of a row. */
__global__ void __launch_bounds__(kThreads) norm_kernel(StreamRows a, __half *u, int u_stride) {
  begin_overlapping();
  const int first = blockIdx.y * a.hidden;
  const float *from = streams_of(a) + first, *norm = a.norm + first;
  __half *to = u + (size_t)blockIdx.x * u_stride + first;
  float squares = 0;
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) squares += from[i] * from[i];
  const float inverse = rsqrtf(block_sum<kThreads>(squares) / a.hidden + a.eps);
  if (threadIdx.x == 0) a.inverses[blockIdx.x * a.n + blockIdx.y] = inverse;
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) to[i] = clamp_half(from[i] * inverse * norm[i]);
}

__global__ void __launch_bounds__(kThreads)
    ranks_kernel(const float *sums, int n, int rank, __half *ranks, int ranks_stride, float *factors) {
  begin_overlapping();
  const float *from = sums + (size_t)blockIdx.x * (factors ? rank + n : rank);
  for (int i = threadIdx.x; i < rank; i += kThreads)
    ranks[(size_t)blockIdx.x * ranks_stride + i] = clamp_half(silu(from[i] / n));
  if (factors && (int)threadIdx.x < n)
    factors[blockIdx.x * n + threadIdx.x] = 2 * sigmoid(from[rank + threadIdx.x] / n);
}

__global__ void __launch_bounds__(kThreads)
    mix_kernel(StreamRows a, const float *weights, __half *h, int h_stride, float *mixed, float *x) {
  begin_overlapping();
  const int i = blockIdx.y * kThreads + threadIdx.x;
  if (i >= a.hidden) return;
  const float *from = streams_of(a), *own = weights + (size_t)blockIdx.x * a.n * a.hidden,
              *inverses = a.inverses + blockIdx.x * a.n;
  float sum = 0;
  for (int s = 0; s < a.n; s++) {
    const int at = s * a.hidden + i;
    sum += sigmoid(own[at]) * (from[at] * inverses[s] * a.norm[at]);
  }
  const float mean = sum / a.n;
  h[(size_t)blockIdx.x * h_stride + i] = clamp_half(mean);
  if (mixed) mixed[(size_t)blockIdx.x * a.hidden + i] = mean;
  if (x) x[(size_t)blockIdx.x * a.hidden + i] = 0;
}

__global__ void __launch_bounds__(kThreads)
    inject_kernel(const float *x, const float *factors, int n, int hidden, float *streams) {
  begin_overlapping();
  const int i = blockIdx.y * kThreads + threadIdx.x;
  if (i >= hidden) return;
  const float v = x[(size_t)blockIdx.x * hidden + i];
  float *to = streams + (size_t)blockIdx.x * n * hidden + i;
  for (int s = 0; s < n; s++) to[s * hidden] += factors[blockIdx.x * n + s] * v;
}

/* --- n-grams */

/* Moves the call's pointers to a segment. */
__device__ __forceinline__ void take(Ngrams &a, const Segment &own) {
  const size_t row = (size_t)own.row, numbers = row * a.n * a.hidden;
  a.ids += row, a.pos += row, a.state += own.sequence * a.segments.state_step;
  a.gated += numbers, a.input += numbers, a.streams += numbers;
}

/* Calls take() for the segment of `row`, and sets *n_rows to the segment's number of rows. Returns the row's
 * index in the segment, or -1 for padding. Without segments it returns `row`. */
__device__ __forceinline__ int take_row(Ngrams &a, int row, int *n_rows) {
  if (!a.segments.device) return row;
  const Segment own = a.segments.device[a.segments.of_row[row]];
  if (own.row < 0) return -1;
  take(a, own);
  *n_rows = own.n_tokens;
  return row - own.row;
}

/* The tokens that a state keeps. */
__device__ __forceinline__ int *kept_tokens(const Ngrams &a) {
  return (int *)(a.state + (size_t)(a.taps - 1) * a.longest * a.n * a.hidden);
}

/* A thread has a row. */
__global__ void __launch_bounds__(kThreads) tokens_kernel(Ngrams a, int n_rows, int32_t *tokens) {
  begin_overlapping();
  const int index = blockIdx.x * kThreads + threadIdx.x, longest = a.longest;
  if (index >= n_rows) return;
  int32_t *to = tokens + (size_t)index * longest;
  const int row = take_row(a, index, &n_rows);
  if (row < 0) return;
  const int pos = a.pos[0]; /* of the first row */
  for (int back = 0; back < longest; back++) {
    const int at = pos + row - back;
    to[back] = back <= row ? a.ids[row - back] : at < 0 ? a.empty : kept_tokens(a)[at % (longest - 1)];
  }
}

/* The convolution's input of a row. A negative row is from before the call: its input is in the state, or 0
 * before position 0. */
__device__ __forceinline__ float input_of(const Ngrams &a, int pos, int row, int column) {
  const int width = a.n * a.hidden, n_tail = (a.taps - 1) * a.longest;
  if (row >= 0) return a.input[(size_t)row * width + column];
  return pos + row < 0 ? 0 : a.state[(size_t)((pos + row) % n_tail) * width + column];
}

/* Keeps a column's inputs of the last rows; the first column's thread also keeps the last tokens. */
__device__ __forceinline__ void keep(const Ngrams &a, int pos, int n_rows, int column) {
  const int width = a.n * a.hidden, n_tail = (a.taps - 1) * a.longest, n_kept = a.longest - 1;
  for (int row = max(0, n_rows - n_tail); row < n_rows; row++)
    a.state[(size_t)((pos + row) % n_tail) * width + column] = a.input[(size_t)row * width + column];
  for (int row = max(0, n_rows - n_kept); column == 0 && row < n_rows; row++)
    kept_tokens(a)[(pos + row) % n_kept] = a.ids[row];
}

/* A thread takes a column of a row. If the sequence has only this row, the thread also keeps the row's input,
 * after it has read the inputs that were kept before. */
__global__ void __launch_bounds__(kThreads) add_kernel(Ngrams a) {
  begin_overlapping();
  const int column = blockIdx.x * kThreads + threadIdx.x, width = a.n * a.hidden;
  int n_rows = gridDim.y;
  const int row = column < width ? take_row(a, blockIdx.y, &n_rows) : -1;
  if (row < 0) return;
  const int pos = a.pos[0];
  float sum = 0;
  for (int t = 0; t < a.taps; t++)
    sum += a.conv[(size_t)column * a.taps + t] * input_of(a, pos, row - (a.taps - 1 - t) * a.longest, column);
  a.streams[(size_t)row * width + column] += a.gated[(size_t)row * width + column] + silu(sum);
  if (n_rows == 1) keep(a, pos, 1, column);
}

__global__ void __launch_bounds__(kThreads) keep_kernel(Ngrams a, int n_rows) {
  begin_overlapping();
  const int column = blockIdx.x * kThreads + threadIdx.x;
  if (a.segments.device) {
    const Segment own = a.segments.device[a.segments.n_singles + blockIdx.y];
    if (own.row < 0 || own.n_tokens == 1) return;
    take(a, own);
    n_rows = own.n_tokens;
  }
  if (column < a.n * a.hidden) keep(a, a.pos[0], n_rows, column);
}

/* A block takes a stream of a row. */
__global__ void __launch_bounds__(kThreads) gate_kernel(NgramGates a) {
  begin_overlapping();
  const int first = blockIdx.y * a.hidden;
  const size_t at = (size_t)blockIdx.x * a.n * a.hidden + first;
  const float *key = a.keys + at, *query = a.streams + at, *value = a.values + (size_t)blockIdx.x * a.hidden;
  float keys = 0, queries = 0, values = 0, both = 0;
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) {
    keys += key[i] * key[i], queries += query[i] * query[i], values += value[i] * value[i];
    both += (key[i] * a.key_norm[first + i]) * (query[i] * a.query_norm[first + i]);
  }
  for (float *sum : {&keys, &queries, &values, &both}) {
    *sum = block_sum<kThreads>(*sum);
    __syncthreads(); /* the next sum takes the same shared memory */
  }
  const float score = both * rsqrtf(keys / a.hidden + a.eps) * rsqrtf(queries / a.hidden + a.eps) *
                      rsqrtf((float)a.hidden),
              size = sqrtf(fabsf(score) < 1e-6f ? 1e-6f : fabsf(score)); /* NaN stays */
  /* As in transformers, where sign(0) is 0 and sigmoid(0) is 0.5. */
  const float gate = score == 0 ? 0.5f : sigmoid(score < 0 ? -size : size),
              inverse = rsqrtf(gate * gate * values / a.hidden + a.eps);
  for (int i = threadIdx.x; i < a.hidden; i += kThreads) {
    const float c = gate * value[i];
    a.gated[at + i] = c;
    a.input[at + i] = c * inverse * a.conv_norm[first + i];
  }
}

} // namespace

Status ops_streams_begin(const float *x, int n, int hidden, int n_rows, float *streams, cudaStream_t stream,
                         Error *err) {
  return launch(begin_kernel, n_rows, kThreads, 0, stream, true, "streams", err, x, n, hidden, streams);
}

Status ops_streams_norm(const StreamRows *call, int n_rows, void *u, int u_stride, cudaStream_t stream,
                        Error *err) {
  return launch(norm_kernel, dim3((unsigned)n_rows, (unsigned)call->n), kThreads, 0, stream, true,
                "norms of streams", err, *call, (__half *)u, u_stride);
}

Status ops_streams_ranks(const float *sums, int n, int rank, int n_rows, void *ranks, int ranks_stride,
                         float *factors, cudaStream_t stream, Error *err) {
  return launch(ranks_kernel, n_rows, kThreads, 0, stream, true, "weights of streams", err, sums, n, rank,
                (__half *)ranks, ranks_stride, factors);
}

Status ops_streams_mix(const StreamRows *call, const float *weights, int n_rows, void *h, int h_stride,
                       float *mixed, float *x, cudaStream_t stream, Error *err) {
  const dim3 grid((unsigned)n_rows, (unsigned)ceil_div(call->hidden, kThreads));
  return launch(mix_kernel, grid, kThreads, 0, stream, true, "mix of streams", err, *call, weights,
                (__half *)h, h_stride, mixed, x);
}

Status ops_streams_inject(const float *x, const float *factors, int n, int hidden, int n_rows, float *streams,
                          cudaStream_t stream, Error *err) {
  const dim3 grid((unsigned)n_rows, (unsigned)ceil_div(hidden, kThreads));
  return launch(inject_kernel, grid, kThreads, 0, stream, true, "streams", err, x, factors, n, hidden,
                streams);
}

size_t ops_ngram_state_floats(int longest, int taps, int n, int hidden) {
  const size_t inputs = (size_t)(taps - 1) * (size_t)longest * (size_t)n * (size_t)hidden;
  return inputs + align_up((size_t)longest - 1, 8); /* so the state after this one is aligned */
}

Status ops_ngram_tokens(const Ngrams *call, int n_rows, int32_t *tokens, cudaStream_t stream, Error *err) {
  return launch(tokens_kernel, ceil_div(n_rows, kThreads), kThreads, 0, stream, true, "n-grams", err, *call,
                n_rows, tokens);
}

Status ops_ngram_add(const Ngrams *call, int n_rows, cudaStream_t stream, Error *err) {
  const unsigned blocks = (unsigned)ceil_div(call->n * call->hidden, kThreads),
                 kept = (unsigned)(call->segments.device ? call->segments.n - call->segments.n_singles
                                                         : n_rows > 1);
  TRY(launch(add_kernel, dim3(blocks, (unsigned)n_rows), kThreads, 0, stream, true, "n-grams", err, *call));
  if (kept == 0) return STATUS_OK;
  return launch(keep_kernel, dim3(blocks, kept), kThreads, 0, stream, true, "n-grams", err, *call, n_rows);
}

Status ops_ngram_gate(const NgramGates *call, int n_rows, cudaStream_t stream, Error *err) {
  return launch(gate_kernel, dim3((unsigned)n_rows, (unsigned)call->n), kThreads, 0, stream, true, "n-grams",
                err, *call);
}
