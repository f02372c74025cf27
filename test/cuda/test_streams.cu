/* test_streams.cu - a mix of residual streams for a few rows (ops/streams_few.h) against the same formulas in
 * double on the host, with and without an injection before it; and a row alone gives the same bits as beside
 * others. Sums are fp32: NMSE < 1e-11 for the mix, ranks and factors, where 2^-24 for each of some hundred
 * additions in 16 warps is the worst case; h is rounded to fp16, each number by 2^-11 at most: 2.4e-7.
 *
 * The kernels of many rows (ops/streams.h) are compared with the CPU's by test_model.py, which runs whole
 * models. Prints `N passed, N failed`. */
#include <cmath>
#include <string.h>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/ops/streams_few.h"
#include "test/cuda/check.cuh"
#include "test/cuda/random_numbers.cuh"

static int passed, failed;

static void expect(bool good, const char *name, const char *what, double number) {
  if (!good) printf("FAILED %s: %s: %.3g\n", name, what, number);
  good ? passed++ : failed++;
}

struct Case {
  int n, hidden, rank, n_rows;
  WeightType type;
  bool injects, has_factors, one_matrix;
};

typedef std::vector<double> Doubles;

template <class T> static T *to_device(const std::vector<T> &from) {
  T *to;
  CHECK(cudaMalloc((void **)&to, (from.size() + 1) * sizeof(T)));
  CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

template <class T> static std::vector<T> to_host(const T *from, size_t n) {
  std::vector<T> out(n);
  CHECK(cudaMemcpy(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

/* A dense matrix with a gap after each row. */
struct Matrix {
  int n_in, n_out;
  Floats w;
  DeviceLinear linear = {};

  Matrix(int n_out_, int n_in_, WeightType type) : n_in(n_in_), n_out(n_out_) {
    const int stride = (n_in + 7) / 8 * 8 + 8;
    w = random_numbers((size_t)n_out * n_in, -2 / sqrtf((float)n_in), 2 / sqrtf((float)n_in));
    std::vector<uint16_t> bits((size_t)n_out * stride, 0xffff);
    for (int o = 0; o < n_out; o++)
      for (int i = 0; i < n_in; i++) {
        float &v = w[(size_t)o * n_in + i];
        uint16_t &to = bits[(size_t)o * stride + i];
        const __half half = __float2half_rn(v);
        const __nv_bfloat16 bf16 = __float2bfloat16_rn(v);
        memcpy(&to, type == WEIGHT_F16 ? (const void *)&half : (const void *)&bf16, 2);
        v = type == WEIGHT_F16 ? __half2float(half) : __bfloat162float(bf16);
      }
    linear.type = type, linear.n_in = n_in, linear.n_out = n_out;
    linear.dense = to_device(bits), linear.stride = (size_t)stride;
  }
  ~Matrix() { cudaFree((void *)linear.dense); }
  double times(const Doubles &x, int output) const {
    double sum = 0;
    for (int i = 0; i < n_in; i++) sum += w[(size_t)output * n_in + i] * x[i];
    return sum;
  }
};

struct Results {
  Floats streams, ranks, factors, mixed, zeroed;
  std::vector<__half> h;
};

static double nmse(const Doubles &want, const Floats &got, size_t from = 0) {
  double wrong = 0, all = 1e-300;
  for (size_t i = 0; i < want.size(); i++)
    wrong += (want[i] - got[from + i]) * (want[i] - got[from + i]), all += want[i] * want[i];
  return wrong / all;
}

static const float kEps = 0.125f;

/* The numbers of one row on the host. */
struct Row {
  Doubles streams, ranks, factors, h;

  Row(const Case &c, const float *s, const float *x, const float *own, const Floats &norm, const Matrix &down,
      const Matrix &inject, int inject_row, const Matrix &up) {
    const int all = c.n * c.hidden;
    Doubles u(all);
    for (int i = 0; i < all; i++)
      streams.push_back(s[i] + (c.injects ? (double)own[i / c.hidden] * x[i % c.hidden] : 0));
    for (int stream = 0; stream < c.n; stream++) {
      double squares = 0;
      for (int i = 0; i < c.hidden; i++) squares += pow(streams[stream * c.hidden + i], 2);
      for (int i = stream * c.hidden; i < (stream + 1) * c.hidden; i++)
        u[i] = streams[i] / sqrt(squares / c.hidden + kEps) * norm[i];
    }
    for (int r = 0; r < c.rank; r++) {
      const double v = down.times(u, r) / c.n;
      ranks.push_back(v / (1 + exp(-v)));
    }
    for (int i = 0; c.has_factors && i < c.n; i++)
      factors.push_back(2 / (1 + exp(-inject.times(u, inject_row + i) / c.n)));
    for (int i = 0; i < c.hidden; i++) {
      double sum = 0;
      for (int stream = 0; stream < c.n; stream++) {
        const int at = stream * c.hidden + i;
        sum += u[at] / (1 + exp(-up.times(ranks, at)));
      }
      h.push_back(sum / c.n);
    }
  }
};

/* Runs the kernels over n_rows rows from `first` on. */
static Results run(const Case &c, FewMix call, int first, int n_rows) {
  const size_t all = (size_t)c.n * c.hidden, rows = (size_t)n_rows;
  float *next = to_device(Floats(rows * all)), *ranks = to_device(Floats(rows * c.rank)),
        *inverses = to_device(Floats(rows * c.n)), *factors = to_device(Floats(rows * c.n)),
        *mixed = to_device(Floats(rows * c.hidden)), *zeroed = to_device(Floats(rows * c.hidden, 7));
  __half *h = to_device(std::vector<__half>(rows * (c.hidden + 8)));
  call.streams += first * all;
  if (c.injects) call.next_streams = next, call.x += (size_t)first * c.hidden, call.factors += first * c.n;
  call.inverses = inverses, call.ranks = ranks, call.new_factors = c.has_factors ? factors : NULL;
  call.h = h, call.h_stride = c.hidden + 8;
  call.mixed = mixed, call.zeroed = zeroed;
  MUST(ops_streams_few(&call, n_rows, 0, &error));
  CHECK(cudaDeviceSynchronize());
  Results r = {to_host(c.injects ? next : call.streams, rows * all),
               to_host(ranks, rows * c.rank),
               to_host(factors, rows * c.n),
               to_host(mixed, rows * c.hidden),
               to_host(zeroed, rows * c.hidden),
               to_host(h, rows * (c.hidden + 8))};
  for (void *p : {(void *)next, (void *)ranks, (void *)inverses, (void *)factors, (void *)mixed,
                  (void *)zeroed, (void *)h})
    cudaFree(p);
  return r;
}

static void run_case(const Case &c) {
  const int all = c.n * c.hidden;
  char name[100];
  snprintf(name, sizeof name, "%d streams of %d, rank %d, %d rows", c.n, c.hidden, c.rank, c.n_rows);
  const Matrix both(c.rank + c.n, all, c.type), down(c.rank, all, c.type), inject(c.n, all, c.type),
      up(all, c.rank, c.type);
  const Floats streams = random_numbers((size_t)c.n_rows * all, -2, 2),
               x = random_numbers((size_t)c.n_rows * c.hidden, -1, 1),
               factors = random_numbers((size_t)c.n_rows * c.n, 0, 2), norm = random_numbers(all, 0.5f, 1.5f);
  float *device[] = {to_device(streams), to_device(x), to_device(factors), to_device(norm)};
  FewMix call = {};
  call.n = c.n, call.hidden = c.hidden, call.rank = c.rank, call.eps = kEps;
  call.streams = device[0], call.norm = device[3];
  if (c.injects) call.x = device[1], call.factors = device[2];
  const DeviceLinear &first = c.one_matrix ? both.linear : down.linear,
                     &last = c.one_matrix ? both.linear : inject.linear;
  const int inject_row = c.one_matrix ? c.rank : 0;
  call.bf16 = c.type == WEIGHT_BF16;
  call.down = first.dense, call.down_stride = first.stride;
  call.up = up.linear.dense, call.up_stride = up.linear.stride;
  if (c.has_factors) call.inject = (const uint16_t *)last.dense + inject_row * last.stride;
  call.inject_stride = last.stride;
  expect(ops_streams_few_supports(&call, c.n_rows), name, "it is refused", 0);
  const Results got = run(c, call, 0, c.n_rows);
  for (int row = 0; row < c.n_rows; row++) {
    const Row want(c, &streams[(size_t)row * all], &x[(size_t)row * c.hidden], &factors[row * c.n], norm,
                   c.one_matrix ? both : down, c.one_matrix ? both : inject, inject_row, up);
    const size_t hidden = (size_t)row * c.hidden;
    double e = nmse(want.streams, got.streams, (size_t)row * all);
    expect(e < 1e-13, name, "NMSE of streams", e);
    e = nmse(want.ranks, got.ranks, (size_t)row * c.rank);
    expect(e < 1e-11, name, "NMSE of ranks", e);
    e = nmse(want.factors, got.factors, (size_t)row * c.n);
    expect(e < 1e-11, name, "NMSE of factors", e);
    e = nmse(want.h, got.mixed, hidden);
    expect(e < 1e-11, name, "NMSE of the mix", e);
    Floats h;
    for (int i = 0; i < c.hidden; i++) h.push_back(__half2float(got.h[(size_t)row * (c.hidden + 8) + i]));
    e = nmse(want.h, h);
    expect(e < 2.4e-7, name, "NMSE of h", e);
    int others = 0;
    for (int i = 0; i < c.hidden; i++) others += got.zeroed[hidden + i] != 0;
    for (int i = c.hidden; i < c.hidden + 8; i++)
      others += __half2float(got.h[(size_t)row * (c.hidden + 8) + i]) != 0;
    expect(others == 0, name, "numbers that are not 0", others);
    const Results alone = run(c, call, row, 1);
    expect(memcmp(alone.mixed.data(), &got.mixed[hidden], (size_t)c.hidden * 4) == 0, name,
           "alone it differs in row", row);
  }
  for (float *p : device) cudaFree(p);
}

int main(int argc, char **argv) {
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  const Case cases[] = {
      {4, 64, 8, 1, WEIGHT_F16, true, true, false},     {4, 64, 8, 2, WEIGHT_BF16, false, true, true},
      {3, 40, 16, 2, WEIGHT_BF16, true, true, true},    {2, 8, 8, 2, WEIGHT_F16, true, false, false},
      {1, 136, 24, 2, WEIGHT_F16, true, true, false},   {4, 264, 320, 2, WEIGHT_BF16, true, true, false},
      {3, 520, 40, 1, WEIGHT_F16, false, false, false},
  };
  const Case large[] = {{4, 2560, 320, 1, WEIGHT_BF16, true, true, false},
                        {4, 2560, 320, 2, WEIGHT_BF16, true, true, false},
                        {4, 4096, 512, 2, WEIGHT_F16, true, true, true},
                        {2, 8192, 64, 2, WEIGHT_F16, false, true, false}};
  for (const Case &c : cases) run_case(c);
  if (!few)
    for (const Case &c : large) run_case(c);
  FewMix call = {}; /* rows and sizes that have no kernel */
  call.n = 4, call.hidden = 64, call.rank = 8;
  expect(ops_streams_few_supports(&call, STREAMS_FEW_ROWS) &&
             !ops_streams_few_supports(&call, STREAMS_FEW_ROWS + 1),
         "rows", "most", STREAMS_FEW_ROWS);
  for (int FewMix::*size : {&FewMix::n, &FewMix::hidden, &FewMix::rank}) {
    FewMix other = call;
    other.*size += size == &FewMix::n ? 1 : 4;
    expect(!ops_streams_few_supports(&other, 1), "sizes", "it takes", other.*size);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
