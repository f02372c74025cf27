/* test_int8.c - products of int8 weights and rounded activations: whole numbers, so that every instruction
 * set has to give the sums exactly; and the rounding, step by step as compressed-tensors does it. */
#include <math.h>

#include "cpu_test.h"
#include "test/tests.h"

TEST(rounds_as_compressed_tensors) {
  static const int widths[] = {1, 7, 16, 33, 576};
  uint64_t seed = 1;
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      for (int turn = 0; turn < 50; turn++) {
        int16_t want[600], got[600];
        float x[600] = {0};
        for (int i = 0; i < widths[w]; i++) {
          x[i] = ldexpf(next_float(&seed), turn - 25);
          /* Halves of a step, which are ties, and the ends, which -128 has and 128 has not. */
          if (turn % 5 == 4) x[i] = (float)((int)(next_random(&seed) % 511) - 255) * 0.5f;
        }
        if (turn % 10 == 4) x[0] = turn % 20 == 4 ? 127.5f : -127.5f;
        if (turn == 49) memset(x, 0, sizeof x);
        float scale = tables[isa]->round_row(x, widths[w], got);
        assert_true(scale == test_round(x, widths[w], want));
        assert_memory_equal(got, want, (size_t)widths[w] * sizeof *got);
      }
    }
  }
}

TEST(what_is_not_finite_stays_so) {
  static const float strange[] = {INFINITY, -INFINITY, NAN};
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    for (int i = 0; i < 3; i++) {
      float x[48] = {1, 2, 3};
      int16_t out[48];
      x[40] = strange[i];
      assert_true(isnan(tables[isa]->round_row(x, 41, out)));
    }
  }
}

enum { MAX_ROWS = 20 };

/* All extremes: the largest sums that the loader lets through. */
static void fill(int8_t *weights, int16_t *x, size_t n_weights, size_t n_x, int turn, uint64_t *seed) {
  for (size_t i = 0; i < n_weights; i++) weights[i] = turn ? -128 : (int8_t)(next_random(seed) >> 8);
  for (size_t i = 0; i < n_x; i++) x[i] = turn ? -128 : (int8_t)(next_random(seed) >> 8);
}

static void check(int n_in, int n_out, int turn) {
  uint64_t seed = (uint64_t)n_in;
  const size_t in = (size_t)n_in, out = (size_t)n_out,
               stride = (in + ROUNDED_ALIGN - 1) / ROUNDED_ALIGN * ROUNDED_ALIGN;
  int8_t *plain = need(in * out, 1);
  int16_t *numbers = need(MAX_ROWS * stride, sizeof *numbers);
  float *scales = need(out, sizeof *scales), *y = need(MAX_ROWS * MATMUL_COLUMNS, sizeof *y),
        row_scales[MAX_ROWS];
  void *owners[2];
  fill(plain, numbers, in * out, MAX_ROWS * stride, turn, &seed); /* also the bytes after a row */
  for (size_t o = 0; o < out; o++) scales[o] = turn ? 1 : next_float(&seed);
  for (int r = 0; r < MAX_ROWS; r++) row_scales[r] = turn ? 1 : next_float(&seed);
  const Linear w = {.kind = LINEAR_INT8,
                    .n_in = n_in,
                    .n_out = n_out,
                    .bits = 8,
                    .weight = misaligned(plain, in * out, &owners[0]),
                    .scales = misaligned(scales, out * 4, &owners[1])};
  const RoundedRows x = {numbers, row_scales, stride};
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    for (int n_rows = 1; n_rows <= MAX_ROWS; n_rows += n_rows < 9 ? 1 : 11) {
      for (int first = 0; first < n_out; first += MATMUL_COLUMNS) {
        int n = n_out - first < MATMUL_COLUMNS ? n_out - first : MATMUL_COLUMNS;
        tables[isa]->matmul_int8(&w, x, n_rows, first, n, y, MATMUL_COLUMNS);
        for (int r = 0; r < n_rows; r++) {
          for (int o = 0; o < n; o++) {
            int64_t sum = 0;
            for (size_t i = 0; i < in; i++)
              sum += plain[(size_t)(first + o) * in + i] * numbers[(size_t)r * stride + i];
            assert_in_range(sum + INT32_MAX, 0, 2ull * INT32_MAX);
            assert_true(y[r * MATMUL_COLUMNS + o] ==
                        (float)(int32_t)sum * (row_scales[r] * scales[first + o]));
          }
        }
      }
    }
  }
  for (int i = 0; i < 2; i++) free(owners[i]);
  free(plain);
  free(numbers);
  free(scales);
  free(y);
}

TEST(sums_are_exact) {
  check(1, 1, 0);
  check(31, 5, 0);
  check(64, 96, 0);
  check(129, 70, 0);
  check(576, 43, 0);
  check((1 << 17) - 1, 5, 1);
}
