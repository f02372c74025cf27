/* test_host_rows.cu - rows on their way to the CPU and back in a stream's order (one/products.c): shapes of
 * ops_rows_to_host() and ops_rows_from_host() to the bit, and chains of kernel, host function and kernel,
 * which use the same pinned memory again, plain and as a graph that is replayed.
 *
 * A host function that ran too early, or a kernel after it that did not wait, would read numbers of the call
 * before: each call of a chain makes others. Prints `N passed, N failed`. */
#include <cuda_fp16.h>
#include <stdio.h>

#include <cmath>
#include <vector>

#include "cuda/kernels/ops/host_rows.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "test/cuda/check.cuh"

static int passed, failed;

static void count(bool good, const char *what, int n, int rows) {
  good ? passed++ : failed++;
  if (!good) printf("FAILED %s: %d rows of %d\n", what, rows, n);
}

template <class T> static T *device_copy(const std::vector<T> &from) {
  T *to;
  CHECK(cudaMalloc((void **)&to, from.size() * sizeof(T)));
  CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

template <class T> static std::vector<T> host_copy(const T *from, size_t n) {
  std::vector<T> to(n);
  CHECK(cudaMemcpy(to.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
  return to;
}

static float *pinned(size_t n) {
  float *memory;
  CHECK(cudaHostAlloc((void **)&memory, n * sizeof(float), cudaHostAllocMapped));
  for (size_t i = 0; i < n; i++) memory[i] = NAN;
  return memory;
}

static void test_give(cudaStream_t stream, int n, int rows, int chosen) {
  const int stride = (n + 7) / 8 * 8, padded = (n + 15) / 16 * 16;
  std::vector<__half> x((size_t)stride * rows);
  for (size_t i = 0; i < x.size(); i++) x[i] = __float2half((float)((int)(i % 4093) - 2046) / 32);
  __half *device = device_copy(x);
  float *to = pinned((size_t)padded * rows);
  const size_t n_choices = (size_t)chosen * rows;
  std::vector<int> ids(n_choices + 1);
  std::vector<float> weights(n_choices + 1);
  for (size_t i = 0; i < n_choices; i++) ids[i] = (int)(i * 7 % 1000), weights[i] = (float)i / 8;
  int *from_ids = device_copy(ids), *to_ids = (int *)pinned(n_choices + 1);
  float *from_weights = device_copy(weights), *to_weights = pinned(n_choices + 1);
  const int behind = to_ids[n_choices];
  MUST(ops_rows_to_host(device, stride, n, rows, to, padded,
                        {chosen, from_ids, from_weights, to_ids, to_weights}, stream, &error));
  CHECK(cudaStreamSynchronize(stream));
  bool good = to_ids[n_choices] == behind && isnan(to_weights[n_choices]);
  for (size_t i = 0; i < n_choices; i++) good = good && to_ids[i] == ids[i] && to_weights[i] == weights[i];
  for (int row = 0; row < rows; row++)
    for (int i = 0; i < padded; i++)
      good = good && to[(size_t)row * padded + i] == (i < n ? __half2float(x[(size_t)row * stride + i]) : 0);
  count(good, "give", n, rows);
  CHECK(cudaFree(device));
  CHECK(cudaFree(from_ids));
  CHECK(cudaFree(from_weights));
  CHECK(cudaFreeHost(to));
  CHECK(cudaFreeHost(to_ids));
  CHECK(cudaFreeHost(to_weights));
}

static void test_take(cudaStream_t stream, int n, int rows, HostRowsForm form, bool with_factors) {
  const int stride = n + 3;
  const size_t all = (size_t)stride * rows;
  float *from = pinned((size_t)n * rows);
  for (size_t i = 0; i < (size_t)n * rows; i++) from[i] = (float)((int)(i % 1021) - 510) * 200;
  std::vector<float> before(all, 0.5f), factors(rows);
  for (int row = 0; row < rows; row++) factors[row] = (float)(row % 5) / 4;
  float *y = device_copy(before), *scale = device_copy(factors);
  MUST(ops_rows_from_host(from, n, rows, form, with_factors ? scale : NULL, y, stride, stream, &error));
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<float> got = host_copy(y, all);
  const std::vector<__half> halves = host_copy((const __half *)y, all);
  bool good = true;
  for (int row = 0; row < rows; row++)
    for (int i = 0; i < stride; i++) {
      const size_t at = (size_t)row * stride + i;
      const float value = i < n ? from[(size_t)row * n + i] : 0,
                  scaled = with_factors ? factors[row] * value : value;
      const float limited = fmaxf(fminf(scaled, 65504), -65504);
      if (form == HOST_ROWS_F16 && i < n)
        good = good && __half2float(halves[at]) == __half2float(__float2half(limited));
      else if (form != HOST_ROWS_F16)
        good = good && got[at] == (i >= n ? 0.5f : form == HOST_ROWS_F32 ? value : 0.5f + value);
    }
  count(good, "take", n, rows);
  CHECK(cudaFree(y));
  CHECK(cudaFree(scale));
  CHECK(cudaFreeHost(from));
}

/* y = 2 x + its own number, slowly at first, so that what does not wait comes too early. */
struct Work {
  const float *x;
  float *y;
  int n, number;
};

static void compute(void *user) {
  const Work *work = (const Work *)user;
  volatile double slow = 0;
  for (int i = 0; i < 200000; i++) slow = slow + 1;
  for (int i = 0; i < work->n; i++) work->y[i] = 2 * work->x[i] + (float)work->number;
}

/* x = 2 x + k for k = 0, 1, ..., every time over the bus: rows are rounded to fp16 by the step's own kernel,
 * which is a dependent launch. */
static void enqueue_chain(std::vector<Work> &chain, float *x, __half *h, cudaStream_t stream) {
  for (Work &work : chain) {
    MUST(ops_round(x, work.n, 1, work.n, 1, h, work.n, stream, &error));
    MUST(ops_rows_to_host(h, work.n, work.n, 1, (float *)work.x, work.n, {}, stream, &error));
    CHECK(cudaLaunchHostFunc(stream, compute, &work));
    MUST(ops_rows_from_host(work.y, work.n, 1, HOST_ROWS_F32, NULL, x, work.n, stream, &error));
  }
}

static void test_chain(cudaStream_t stream, bool graph) {
  const int n = 640, calls = 6, turns = 5;
  float *rows = pinned(2 * n);
  std::vector<Work> chain;
  for (int k = 0; k < calls; k++) chain.push_back({rows, rows + n, n, k});
  std::vector<float> begin(n);
  float *x = device_copy(begin);
  __half *h = device_copy(std::vector<__half>(n));
  cudaGraphExec_t step = NULL;
  if (graph) {
    cudaGraph_t captured;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue_chain(chain, x, h, stream);
    CHECK(cudaStreamEndCapture(stream, &captured));
    CHECK(cudaGraphInstantiate(&step, captured, 0));
    CHECK(cudaGraphDestroy(captured));
  }
  for (int turn = 0; turn < turns; turn++) { /* exact in fp16: at most 11 bits */
    for (int i = 0; i < n; i++) begin[i] = (float)((i + turn) % 7);
    CHECK(cudaMemcpyAsync(x, begin.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));
    if (graph) CHECK(cudaGraphLaunch(step, stream));
    if (!graph) enqueue_chain(chain, x, h, stream);
    CHECK(cudaStreamSynchronize(stream));
    const std::vector<float> got = host_copy(x, n);
    bool good = true;
    for (int i = 0; i < n; i++) {
      float want = begin[i];
      for (int k = 0; k < calls; k++) want = 2 * want + (float)k;
      good = good && got[i] == want;
    }
    count(good, graph ? "graph of a chain" : "chain", n, turn);
  }
  if (step) CHECK(cudaGraphExecDestroy(step));
  CHECK(cudaFree(x));
  CHECK(cudaFree(h));
  CHECK(cudaFreeHost(rows));
}

int main() {
  cudaStream_t stream;
  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const int widths[] = {1, 31, 256, 257, 2048}, counts[] = {1, 3, 33};
  for (int n : widths)
    for (int rows : counts) {
      for (int chosen : {0, 8, 300}) test_give(stream, n, rows, chosen);
      test_take(stream, n, rows, HOST_ROWS_F32, false);
      test_take(stream, n, rows, HOST_ROWS_ADD_F32, false);
      test_take(stream, n, rows, HOST_ROWS_F16, false);
      test_take(stream, n, rows, HOST_ROWS_F16, true);
    }
  test_chain(stream, false);
  test_chain(stream, true);
  CHECK(cudaStreamDestroy(stream));
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
