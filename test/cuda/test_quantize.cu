/* test_quantize.cu - each function of the GPU's Quantizer against the CPU's, over sizes and groups. A
 * function gets the CPU's results of earlier ones, so that each is judged alone. Prints `N passed, N
 * failed`.
 *
 * Both add fp32 numbers, in different orders: relative to the whole, n sums err by about 2^-24 sqrt(n),
 * here less than 1e-5 with a margin of ten. Where an error decides a code, codes differ: with compensation
 * one code changes the weights after it, and losses, of codes as good, differ by some 1%. */
#include <cmath>
#include <cstring>
#include <vector>

#include "test/cuda/check.cuh"
#include "test/cuda/random_numbers.cuh"

#define _Static_assert static_assert /* of C headers */
#include "cuda/quantize/quantizer.h"

static int passed, failed;

/* Operands of TF32 have 11 bits, so that a product errs by at most 2^-10, which sums make less. */
#ifdef EMULATED_ARCH
static const double rounded_operands = 1e-6; /* fp32 there */
#else
static const double rounded_operands = 0x1p-10;
#endif

static void expect(bool good, const char *name, int n_out, int n_in, int group, double number) {
  if (!good) printf("FAILED %s of %d x %d in groups of %d: %.3g\n", name, n_out, n_in, group, number);
  good ? passed++ : failed++;
}

/* A device and numbers there. */
struct There {
  const Quantizer *q;
  QuantizerState *state;
};

static There open_device(const Quantizer *q) {
  There there = {q, nullptr};
  BackendOptions options = {};
  options.n_threads = 2;
  MUST(q->open(&options, &there.state, &error));
  return there;
}

static void fill_row(const void *user, int row, float *to) {
  const std::vector<Floats> &rows = *(const std::vector<Floats> *)user;
  memcpy(to, rows[row].data(), rows[row].size() * sizeof *to);
}

static Weights send(const There &d, const Floats &numbers, int n_out, int n_in, int group) {
  std::vector<Floats> rows;
  for (int r = 0; r < n_out; r++)
    rows.emplace_back(numbers.begin() + (size_t)r * n_in, numbers.begin() + (size_t)(r + 1) * n_in);
  Weights weights = {n_out, n_in, group, nullptr};
  MUST(d.q->load(d.state, fill_row, &rows, "test", &weights, &error));
  return weights;
}

/* Any numbers there, as the host's. */
static Floats fetch(const float *there, size_t n) {
  Floats here(n);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(here.data(), there, n * sizeof(float), cudaMemcpyDefault));
  return here;
}

static double difference(const Floats &got, const Floats &want) {
  double lost = 0, all = 0;
  for (size_t i = 0; i < want.size(); i++)
    lost += pow((double)got[i] - want[i], 2), all += pow((double)want[i], 2);
  return sqrt(lost / all);
}

struct Codes {
  std::vector<uint8_t> codes;
  Floats numbers;
  Rounded rounded;
  Codes(int n_out, int n_in, int group) : codes((size_t)n_out * n_in) {
    const size_t n = (size_t)(n_in / group) * rounded_row(n_out);
    numbers.assign(2 * n, 0);
    rounded = {codes.data(), numbers.data(), numbers.data() + n};
  }
};

struct Case {
  int n_out, n_in, group, n_rows;
};

/* One square of both devices. */
struct Squares {
  float *here, *there;
};

static Squares make(const There &cpu, const There &gpu, int n) {
  Squares s;
  MUST(cpu.q->make(cpu.state, (size_t)n * n, "test", &s.here, &error));
  MUST(gpu.q->make(gpu.state, (size_t)n * n, "test", &s.there, &error));
  return s;
}

static void compare(const char *name, const Case &c, const Squares &s, double most) {
  const size_t n = (size_t)c.n_in * c.n_in;
  const double error = difference(fetch(s.there, n), Floats(s.here, s.here + n));
  expect(error <= most, name, c.n_out, c.n_in, c.group, error);
  CHECK(cudaMemcpy(s.there, s.here, n * sizeof(float), cudaMemcpyDefault));
}

static Squares test_squares(const There &cpu, const There &gpu, const Case &c, Squares *cross) {
  const int n = c.n_in, stride = n + 3;
  Floats x = random_numbers((size_t)c.n_rows * stride, -1, 1),
         y = random_numbers((size_t)c.n_rows * c.n_out, -1, 1);
  for (int r = 0; r < c.n_rows; r++)
    for (int i = 1; i < n; i++) x[(size_t)r * stride + i] += 0.5f * x[(size_t)r * stride + i - 1];
  const Rows a = {x.data(), (size_t)stride}, b = {y.data(), (size_t)c.n_out};
  const Squares s = make(cpu, gpu, n);
  *cross = make(cpu, gpu, n);
  for (int turn = 0; turn < 2; turn++) {
    MUST(cpu.q->add(cpu.state, n, a, n, a, c.n_rows, s.here, &error));
    MUST(gpu.q->add(gpu.state, n, a, n, a, c.n_rows, s.there, &error));
    MUST(cpu.q->add(cpu.state, c.n_out, b, n, a, c.n_rows, cross->here, &error));
    MUST(gpu.q->add(gpu.state, c.n_out, b, n, a, c.n_rows, cross->there, &error));
  }
  MUST(cpu.q->finish(cpu.state, 0.5f / c.n_rows, n, s.here, &error));
  MUST(gpu.q->finish(gpu.state, 0.5f / c.n_rows, n, s.there, &error));
  compare("add", c, s, rounded_operands);
  compare("add of two", c, *cross, rounded_operands);
  MUST(cpu.q->dampen(cpu.state, 0.01f, n, s.here, &error));
  MUST(gpu.q->dampen(gpu.state, 0.01f, n, s.there, &error));
  compare("dampen", c, s, 0);
  Floats here(n), there(n);
  MUST(cpu.q->diagonal(cpu.state, n, s.here, here.data(), &error));
  MUST(gpu.q->diagonal(gpu.state, n, s.there, there.data(), &error));
  expect(here == there, "diagonal", c.n_out, n, c.group, 0);
  return s;
}

/* The relative difference of two losses. */
static double apart(double a, double b) {
  return fabs(a / b - 1);
}

static double loss_of(const There &d, const Weights &w, const float *h, const Rounded *rounded) {
  double loss;
  MUST(d.q->loss(d.state, &w, h, rounded, &loss, &error));
  return loss;
}

/* Rounds by the GPU and by the CPU; losses are the CPU's. */
static void test_round(const There &cpu, const There &gpu, const Case &c, const char *name,
                       const Recipe &recipe, const Weights &w, const Weights &w_there, Squares h,
                       Squares lower, double most) {
  Codes want(c.n_out, c.n_in, c.group), got = want, again = want;
  for (Codes *codes : {&got, &again}) {
    codes->rounded = {codes->codes.data(), codes->numbers.data(),
                      codes->numbers.data() + codes->numbers.size() / 2};
    MUST(gpu.q->round(gpu.state, &recipe, &w_there, h.there, lower.there, &codes->rounded, &error));
  }
  MUST(cpu.q->round(cpu.state, &recipe, &w, h.here, lower.here, &want.rounded, &error));
  expect(got.codes == again.codes && got.numbers == again.numbers, "the same twice", c.n_out, c.n_in, c.group,
         0);
  const double error = apart(loss_of(cpu, w, h.here, &got.rounded), loss_of(cpu, w, h.here, &want.rounded));
  expect(error <= most, name, c.n_out, c.n_in, c.group, error);
  int others = 0;
  for (size_t i = 0; i < want.codes.size(); i++) others += want.codes[i] != got.codes[i];
  if (most == 0) expect(others == 0, name, c.n_out, c.n_in, c.group, others);
  const double loss =
      apart(loss_of(gpu, w_there, h.there, &want.rounded), loss_of(cpu, w, h.here, &want.rounded));
  expect(loss < 1e-5, "loss", c.n_out, c.n_in, c.group, loss);
}

static void test_case(const There &cpu, const There &gpu, const Case &c) {
  const int n = c.n_in;
  Squares changes, lower = make(cpu, gpu, n);
  const Floats factors = random_numbers(n, 0.25f, 4), numbers = random_numbers((size_t)c.n_out * n, -1, 1);
  const Squares h = test_squares(cpu, gpu, c, &changes);
  MUST(cpu.q->factor(cpu.state, h.here, n, lower.here, &error));
  MUST(gpu.q->factor(gpu.state, h.there, n, lower.there, &error));
  compare("factor", c, lower, 1e-4);

  const Weights w = send(cpu, numbers, c.n_out, n, c.group),
                w_there = send(gpu, numbers, c.n_out, n, c.group);
  for (const GroupSearch *search : {&plain_rounding, &usual_recipe.trial, &usual_recipe.search}) {
    double want, got;
    MUST(cpu.q->trial(cpu.state, search, &w, h.here, factors.data(), &want, &error));
    MUST(gpu.q->trial(gpu.state, search, &w_there, h.there, factors.data(), &got, &error));
    expect(apart(got, want) < 1e-5, "trial", c.n_out, n, c.group, apart(got, want));
  }
  const double whole = apart(loss_of(gpu, w_there, h.there, nullptr), loss_of(cpu, w, h.here, nullptr));
  expect(whole < 1e-5, "loss of all", c.n_out, n, c.group, whole);

  Recipe recipe = usual_recipe;
  recipe.refinements = 0;
  test_round(cpu, gpu, c, "search", recipe, w, w_there, h, {nullptr, nullptr}, 0);
  test_round(cpu, gpu, c, "compensation", recipe, w, w_there, h, lower, 0.02);
  recipe.refinements = 2;
  test_round(cpu, gpu, c, "refinement", recipe, w, w_there, h, lower, 0.02);

  const size_t size = (size_t)c.n_out * n;
  enum { DRIFTS = 1, INPUTS = 2 };
  for (const int of : {(int)DRIFTS, DRIFTS | INPUTS, (int)INPUTS}) {
    const auto target = [&](float *sums, float *triangle) {
      return Target{0.5 / c.n_rows, 2,       of & DRIFTS ? sums : nullptr, of & INPUTS ? sums : nullptr,
                    factors.data(), triangle};
    };
    const Target here = target(changes.here, lower.here), there = target(changes.there, lower.there);
    MUST(cpu.q->correct(cpu.state, &here, &w, &error));
    MUST(gpu.q->correct(gpu.state, &there, &w_there, &error));
    const double error_of_w = difference(fetch(w_there.w, size), Floats(w.w, w.w + size));
    expect(error_of_w < 1e-4, of == INPUTS ? "correct of inputs alone" : "correct", c.n_out, n, c.group,
           error_of_w);
  }
  MUST(cpu.q->rescale(cpu.state, factors.data(), n, h.here, lower.here, &error));
  MUST(gpu.q->rescale(gpu.state, factors.data(), n, h.there, lower.there, &error));
  compare("rescale", c, h, 0);
  compare("rescale of a factor", c, lower, 0);
  for (float *at : {h.here, lower.here, changes.here, w.w}) cpu.q->release(cpu.state, at);
  for (float *at : {h.there, lower.there, changes.there, w_there.w}) gpu.q->release(gpu.state, at);
}

/* Products of three matrices. Two read the same rows. */
static void test_multiply(const There &gpu) {
  const int n_in = 512, sizes[] = {96, 200, 64}, n_rows[] = {300, 300, 300};
  Floats x = random_numbers((size_t)400 * (n_in + 8), -1, 1), w = random_numbers((size_t)360 * n_in, -1, 1);
  Linear linears[3] = {};
  OtherProduct products[3];
  for (int i = 0, at = 0; i < 3; at += sizes[i++]) {
    linears[i].kind = LINEAR_DENSE, linears[i].dtype = DTYPE_F32, linears[i].n_in = n_in;
    linears[i].n_out = sizes[i], linears[i].weight = w.data() + (size_t)at * n_in, linears[i].name = "test";
    products[i] = {&linears[i], x.data() + (i == 2 ? 7 * (n_in + 8) : 0), (size_t)n_in + 8, n_rows[i],
                   nullptr};
  }
  bool done = false;
  MUST(gpu.q->multiply(gpu.state, products, 3, &done, &error));
  expect(done, "multiply", 3, n_in, 0, 0);
  for (int i = 0; i < 3; i++) {
    Floats want;
    for (int r = 0; r < n_rows[i]; r++)
      for (int o = 0; o < sizes[i]; o++) {
        double sum = 0;
        for (int k = 0; k < n_in; k++)
          sum += (double)products[i].x[(size_t)r * (n_in + 8) + k] *
                 ((const float *)linears[i].weight)[o * n_in + k];
        want.push_back((float)sum);
      }
    const double error = difference(Floats(products[i].y, products[i].y + want.size()), want);
    expect(error < rounded_operands, "multiply", sizes[i], n_in, i, error);
  }
  done = false;
  products[2].n_rows = 1;
  MUST(gpu.q->multiply(gpu.state, products + 2, 1, &done, &error));
  expect(!done, "multiply little", 1, n_in, 0, 0);
  linears[1].input_skip = 8;
  MUST(gpu.q->multiply(gpu.state, products + 1, 1, &done, &error));
  expect(!done, "multiply a part of rows", 1, n_in, 0, 0);
  gpu.q->forget(gpu.state);
}

/* Moments of fewer rows than inputs have a factor only with more on the diagonal. */
static void test_dependent_inputs(const There &cpu, const There &gpu) {
  const Case c = {1, 64, 64, 20};
  Floats x = random_numbers((size_t)c.n_rows * c.n_in, -1, 1);
  const Rows a = {x.data(), (size_t)c.n_in};
  const Squares h = make(cpu, gpu, c.n_in), lower = make(cpu, gpu, c.n_in);
  MUST(cpu.q->add(cpu.state, c.n_in, a, c.n_in, a, c.n_rows, h.here, &error));
  MUST(cpu.q->finish(cpu.state, 1, c.n_in, h.here, &error));
  CHECK(cudaMemcpy(h.there, h.here, (size_t)c.n_in * c.n_in * sizeof(float), cudaMemcpyDefault));
  MUST(cpu.q->factor(cpu.state, h.here, c.n_in, lower.here, &error));
  MUST(gpu.q->factor(gpu.state, h.there, c.n_in, lower.there, &error));
  compare("factor of dependent inputs", c, lower, 1e-3);
  for (float *at : {h.here, lower.here}) cpu.q->release(cpu.state, at);
  for (float *at : {h.there, lower.there}) gpu.q->release(gpu.state, at);
}

static void test_refusals(const There &gpu) {
  float *there;
  Error err;
  expect(gpu.q->make(gpu.state, (size_t)1 << 50, "a test", &there, &err) != STATUS_OK &&
             strstr(err.text, "a test needs 4503599627370496 bytes"),
         "too much memory", 0, 0, 0, 0);
}

int main() {
  const There cpu = open_device(&cpu_quantizer), gpu = open_device(&cuda_quantizer);
  const Case cases[] = {
      {20, 48, 16, 100}, {72, 192, 32, 300}, {40, 256, 64, 400}, {200, 384, 128, 600}, {24, 1152, 128, 300}};
  for (const Case &c : cases) test_case(cpu, gpu, c);
#ifndef EMULATED_ARCH
  test_case(cpu, gpu, {2304, 3072, 128, 4000});
#endif
  test_multiply(gpu);
  test_dependent_inputs(cpu, gpu);
  test_refusals(gpu);
  cpu.q->close(cpu.state);
  gpu.q->close(gpu.state);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
