/* test_product.c - every form of matrix product, in every instruction set here, against doubles. */
#include <math.h>

#include "cpu_test.h"
#include "model/loaders.h"
#include "test/tests.h"

enum { MAX_ROWS = 100 };
static const int row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 32, 33, 64, 100};

/* y over all columns, cut as a driver cuts them. */
static void whole_product(const Kernels *kernels, const Linear *w, const float *x, size_t stride, int n_rows,
                          int columns, float *y) {
  enum { WIDTH = MATMUL_COLUMNS * 4 };
  static float tile[MATMUL_ROWS * WIDTH], parts[MAX_SPLITS * FEW_ROWS * WIDTH];
  for (int first = 0; first < w->n_out; first += columns) {
    int n = w->n_out - first < columns ? w->n_out - first : columns, n_splits = matmul_splits(w);
    if (n_rows <= FEW_ROWS) {
      const size_t step = (size_t)n_rows * WIDTH;
      const InputRows rows = {x, stride, n_rows};
      kernels->matmul_few(w, rows, 0, n_splits / 2, first, n, (NextWeights){0},
                          (PartialSums){parts, step, WIDTH});
      kernels->matmul_few(w, rows, n_splits / 2, n_splits, first, n, (NextWeights){w->qweight, 64, 128},
                          (PartialSums){parts + (size_t)(n_splits / 2) * step, step, WIDTH});
      for (size_t r = 0; r < (size_t)n_rows; r++)
        kernels->join(parts + r * WIDTH, step, n_splits, n, tile + r * WIDTH);
    } else {
      kernels->matmul_rows(w, x, stride, n_rows, first, n, tile, WIDTH);
    }
    for (int r = 0; r < n_rows; r++)
      memcpy(y + (size_t)r * (size_t)w->n_out + first, tile + r * WIDTH, (size_t)n * sizeof *y);
  }
}

/* A chain of c terms errs by at most (c + 1) eps of the sum of their magnitudes (c + 1 where the products
 * round too); chains are as long as a split (AWQ) or 1024 / 4 (output by output, in 4 lanes); joining 16
 * splits or lanes comes on top. Where the product of zero point and scale is rounded, each weight is wrong by
 * that much more. A wrong nibble, scale or column is wrong by 10^-2 and more of it. */
static double allowed(const Linear *w, double magnitude) {
  int chain = matmul_by_outputs(w) ? 1024 / 4 : w->n_in / matmul_splits(w) + SPLIT_UNIT;
  if (chain > w->n_in) chain = w->n_in;
  return (chain + 2 + 16) * EPSILON * magnitude;
}

static void check(TestLinear t) {
  const Linear *w = &t.linear;
  size_t stride, n_out = (size_t)w->n_out, n_in = (size_t)w->n_in;
  float *x = test_rows(MAX_ROWS, w->n_in, &stride, 7);
  double *want = need(MAX_ROWS * n_out, sizeof *want), *size = need(MAX_ROWS * n_out, sizeof *size);
  float *single = need(MAX_ROWS * n_out, sizeof *single), *got = need(MAX_ROWS * n_out, sizeof *got);
  for (size_t r = 0; r < MAX_ROWS; r++) {
    for (size_t o = 0; o < n_out; o++) {
      for (size_t i = 0; i < n_in; i++) {
        double term = t.weights[o * n_in + i] * (double)x[r * stride + i];
        want[r * n_out + o] += term;
        size[r * n_out + o] += fabs(term) + t.shift * fabs((double)x[r * stride + i]) / w->n_in;
      }
    }
  }
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    for (size_t r = 0; r < MAX_ROWS; r++)
      whole_product(tables[isa], w, x + r * stride, stride, 1, MATMUL_COLUMNS * 4, single + r * n_out);
    for (size_t i = 0; i < MAX_ROWS * n_out; i++) {
      if (!(fabs((double)single[i] - want[i]) <= allowed(w, size[i])))
        fail_msg("%s, %d in, %d out, group %d: output %zu is %.9g, not %.9g", tables[isa]->name, w->n_in,
                 w->n_out, w->group, i % n_out, (double)single[i], want[i]);
    }
    for (int columns = 16; columns <= 208; columns += 64) {
      whole_product(tables[isa], w, x, stride, 1, columns, got);
      assert_memory_equal(got, single, n_out * sizeof *got);
    }
    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
      if (row_counts[i] == 1) continue;
      for (int columns = MATMUL_COLUMNS; columns <= MATMUL_COLUMNS * 4; columns *= 4) {
        if (columns > MATMUL_COLUMNS && row_counts[i] > FEW_ROWS) continue;
        whole_product(tables[isa], w, x, stride, row_counts[i], columns, got);
        assert_memory_equal(got, single, (size_t)row_counts[i] * n_out * sizeof *got);
      }
    }
  }
  free(x);
  free(want);
  free(size);
  free(single);
  free(got);
  test_linear_free(&t);
}

TEST(awq_of_every_group_size) {
  static const int groups[] = {16, 32, 64, 192, 576};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) check(test_awq(576, 176, groups[i], i));
  check(test_awq(1536, 64, 128, 1));
  check(test_awq(1536, 72, 1536, 2));
}

TEST(awq_of_awkward_shapes) {
  check(test_awq(40, 8, 20, 1));
  check(test_awq(1, 16, 1, 2));
  check(test_awq(7, 24, 7, 3));
  check(test_awq(130, 40, 65, 4));
  check(test_awq(129, 568, 43, 5));
  check(test_awq(64, 1544, 32, 6));
}

TEST(grouped_in_bytes) {
  for (int bits = 4; bits <= 8; bits += 4) {
    static const int groups[] = {16, 64, 576};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
      check(test_grouped(bits, 576, 176, groups[i], i));
    check(test_grouped(bits, 1536, 72, 128, 1));
    check(test_grouped(bits, 40, 8, 20, 2));
    check(test_grouped(bits, 7, 24, 7, 3));
    check(test_grouped(bits, 129, 568, 43, 4));
    check(test_grouped(bits, 64, 1544, 32, 5));
  }
}

/* A matrix whose rows belong to others as well. */
TEST(grouped_columns_of_a_wider_matrix) {
  enum { N_IN = 96, N_OUT = 200, FIRST = 64, N = 72 };
  for (int bits = 4; bits <= 8; bits += 4) {
    TestLinear whole = test_grouped(bits, N_IN, N_OUT, 32, 1), part = whole;
    Linear *w = &part.linear;
    w->n_out = N;
    w->skip = N_OUT - N;
    w->qweight = (const uint8_t *)w->qweight + FIRST * bits / 8;
    w->qzeros = (const uint8_t *)w->qzeros + FIRST;
    w->scales = (const uint8_t *)w->scales + FIRST * 4;
    size_t stride;
    float *x = test_rows(MAX_ROWS, N_IN, &stride, 7);
    float *all = need(MAX_ROWS * N_OUT, sizeof *all), *some = need(MAX_ROWS * N, sizeof *some);
    int n_tables;
    const Kernels *const *tables = kernels_usable(&n_tables);
    for (int isa = 0; isa < n_tables; isa++) {
      for (int n_rows = 1; n_rows <= 9; n_rows += 8) {
        whole_product(tables[isa], &whole.linear, x, stride, n_rows, MATMUL_COLUMNS, all);
        whole_product(tables[isa], w, x, stride, n_rows, MATMUL_COLUMNS, some);
        for (int r = 0; r < n_rows; r++)
          assert_memory_equal(some + r * N, all + r * N_OUT + FIRST, N * sizeof *some);
      }
    }
    free(x);
    free(all);
    free(some);
    test_linear_free(&whole);
  }
}

/* Outputs [first, first + n_out) of a matrix that holds more, where they lie. */
static TestLinear part_of(TestLinear whole, int first, int n_out) {
  Error err;
  size_t n_in = (size_t)whole.linear.n_in, size = (size_t)n_out * n_in * sizeof *whole.weights;
  double *weights = need(1, size);
  memcpy(weights, whole.weights + (size_t)first * n_in, size);
  free(whole.weights);
  whole.weights = weights;
  assert_int_equal(linear_cut(&whole.linear, first, n_out, "a file", &err), STATUS_OK);
  return whole;
}

TEST(layers_that_are_stored_as_one_matrix) {
  check(part_of(test_awq(576, 176, 32, 1), 0, 64));
  check(part_of(test_awq(576, 176, 576, 2), 64, 40));
  check(part_of(test_awq(192, 176, 64, 3), 104, 72));
  check(part_of(test_awq(40, 24, 20, 4), 16, 8));
  check(part_of(test_grouped(8, 192, 176, 64, 5), 104, 72));
  check(part_of(test_dense(172, 97, DTYPE_F16, 6), 31, 50));
  check(part_of(test_fp8(172, 97, 32, 48, 5, 7), 31, 50));
  check(part_of(test_fp8(64, 97, 32, 64, 0, 8), 64, 33));
  check(part_of(test_fp4(96, 97, 16, 9), 31, 50));
  TestLinear t = test_awq(32, 24, 32, 7);
  Error err;
  assert_int_equal(linear_cut(&t.linear, 4, 8, "a file", &err), STATUS_MODEL);
  assert_string_equal(
      err.text, "a file: test holds several layers, of which one has the outputs 4 to 11, expected eights");
  test_linear_free(&t);
}

TEST(dense_of_every_type) {
  static const Dtype types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
  for (size_t i = 0; i < 3; i++) {
    check(test_dense(576, 172, types[i], i));
    check(test_dense(172, 97, types[i], i));
    check(test_dense(1, 1, types[i], i));
    check(test_dense(15, 3, types[i], i));
    check(test_dense(2051, 21, types[i], i));
  }
}

TEST(fp8_with_scales_of_blocks) {
  check(test_fp8(576, 172, 128, 128, 0, 1));
  check(test_fp8(2051, 21, 128, 128, 0, 2));
  check(test_fp8(2051, 21, 1, 2051, 0, 3));
  check(test_fp8(1100, 97, 97, 1100, 0, 4));
  check(test_fp8(1100, 97, 40, 48, 39, 5));
  check(test_fp8(15, 3, 2, 15, 1, 6));
  check(test_fp8(1, 1, 1, 1, 0, 7));
}

TEST(fp4_in_groups_of_16_and_32) {
  for (int group = 16; group <= 32; group += 16) {
    check(test_fp4(576, 172, group, 1));
    check(test_fp4(2080, 21, group, 2));
    check(test_fp4(group, 3, group, 3));
    check(test_fp4(1056, 97, group, 4));
  }
}

/* Infinities, NaN and subnormal numbers of fp16 arrive as they are. */
TEST(special_halves) {
  enum { N = 32 };
  uint16_t halves[N] = {0x0001, 0x03ff, 0x0400, 0x7bff, 0x8001, 0x83ff, 0x8400, 0xfbff, 0, 0x3c00};
  float x[N] = {0}, y[N];
  Linear w = {.kind = LINEAR_DENSE, .n_in = 1, .n_out = N, .dtype = DTYPE_F16, .weight = halves};
  halves[10] = 0x7c00;
  halves[11] = 0xfc00;
  halves[12] = 0x7e01;
  x[0] = 1;
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    tables[isa]->matmul_few(&w, (InputRows){x, sizeof x / sizeof *x, 1}, 0, 1, 0, N, (NextWeights){0},
                            (PartialSums){y, 0, 0});
    for (int i = 0; i < N; i++) {
      if (i == 12)
        assert_true(isnan(y[i]));
      else
        assert_true(y[i] == f16_to_float(halves[i]));
    }
  }
}
