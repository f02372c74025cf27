/* test_rows.c - what is done to single rows: norm, gated product, rotation, joining and merging of sums. */
#include <math.h>

#include "cpu_test.h"
#include "test/tests.h"

static const Kernels *const *tables(int *n) {
  return kernels_usable(n);
}

static void assert_near(const Kernels *kernels, float got, double want, double bound) {
  if (!(fabs((double)got - want) <= bound))
    fail_msg("%s: %.9g, not %.9g (more than %g off)", kernels->name, (double)got, want, bound);
}

/* The factor is right to one rounding; two products follow: 3 eps. */
TEST(rms_norm) {
  static const int widths[] = {1, 2, 34, 64, 172, 576, 5120};
  int n_tables;
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    int n = widths[w];
    size_t stride;
    float *x = test_rows(1, n, &stride, 3), *weight = test_rows(1, n, &stride, 4),
          *out = need(stride, sizeof *out);
    x[n / 2] *= 1000;
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
      const Kernels *kernels = tables(&n_tables)[isa];
      kernels->rms_norm(x, weight, n, 1e-5, out);
      for (int i = 0; i < n; i++) {
        double want = (double)x[i] * (double)weight[i] / sqrt(squares / n + 1e-5);
        assert_near(kernels, out[i], want, 3.5 * EPSILON * fabs(want) + 1e-44);
      }
      float *self = test_rows(1, n, &stride, 3);
      self[n / 2] *= 1000;
      kernels->rms_norm(self, weight, n, 1e-5, self);
      assert_memory_equal(self, out, (size_t)n * sizeof *out);
      free(self);
    }
    free(x);
    free(weight);
    free(out);
  }
}

/* e^-g errs by 2 eps at most (1 ulp), the sum, the quotient and the product by one each: 5 eps, and what is
 * below the smallest normal number by its own unit. */
TEST(silu_multiply) {
  enum { N = 4003 };
  static float gate[N], up[N], out[N];
  uint64_t seed = 5;
  for (int i = 0; i < N; i++) {
    gate[i] = (float)(i - N / 2) * 0.06f + 0.001f * next_float(&seed);
    up[i] = next_float(&seed);
  }
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    memcpy(out, gate, sizeof out);
    kernels->activate(ACTIVATION_SILU, NULL, out, up, N);
    for (int i = 0; i < N; i++) {
      double want = (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i];
      /* Below -88 the quotient's divisor leaves fp32's range, and the result is 0. */
      double bound = gate[i] < -88 ? 1e-36 : 5.5 * EPSILON * fabs(want) + 1e-44;
      assert_near(kernels, out[i], want, bound);
    }
    float odd[3] = {NAN, INFINITY, -INFINITY}, ones[3] = {1, 1, 1};
    kernels->activate(ACTIVATION_SILU, NULL, odd, ones, 3);
    assert_true(isnan(odd[0]));
    assert_true(odd[1] == INFINITY);
    assert_true(isnan(odd[2])); /* -inf / (1 + inf) */
  }
}

/* The exponent -2u is a product of five roundings, which e^-2u carries times |2u|; then as above. */
TEST(gelu_multiply) {
  enum { N = 4003 };
  static float gate[N], up[N], out[N];
  uint64_t seed = 8;
  for (int i = 0; i < N; i++) {
    gate[i] = (float)(i - N / 2) * 0.005f + 0.001f * next_float(&seed);
    up[i] = next_float(&seed);
  }
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    memcpy(out, gate, sizeof out);
    kernels->activate(ACTIVATION_GELU_TANH, NULL, out, up, N);
    for (int i = 0; i < N; i++) {
      double x = (double)gate[i], u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      double want = 0.5 * x * (1 + tanh(u)) * (double)up[i];
      if (u < -5) want = x / (1 + exp(-2 * u)) * (double)up[i]; /* where 1 + tanh(u) loses digits */
      double bound = u < -44 ? 1e-36 : (6 * fabs(2 * u) + 6) * EPSILON * fabs(want) + 1e-44;
      assert_near(kernels, out[i], want, bound);
    }
    float odd[4] = {NAN, INFINITY, 1e20f, -1e20f}, ones[4] = {1, 1, 1, 1};
    kernels->activate(ACTIVATION_GELU_TANH, NULL, odd, ones, 4);
    assert_true(isnan(odd[0]) && odd[1] == INFINITY && odd[2] == 1e20f && odd[3] == 0);
  }
}

static double xielu_of(double u, const Xielu *own) {
  const double eps = (double)own->eps, below = (double)own->alpha_n * (expm1(u < eps ? u : eps) - u);
  return (double)own->beta * u + (u > 0 ? (double)own->alpha_p * u * u : below);
}

/* Above 0 three roundings of terms that do not cancel: 4 eps. Below, e^u errs by 2 eps, and each
 * difference of e^u - 1 - u is rounded: 6 eps of the largest term, times alpha_n, and the sum's rounding. */
TEST(xielu) {
  enum { N = 4003 };
  static float u[N], out[N];
  const Xielu own = {.alpha_p = 0.8f, .alpha_n = 1.7f, .beta = 0.3f, .eps = -0.125f};
  for (int i = 0; i < N; i++) u[i] = (float)(i - N / 2) * 0.02f;
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    memcpy(out, u, sizeof out);
    kernels->activate(ACTIVATION_XIELU, &(ActivationNumbers){.xielu = own}, out, out, N);
    for (int i = 0; i < N; i++) {
      const double x = (double)u[i], want = xielu_of(x, &own);
      const double bound = x > 0 ? 4 * EPSILON * want : (6 * (double)own.alpha_n + 2) * EPSILON * fmax(1, -x);
      assert_near(kernels, out[i], want, bound + 1e-44);
    }
    float odd[3] = {NAN, INFINITY, 0};
    kernels->activate(ACTIVATION_XIELU, &(ActivationNumbers){.xielu = own}, odd, odd, 3);
    assert_true(isnan(odd[0]) && odd[1] == INFINITY && odd[2] != 0);
  }
}

/* Near 0, with the eps of a model that has none of its own. For m = min(u, eps), e^m - 1 errs by 5 eps |m|:
 * of its seven roundings the first four are of terms below 2^-7. The difference, its product with alpha_n,
 * beta u and their sum are rounded: 4 eps of terms of at most alpha_n times |m| or |u|. */
TEST(xielu_near_zero) {
  enum { N = 4003 };
  static float u[N], out[N];
  const Xielu own = {.alpha_p = 0.8f, .alpha_n = 1.7f, .beta = 0.5f, .eps = -1e-6f};
  for (int i = 0; i < N; i++) u[i] = -0x1p-6f * powf(0.99f, (float)(i + 1)); /* to 5e-20 */
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    memcpy(out, u, sizeof out);
    kernels->activate(ACTIVATION_XIELU, &(ActivationNumbers){.xielu = own}, out, out, N);
    for (int i = 0; i < N; i++) {
      const double x = (double)u[i], bound = 9 * (double)own.alpha_n * EPSILON * fmax(-x, -(double)own.eps);
      assert_near(kernels, out[i], xielu_of(x, &own), bound);
    }
  }
}

/* e^-x errs by 2 eps, the sum and the quotient by one each: 4 eps. */
TEST(sigmoid) {
  enum { N = 4003 };
  static float x[N], out[N];
  for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 0.06f;
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    memcpy(out, x, sizeof out);
    kernels->sigmoid(out, N);
    for (int i = 0; i < N; i++) {
      double want = 1 / (1 + exp(-(double)x[i]));
      assert_near(kernels, out[i], want, x[i] < -88 ? 1e-37 : 4.5 * EPSILON * want);
    }
    float odd[3] = {NAN, INFINITY, -INFINITY};
    kernels->sigmoid(odd, 3);
    assert_true(isnan(odd[0]) && odd[1] == 1 && odd[2] < 1e-37f);
  }
}

/* The quotient and the product round once each, and tanh errs by 4 eps (vector.h: 2 ulp); its result depends
 * on its argument at most in proportion: 6 eps. */
TEST(soft_cap) {
  enum { N = 4003 };
  static float x[N], out[N];
  for (int i = 0; i < N; i++) x[i] = ldexpf((float)(i - N / 2) / (N / 8), i % 5 ? 5 : -20 * (i % 3));
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    for (float cap = 0.5f; cap < 100; cap *= 10) {
      memcpy(out, x, sizeof out);
      kernels->soft_cap(out, N, cap);
      for (int i = 0; i < N; i++) {
        double want = (double)cap * tanh((double)x[i] / (double)cap);
        assert_near(kernels, out[i], want, 6.5 * EPSILON * fabs(want));
      }
    }
    float odd[5] = {NAN, INFINITY, -INFINITY, 0, -0.0f};
    kernels->soft_cap(odd, 5, 30);
    assert_true(isnan(odd[0]) && odd[1] == 30 && odd[2] == -30 && odd[3] == 0 && odd[4] == 0);
  }
}

static void check_rotate(bool neighbours) {
  static const int halves[] = {0, 1, 17, 32, 40, 64, 128};
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    for (size_t h = 0; h < sizeof halves / sizeof *halves; h++) {
      int half = halves[h], dim = half < 100 ? 2 * half + 6 : 2 * half;
      float head[MAX_HEAD_DIM], before[MAX_HEAD_DIM], cosines[MAX_HEAD_DIM / 2], sines[MAX_HEAD_DIM / 2];
      uint64_t seed = 6;
      for (int i = 0; i < dim; i++) head[i] = before[i] = next_float(&seed);
      for (int i = 0; i < half; i++) {
        cosines[i] = cosf((float)i);
        sines[i] = sinf((float)i);
      }
      (neighbours ? kernels->rotate_neighbours : kernels->rotate)(head, cosines, sines, half, dim, 0.125f);
      for (int i = 0; i < half; i++) {
        const int first = neighbours ? 2 * i : i, second = neighbours ? 2 * i + 1 : half + i;
        double a = (double)before[first], b = (double)before[second], c = (double)cosines[i],
               s = (double)sines[i];
        /* Two rounded products and their sum, of numbers below 1, times 1/8. */
        assert_near(kernels, head[first], (a * c - b * s) / 8, 4 * EPSILON / 8);
        assert_near(kernels, head[second], (b * c + a * s) / 8, 4 * EPSILON / 8);
      }
      for (int i = 2 * half; i < dim; i++) assert_true(head[i] == before[i] / 8);
    }
  }
}

TEST(rotate) {
  check_rotate(false);
  check_rotate(true);
}

TEST(join_in_order) {
  enum { N = 77, PARTS = 5 };
  static float parts[PARTS][N + 3], got[N];
  uint64_t seed = 9;
  for (int p = 0; p < PARTS; p++) {
    for (int c = 0; c < N; c++) parts[p][c] = next_float(&seed);
  }
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    tables(&n_tables)[isa]->join(parts[0], N + 3, PARTS, N, got);
    for (int c = 0; c < N; c++) {
      float want = parts[0][c];
      for (int p = 1; p < PARTS; p++) want += parts[p][c];
      assert_true(got[c] == want);
    }
  }
}

TEST(merge_of_nothing_and_something) {
  int n_tables;
  for (int isa = 0; isa < (tables(&n_tables), n_tables); isa++) {
    const Kernels *kernels = tables(&n_tables)[isa];
    float out[16], later[16];
    for (int d = 0; d < 16; d++) {
      out[d] = NAN; /* not looked at while the sum is 0 */
      later[d] = (float)d;
    }
    SoftmaxSum sum = {0};
    kernels->merge(&sum, out, (SoftmaxSum){-300, 2}, later, 16);
    assert_true(sum.max == -300 && sum.sum == 2);
    assert_memory_equal(out, later, sizeof out);
    kernels->merge(&sum, out, (SoftmaxSum){0}, later, 16);
    assert_memory_equal(out, later, sizeof out);
    kernels->merge(&sum, out, (SoftmaxSum){-299, 1}, later, 16);
    double keep = exp(-1);
    assert_near(kernels, sum.sum, 2 * keep + 1, 8 * EPSILON);
    for (int d = 0; d < 16; d++) assert_near(kernels, out[d], d * (keep + 1), 8 * EPSILON * d);
  }
}
