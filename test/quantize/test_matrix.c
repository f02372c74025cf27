/* test_matrix.c - rounding one matrix, against plain definitions in double. */
#include "quantize/matrix.h"

#include <math.h>

#include "quantize/factor.h"
#include "quantize/layouts.h"
#include "quantize/scales.h"
#include "quantize/target.h"
#include "test/tests.h"

enum { N_OUT = 200, N_IN = 192, GROUP = 32, N_ROWS = 500 };

static float random_float(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (float)(*seed >> 40) * 0x1p-23f - 1;
}

/* Weights, and the second moments of correlated inputs of unequal sizes. */
typedef struct {
  float *w, *x, *h;
} Case;

static Case make_case(const Products *products) {
  Case c = {calloc(N_OUT * N_IN, sizeof(float)), calloc(N_ROWS * N_IN, sizeof(float)),
            calloc(N_IN * N_IN, sizeof(float))};
  uint64_t seed = 7;
  for (int i = 0; i < N_OUT * N_IN; i++) c.w[i] = random_float(&seed) * random_float(&seed);
  for (int r = 0; r < N_ROWS; r++) {
    const float common = random_float(&seed);
    for (int i = 0; i < N_IN; i++)
      c.x[r * N_IN + i] = (common + random_float(&seed)) * (i % 17 == 0 ? 6 : 0.5f);
  }
  Error err;
  const Rows rows = {c.x, N_IN};
  assert_int_equal(sums_add(products, N_IN, rows, N_IN, rows, N_ROWS, c.h, &err), STATUS_OK);
  assert_int_equal(square_finish(products, 1.0f / N_ROWS, N_IN, c.h, &err), STATUS_OK);
  return c;
}

static void free_case(Case c) {
  free(c.w);
  free(c.x);
  free(c.h);
}

static Rounded round_case(const Products *products, Recipe recipe, const Case *c, double *loss) {
  Error err;
  Rounded rounded;
  const Weights weights = {N_OUT, N_IN, GROUP, c->w};
  float *lower = calloc(N_IN * N_IN, sizeof *lower);
  assert_int_equal(rounded_make(N_OUT, N_IN, GROUP, &rounded, &err), STATUS_OK);
  assert_int_equal(factor_make(products, c->h, N_IN, lower, &err), STATUS_OK);
  assert_int_equal(
      matrix_round(products, &recipe, &weights, c->h, recipe.compensates ? lower : NULL, &rounded, &err),
      STATUS_OK);
  assert_int_equal(matrix_loss(products, &weights, c->h, &rounded, loss, &err), STATUS_OK);
  free(lower);
  return rounded;
}

/* fp32 sums of 500 products err by some 2^-24 sqrt(500) of their size. */
TEST(moments_are_means_of_products) {
  const Products products = products_make(2);
  Case c = make_case(&products);
  for (int i = 0; i < N_IN; i += 7)
    for (int j = 0; j < N_IN; j += 5) {
      double sum = 0, size = 0;
      for (int r = 0; r < N_ROWS; r++) {
        sum += (double)c.x[r * N_IN + i] * (double)c.x[r * N_IN + j] / N_ROWS;
        size += fabs((double)c.x[r * N_IN + i] * (double)c.x[r * N_IN + j]) / N_ROWS;
      }
      assert_true(fabs((double)c.h[i * N_IN + j] - sum) < 1e-5 * size);
    }
  free_case(c);
}

/* U^T U H = I: each number within fp32's error times H's condition, which is near 1e4 here. */
TEST(factor_is_that_of_the_inverse) {
  const Products products = products_make(2);
  Case c = make_case(&products);
  Error err;
  float *lower = calloc(N_IN * N_IN, sizeof *lower);
  assert_int_equal(factor_make(&products, c.h, N_IN, lower, &err), STATUS_OK);
  for (int i = 0; i < N_IN; i += 11)
    for (int j = 0; j < N_IN; j++) {
      double sum = 0;
      for (int k = 0; k < N_IN; k++) {
        double inverse = 0; /* (U^T U)[i][k] = sum over m of lower[i][m] lower[k][m] */
        for (int m = 0; m <= (i < k ? i : k); m++)
          inverse += (double)lower[i * N_IN + m] * (double)lower[k * N_IN + m];
        sum += inverse * (double)c.h[k * N_IN + j];
      }
      assert_true(fabs(sum - (i == j)) < 1e-3);
    }
  free(lower);
  free_case(c);
}

/* W' - W = share E[g a^T] H^-1: times H it is the share of E[g a^T], within fp32's error times H's
 * condition. */
TEST(targets_add_what_inputs_can_say) {
  enum { N_OTHERS = 24 };
  const Products products = products_make(2);
  Case c = make_case(&products);
  Error err;
  float *lower = calloc(N_IN * N_IN, sizeof *lower), *cross = calloc(N_OTHERS * N_IN, sizeof *cross),
        *w = calloc(N_OTHERS * N_IN, sizeof *w), *changes = calloc(N_IN * N_IN, sizeof *changes);
  const Rows rows = {c.x, N_IN}, others = {c.x + N_IN, N_IN}; /* the next row's */
  const Weights weights = {N_OTHERS, N_IN, GROUP, w};
  assert_int_equal(sums_add(&products, N_OTHERS, others, N_IN, rows, N_ROWS - 1, cross, &err), STATUS_OK);
  for (int o = 0; o < N_OTHERS; o++)
    for (int i = 0; i < N_IN; i += 3) {
      double sum = 0, size = 0;
      for (int r = 0; r < N_ROWS - 1; r++) {
        const double product = (double)c.x[(r + 1) * N_IN + o] * (double)c.x[r * N_IN + i];
        sum += product, size += fabs(product);
      }
      assert_true(fabs((double)cross[o * N_IN + i] - sum) < 1e-5 * size);
    }
  assert_int_equal(factor_make(&products, c.h, N_IN, lower, &err), STATUS_OK);
  assert_int_equal(sums_add(&products, N_IN, rows, N_IN, others, N_ROWS - 1, changes, &err), STATUS_OK);
  for (int o = 0; o < N_OTHERS; o++)
    for (int i = 0; i < N_IN; i++) w[o * N_IN + i] = c.x[o * N_IN + i];
  const Target target = {.share = 0.5, .residual = 2, .drifts = cross, .changes = changes, .lower = lower};
  assert_int_equal(target_correct(&products, &target, &weights, &err), STATUS_OK);
  for (int o = 0; o < N_OTHERS; o++)
    for (int i = 0; i < N_IN; i++) {
      double sum = 0, size = 0, gain = 2 * (double)cross[o * N_IN + i];
      for (int k = 0; k < N_IN; k++) {
        const double own = (double)c.x[o * N_IN + k],
                     product = ((double)w[o * N_IN + k] - own) * (double)c.h[k * N_IN + i];
        gain += own * (double)changes[i * N_IN + k];
        sum += product, size += fabs(product);
      }
      assert_true(fabs(sum - 0.5 * gain) < 1e-3 * size);
    }
  free(lower), free(cross), free(w), free(changes);
  free_case(c);
}

TEST(losses_fall_with_each_part_of_the_method) {
  const Products products = products_make(2);
  Case c = make_case(&products);
  Recipe plain = usual_recipe, search = usual_recipe, gptq = usual_recipe;
  plain.search = plain_rounding;
  plain.compensates = search.compensates = false;
  plain.refinements = search.refinements = gptq.refinements = 0;
  double losses[4];
  Rounded rounded[4] = {
      round_case(&products, plain, &c, &losses[0]), round_case(&products, search, &c, &losses[1]),
      round_case(&products, gptq, &c, &losses[2]), round_case(&products, usual_recipe, &c, &losses[3])};
  assert_true(losses[1] < 0.9 * losses[0]);
  assert_true(losses[2] < 0.7 * losses[1]);
  assert_true(losses[3] < 0.97 * losses[2]);
  Error err;
  float ones[N_IN], scales[N_IN];
  double trial, scaled;
  const Weights weights = {N_OUT, N_IN, GROUP, c.w};
  for (int i = 0; i < N_IN; i++) ones[i] = 1;
  assert_int_equal(matrix_trial(&products, &plain_rounding, &weights, c.h, ones, &trial, &err), STATUS_OK);
  assert_true(fabs(trial / losses[0] - 1) < 1e-4);
  assert_int_equal(scales_search(&cpu_quantizer, &products, &usual_recipe.trial, &weights, 1, c.h,
                                 (SharedScales){0}, scales, &err),
                   STATUS_OK);
  const GroupSearch *search_trial = &usual_recipe.trial;
  assert_int_equal(matrix_trial(&products, search_trial, &weights, c.h, ones, &trial, &err), STATUS_OK);
  assert_int_equal(matrix_trial(&products, search_trial, &weights, c.h, scales, &scaled, &err), STATUS_OK);
  assert_true(scaled < 0.8 * trial); /* one input in 17 is twelve times the others */
  for (int i = 0; i < 4; i++) rounded_release(&rounded[i]);
  free_case(c);
}

/* A trial is the rounding of W diag(factors) for inputs divided by the factors, without compensation: the
 * same codes, so that only the order of sums differs. */
TEST(trials_are_roundings_of_scaled_weights) {
  const Products products = products_make(2);
  Case c = make_case(&products);
  Recipe recipe = usual_recipe;
  recipe.search = usual_recipe.trial;
  recipe.compensates = false;
  recipe.refinements = 0;
  Error err;
  float factors[N_IN];
  double trial, loss;
  uint64_t seed = 3;
  const Weights weights = {N_OUT, N_IN, GROUP, c.w};
  for (int i = 0; i < N_IN; i++) factors[i] = 1.1f + random_float(&seed);
  assert_int_equal(matrix_trial(&products, &recipe.search, &weights, c.h, factors, &trial, &err), STATUS_OK);
  for (int i = 0; i < N_OUT * N_IN; i++) c.w[i] *= factors[i % N_IN];
  for (int i = 0; i < N_IN * N_IN; i++) c.h[i] /= factors[i / N_IN] * factors[i % N_IN];
  Rounded rounded = round_case(&products, recipe, &c, &loss);
  assert_true(fabs(trial / loss - 1) < 1e-4);
  rounded_release(&rounded);
  free_case(c);
}

/* Moments of 20 rows of 64 inputs have no factor: it is that of H with more on the diagonal, at first a
 * thousandth of its mean. */
TEST(dependent_inputs_have_a_factor) {
  enum { N = 64, ROWS = 20 };
  const Products products = products_make(1);
  float *x = calloc(ROWS * N, sizeof *x), *h = calloc(N * N, sizeof *h),
        *lower = calloc(N * N, sizeof *lower);
  uint64_t seed = 5;
  double mean = 0;
  Error err;
  for (int i = 0; i < ROWS * N; i++) x[i] = random_float(&seed);
  for (int i = 0; i < N * N; i++)
    for (int r = 0; r < ROWS; r++) h[i] += x[r * N + i / N] * x[r * N + i % N];
  for (int i = 0; i < N; i++) mean += (double)h[i * N + i] / N;
  assert_int_equal(factor_make(&products, h, N, lower, &err), STATUS_OK);
  for (int i = 0; i < N; i++) assert_true(isfinite(lower[i * N + i]) && lower[i * N + i] > 0);
  const double rest = 1 / pow((double)lower[0], 2); /* of the first input's square, given all others */
  assert_true(rest > 0.9e-3 * mean && rest < (double)h[0]);
  free(x), free(h), free(lower);
}

/* The loss by second moments is the mean square of the outputs' change. */
TEST(loss_is_the_change_of_outputs) {
  const Products products = products_make(1);
  Case c = make_case(&products);
  double loss, sum = 0;
  Rounded rounded = round_case(&products, usual_recipe, &c, &loss);
  const size_t row = rounded_row(N_OUT);
  for (int r = 0; r < N_ROWS; r++)
    for (int o = 0; o < N_OUT; o++) {
      double change = 0;
      for (int i = 0; i < N_IN; i++) {
        const size_t place = (size_t)(i / GROUP) * row + (size_t)o;
        const double now = ((double)rounded.codes[o * N_IN + i] - (double)rounded.zeros[place]) *
                           (double)rounded.scales[place];
        change += (now - (double)c.w[o * N_IN + i]) * (double)c.x[r * N_IN + i];
      }
      sum += change * change / N_ROWS;
    }
  assert_true(fabs(loss / sum - 1) < 1e-3);
  rounded_release(&rounded);
  free_case(c);
}

TEST(threads_change_no_byte) {
  const Products one = products_make(1), three = products_make(3);
  Case a = make_case(&one), b = make_case(&three);
  double losses[2];
  assert_memory_equal(a.h, b.h, N_IN * N_IN * sizeof *a.h);
  Rounded x = round_case(&one, usual_recipe, &a, &losses[0]),
          y = round_case(&three, usual_recipe, &b, &losses[1]);
  assert_memory_equal(x.codes, y.codes, N_OUT * N_IN);
  assert_memory_equal(x.scales, y.scales, 2 * (N_IN / GROUP) * rounded_row(N_OUT) * sizeof *x.scales);
  assert_memory_equal(&losses[0], &losses[1], sizeof *losses);
  rounded_release(&x);
  rounded_release(&y);
  free_case(a);
  free_case(b);
}

/* Writes a matrix in a layout to a file and reads its Linear back. */
TEST(layouts_hold_the_codes) {
  const Products products = products_make(1);
  Case c = make_case(&products);
  double loss;
  for (int layout = LAYOUT_AWQ; layout <= LAYOUT_COMPRESSED; layout++) {
    Error err;
    Tensors out = {0}, made = {0};
    Safetensors file;
    enum { FIRST = 104 };
    Linear linear = {.n_in = N_IN, .n_out = FIRST, .name = "m"},
           second = {.n_in = N_IN, .n_out = N_OUT - FIRST, .name = "m"};
    LayerMatrix m = {.name = "m", .views = {&linear, &second}, .n_views = 2, .n_in = N_IN, .n_out = N_OUT};
    m.rounded = round_case(&products, usual_recipe, &c, &loss);
    char path[] = "/tmp/auk-test-layout-XXXXXX";
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(layout_write((QuantLayout)layout, &m, GROUP, &out, &err), STATUS_OK);
    assert_int_equal(tensors_write(&out, path, "\"a\":\"b\"", &err), STATUS_OK);
    assert_int_equal(safetensors_open(path, &file, &err), STATUS_OK);
    assert_int_equal(layout_use((QuantLayout)layout, &m, GROUP, &file, &made, &err), STATUS_OK);
    LayerMatrix wider = m;
    wider.n_out += 8;
    assert_int_equal(layout_use((QuantLayout)layout, &wider, GROUP, &file, &made, &err), STATUS_FAILED);
    static const int order[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* the nibble of each of eight outputs */
    for (int i = 0; i < N_IN; i++)
      for (int o = 0; o < N_OUT; o++) {
        uint32_t word;
        memcpy(&word, (const char *)linear.qweight + 4 * (i * (N_OUT / 8) + o / 8), sizeof word);
        assert_int_equal(word >> 4 * order[o % 8] & 15, m.rounded.codes[o * N_IN + i]);
      }
    for (int o = 13; o < N_OUT; o += FIRST) {
      float row[N_IN];
      linear_read(o < FIRST ? &linear : &second, o % FIRST, 0, N_IN, row);
      for (int i = 0; i < N_IN; i++) {
        const size_t place = (size_t)(i / GROUP) * rounded_row(N_OUT) + (size_t)o;
        const float level = (float)m.rounded.codes[o * N_IN + i] - m.rounded.zeros[place];
        assert_true(row[i] == level * m.rounded.scales[place]);
      }
    }
    tensors_release(&out);
    tensors_release(&made);
    rounded_release(&m.rounded);
    safetensors_close(&file);
    remove(path);
  }
  free_case(c);
}

TEST(numbers_are_rounded_to_nearest_and_ties_to_even) {
  static const float values[] = {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.1p-8f, -1 - 0x0.fp-8f};
  static const uint16_t expected[] = {0x3f80, 0x3f82, 0x3f81, 0xbf80};
  uint16_t made[4];
  for (size_t i = 0; i < 4; i++) number_write(made, DTYPE_BF16, i, values[i]);
  assert_memory_equal(made, expected, sizeof made);
}
