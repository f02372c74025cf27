/* test_altup.cu - the kernels of AltUp, LAuReL and sparse gates (ops/altup.h) against the same formulas in
 * double on the host. Sums are fp32: NMSE < 1e-11, where 2^-24 for each of some hundred additions is the
 * worst case; a number that is rounded to fp16 errs by 2^-11 of itself at most: 2.4e-7. Prints
 * `N passed, N failed`. */
#include <cmath>
#include <vector>

#include <cuda_fp16.h>

#include "cuda/kernels/ops/altup.h"
#include "test/cuda/device_copy.cuh"
#include "test/cuda/random_numbers.cuh"

static int passed, failed;

static void expect(bool good, const char *name, int n, double number) {
  if (!good) printf("FAILED %s of %d: %.3g\n", name, n, number);
  good ? passed++ : failed++;
}

typedef std::vector<double> Doubles;

template <class T> static double number(T v) {
  return (double)v;
}
static double number(__half v) {
  return __half2float(v);
}

template <class T>
static void compare(const char *name, int n, const Doubles &want, const std::vector<T> &got, double most) {
  double lost = 0, all = 0;
  for (size_t i = 0; i < want.size(); i++) {
    lost += pow(number(got[i]) - want[i], 2);
    all += want[i] * want[i];
  }
  expect(lost <= most * all, name, n, lost / all);
}

static double mean_square(const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return sum / n;
}

struct Case {
  int n, hidden, n_rows;
  Floats streams, x, norm, router, predict, correct, scale, other;

  Case(int n_, int hidden_, int n_rows_) : n(n_), hidden(hidden_), n_rows(n_rows_) {
    const size_t rows = (size_t)n_rows, h = (size_t)hidden, s = (size_t)n;
    streams = random_numbers(rows * s * h, -2, 2);
    x = random_numbers(rows * h, -3, 3);
    other = random_numbers(rows * h, -3, 3);
    norm = random_numbers(h, 0.5f, 1.5f);
    scale = random_numbers(h, -1, 1);
    router = random_numbers(s * h, -3, 3);
    predict = random_numbers(s * s * s, -1, 1);
    correct = random_numbers(s * s, -1, 1);
  }
  Doubles row_of(const Floats &from, int row, int width) const {
    return Doubles(from.begin() + (size_t)row * width, from.begin() + (size_t)(row + 1) * width);
  }
  Doubles coefficients(const Doubles &from, const Floats &weights) const {
    const double size = sqrt(mean_square(from.data(), hidden) + 1e-6);
    Doubles m, c;
    for (int s = 0; s < n; s++) {
      double sum = 0;
      for (int i = 0; i < hidden; i++) sum += from[i] / size * norm[i] * router[(size_t)s * hidden + i];
      m.push_back(tanh(sum / hidden));
    }
    for (size_t o = 0; o < weights.size() / n; o++) {
      double sum = 0;
      for (int s = 0; s < n; s++) sum += weights[o * n + s] * m[s];
      c.push_back(sum);
    }
    return c;
  }
};

static void test_streams(const Case &c) {
  const int all = c.n * c.hidden;
  Device<float> streams(c.streams), x(c.x), y(c.other), norm(c.norm), router(c.router), predict(c.predict),
      correct(c.correct), scale(c.scale);
  const AltupStreams call = {c.n, c.hidden, 1e-6f, streams.at};
  const AltupRouter predicts = {norm.at, router.at, predict.at}, corrects = {norm.at, router.at, correct.at};
  Floats before = c.streams;
  Doubles want, first;
  MUST(ops_altup_predict(&call, &predicts, x.at, c.n_rows, 0, &error));
  for (int r = 0; r < c.n_rows; r++) {
    const Doubles s = c.row_of(before, r, all), k = c.coefficients(s, c.predict);
    for (int to = 0; to < c.n; to++)
      for (int i = 0; i < c.hidden; i++) {
        double sum = s[(size_t)to * c.hidden + i];
        for (int from = 0; from < c.n; from++) sum += k[to * c.n + from] * s[(size_t)from * c.hidden + i];
        want.push_back(sum);
        if (to == 0) first.push_back(sum);
      }
  }
  compare("prediction", c.hidden, want, streams.host(), 1e-11);
  compare("x of a prediction", c.hidden, first, x.host(), 1e-11);

  before = streams.host();
  CHECK(cudaMemcpy(x.at, c.x.data(), c.x.size() * sizeof(float), cudaMemcpyHostToDevice));
  MUST(ops_altup_correct(&call, &corrects, scale.at, x.at, c.n_rows, 0, &error));
  want.clear(), first.clear();
  for (int r = 0; r < c.n_rows; r++) {
    const Doubles s = c.row_of(before, r, all), own = c.row_of(c.x, r, c.hidden),
                  k = c.coefficients(own, c.correct);
    for (int to = 0; to < c.n; to++)
      for (int i = 0; i < c.hidden; i++) {
        want.push_back(s[(size_t)to * c.hidden + i] + (1 + k[to]) * (own[i] - s[i]));
        if (to == 0) first.push_back(want.back() * c.scale[i]);
      }
  }
  compare("correction", c.hidden, want, streams.host(), 1e-11);
  compare("x of a correction", c.hidden, first, x.host(), 1e-11);

  before = streams.host();
  MUST(ops_altup_add(&call, y.at, norm.at, c.n_rows, 0, &error));
  want.clear();
  for (int r = 0; r < c.n_rows; r++) {
    const Doubles s = c.row_of(before, r, all), own = c.row_of(c.other, r, c.hidden);
    const double size = sqrt(mean_square(own.data(), c.hidden) + 1e-6);
    for (int i = 0; i < all; i++)
      want.push_back(s[i] + (i < c.hidden ? 0 : own[i % c.hidden] / size * c.norm[i % c.hidden]));
  }
  compare("inputs", c.hidden, want, streams.host(), 1e-11);
}

/* The row at the end of the step is joined; the matmuls are what is in `before`, and one of them is tiny. */
static void test_ends(const Case &c) {
  const int all = c.n * c.hidden, row = c.n_rows - 1;
  Floats before = c.streams;
  for (int i = 0; i < c.hidden; i++) before[(size_t)row * all + c.hidden + i] *= 1e-4f;
  Device<float> streams(before), x(c.x), norm(c.norm);
  const AltupStreams call = {c.n, c.hidden, 1e-6f, streams.at};
  const float divisor = 3;
  MUST(ops_altup_begin(&call, x.at, divisor, c.n_rows, 0, &error));
  Doubles want;
  for (int r = 0; r < c.n_rows; r++) {
    const Doubles own = c.row_of(c.x, r, c.hidden), s = c.row_of(before, r, all);
    const double size = sqrt(mean_square(own.data(), c.hidden));
    for (int k = 0; k < c.n; k++) {
      const double square = divisor * divisor * mean_square(&s[(size_t)k * c.hidden], c.hidden),
                   factor = divisor * size / sqrt(square > 1e-5 ? square : 1e-5);
      for (int i = 0; i < c.hidden; i++)
        want.push_back(k == 0 ? own[i] : s[(size_t)k * c.hidden + i] * factor);
    }
  }
  compare("begin", c.hidden, want, streams.host(), 1e-11);

  const Floats now = streams.host();
  Floats matmuls(now.begin(), now.begin() + all);
  for (int i = 0; i < c.hidden; i++) matmuls[c.hidden + i] *= 1e-4f;
  Device<float> projected(matmuls);
  const int stride = c.hidden + 8;
  Device<__half> unit(std::vector<__half>((size_t)stride)), out(std::vector<__half>((size_t)stride));
  Device<int> rows(std::vector<int>{row});
  MUST(ops_altup_unit(&call, AltupRows{rows.at, 0}, 1, 1, unit.at, stride, 0, &error));
  MUST(ops_altup_join(&call, AltupRows{NULL, row}, projected.at, norm.at, 1, out.at, stride, 0, &error));
  const Doubles s = c.row_of(now, row, all);
  Doubles of_unit, mean(s.begin(), s.begin() + c.hidden);
  const double size = sqrt(mean_square(s.data(), c.hidden));
  for (int k = 1; k < c.n; k++) {
    const double own = sqrt(mean_square(&s[(size_t)k * c.hidden], c.hidden));
    Doubles p(matmuls.begin() + (size_t)k * c.hidden, matmuls.begin() + (size_t)(k + 1) * c.hidden);
    for (double &v : p) v *= own;
    const double square = mean_square(p.data(), c.hidden),
                 factor = size / sqrt(square > 1e-5 ? square : 1e-5);
    for (int i = 0; i < c.hidden; i++) mean[i] += factor * p[i];
    for (int i = 0; k == 1 && i < c.hidden; i++) of_unit.push_back(s[(size_t)c.hidden + i] / own);
  }
  for (double &v : mean) v /= c.n;
  const double last = sqrt(mean_square(mean.data(), c.hidden) + 1e-6);
  for (int i = 0; i < c.hidden; i++) mean[i] *= c.norm[i] / last;
  compare("a stream for a matmul", c.hidden, of_unit, unit.host(), 2.4e-7);
  compare("the mean of streams", c.hidden, mean, out.host(), 2.4e-7);
}

static void test_laurel(const Case &c) {
  Device<float> x(c.x), l(c.other), attn_norm(c.norm), laurel_norm(c.scale);
  const Laurel call = {c.hidden, 1e-6f, l.at, attn_norm.at, laurel_norm.at, x.at};
  MUST(ops_add_laurel(&call, c.n_rows, 0, &error));
  Doubles want;
  for (int r = 0; r < c.n_rows; r++) {
    const Doubles own = c.row_of(c.x, r, c.hidden), low = c.row_of(c.other, r, c.hidden);
    const double of_x = sqrt(mean_square(own.data(), c.hidden) + 1e-6),
                 of_l = sqrt(mean_square(low.data(), c.hidden) + 1e-6);
    for (int i = 0; i < c.hidden; i++)
      want.push_back((own[i] + own[i] / of_x * c.norm[i] + low[i] / of_l * c.scale[i]) / sqrt(2));
  }
  compare("LAuReL", c.hidden, want, x.host(), 1e-11);
}

/* Beside the gates lie numbers that stay. */
static void test_gates(const Case &c) {
  const int stride = 2 * c.hidden;
  const Floats before = random_numbers((size_t)c.n_rows * stride, -1, 3);
  for (float deviations : {1.6448535f, 0.0f, -0.6744898f}) {
    Device<float> gates(before);
    MUST(ops_cut_gates(gates.at, (size_t)stride, c.hidden, deviations, c.n_rows, 0, &error));
    Doubles want;
    for (int r = 0; r < c.n_rows; r++) {
      const Doubles own = c.row_of(before, r, stride);
      double mean = 0, squares = 0;
      for (int i = 0; i < c.hidden; i++) mean += own[i] / c.hidden;
      for (int i = 0; i < c.hidden; i++) squares += pow(own[i] - mean, 2);
      const double cut = mean + deviations * sqrt(squares / c.hidden);
      for (int i = 0; i < stride; i++)
        want.push_back(i >= c.hidden ? own[i] : own[i] > cut ? own[i] - cut : 0);
    }
    compare("gates", c.hidden, want, gates.host(), 1e-11);
  }
}

int main() {
  for (const Case &c : {Case(2, 8, 1), Case(3, 40, 2), Case(4, 520, 3), Case(16, 264, 1)}) {
    test_streams(c);
    test_ends(c);
    test_laurel(c);
    test_gates(c);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
