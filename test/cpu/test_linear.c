/* test_linear.c - the products of a step as threads share them (cpu.h, run_matmuls), against doubles: kinds
 * of matrices beside each other, gates, biases and sums, with numbers of rows, threads, outputs and splits at
 * which the work is cut in another way. Whatever the cut, a row has the same bits. */
#include "cpu_test.h"

#include "cpu/cpu.h"
#include "test/tests.h"

enum { MOST_ROWS = 145, MOST_PRODUCTS = 3, BEHIND = 3, MOST_THREADS = 9 };

/* A letter for each kind: a AWQ, 4 and 8 GROUPED, d dense, i INT8, f FP4, e FP8; 0: no such matrix. */
typedef struct {
  char w, gate;
  int n_out;
  bool bias, gate_bias, add;
  float scale;
  Activation activation;
} Wanted;

typedef struct {
  const char *name;
  int n_in, n_rows; /* n_rows: most */
  Wanted products[MOST_PRODUCTS];
} Case;

static const Case cases[] = {
    {"q, k, v",
     96,
     145,
     {{.w = 'a', .n_out = 72, .bias = true}, {.w = 'a', .n_out = 40}, {.w = '4', .n_out = 8}}},
    {"three kinds",
     160,
     60,
     {{.w = 'd', .n_out = 33, .bias = true}, {.w = '8', .n_out = 24}, {.w = 'i', .n_out = 19, .bias = true}}},
    {"gate and up", 96, 60, {{.w = 'a', .gate = 'a', .n_out = 264, .bias = true, .gate_bias = true}}},
    {"a gate of int8",
     70,
     30,
     {{.w = 'd', .gate = 'i', .n_out = 40, .gate_bias = true, .activation = ACTIVATION_GELU_TANH}}},
    {"a gate in other splits",
     160,
     30,
     {{.w = 'a', .gate = 'd', .n_out = 40}, {.w = 'd', .gate = '8', .n_out = 24}, {.w = '4', .n_out = 16}}},
    {"both of int8", 70, 60, {{.w = 'i', .gate = 'i', .n_out = 67, .bias = true}}},
    {"both dense", 70, 30, {{.w = 'd', .gate = 'd', .n_out = 67}}},
    {"added", 160, 60, {{.w = '8', .n_out = 520, .add = true, .scale = 0.25f, .bias = true}}},
    {"dense added", 70, 30, {{.w = 'd', .n_out = 300, .add = true, .scale = 2, .bias = true}}},
    {"two dense", 70, 30, {{.w = 'd', .n_out = 30}, {.w = 'd', .n_out = 257}}},
    {"a dense head", 64, 30, {{.w = 'd', .n_out = 513}}},
    {"an int8 head", 64, 30, {{.w = 'i', .n_out = 257}}},
    {"four splits and a unit", 5 * SPLIT_UNIT - 2, 30, {{.w = 'a', .n_out = 16}}},
    {"three splits", 3 * SPLIT_UNIT, 30, {{.w = '8', .n_out = 264}}},
    {"five splits", 4 * 1024 + SPLIT_UNIT, 7, {{.w = 'a', .n_out = 24}}},
    {"enough bytes for pieces", 4096, 2, {{.w = '8', .gate = 'a', .n_out = 520}, {.w = 'd', .n_out = 24}}},
    {"as many splits as can be", 17 * 1024, 7, {{.w = '4', .n_out = 8}}},
    {"FP4 beside FP8",
     96,
     60,
     {{.w = 'f', .n_out = 72, .bias = true}, {.w = 'e', .n_out = 40}, {.w = 'a', .n_out = 8}}},
    {"a gate of FP8", 96, 30, {{.w = 'f', .gate = 'e', .n_out = 264, .gate_bias = true}}},
    {"an FP4 head", 64, 30, {{.w = 'f', .n_out = 513}}},
    {"FP8 added", 70, 60, {{.w = 'e', .n_out = 300, .add = true, .scale = 2, .bias = true}}},
    {"one input", 1, 30, {{.w = 'a', .n_out = 8}, {.w = 'd', .n_out = 1}, {.w = 'i', .n_out = 1}}},
};

static TestLinear linear_of(char kind, int n_in, int n_out, uint64_t seed) {
  const int group = n_in % 32 == 0 ? 32 : n_in;
  switch (kind) {
  case 'a': return test_awq(n_in, n_out, group, seed);
  case '4': return test_grouped(4, n_in, n_out, group, seed);
  case '8': return test_grouped(8, n_in, n_out, group, seed);
  case 'i': return test_int8(n_in, n_out, seed);
  case 'f': return test_fp4(n_in, n_out, 16, seed);
  case 'e': return test_fp8(n_in, n_out, 24, n_in % 32 == 0 ? 32 : n_in, 5, seed);
  default: return test_dense(n_in, n_out, DTYPE_BF16, seed);
  }
}

/* A case with its numbers. */
typedef struct {
  const Case *what;
  TestLinear linears[MOST_PRODUCTS][2];
  float *biases[MOST_PRODUCTS][2];
  float *x, *first; /* first: what is in y before */
  size_t x_stride;
  int n_products;
} World;

static float *vector_of(int n, uint64_t seed) {
  float *vector = need((size_t)n, sizeof *vector);
  for (int i = 0; i < n; i++) vector[i] = next_float(&seed);
  return vector;
}

static World world_of(const Case *what) {
  World world = {.what = what};
  for (int p = 0; p < MOST_PRODUCTS && what->products[p].w; p++, world.n_products++) {
    const Wanted *wanted = &what->products[p];
    const uint64_t seed = (uint64_t)(what->n_in + 31 * p);
    world.linears[p][0] = linear_of(wanted->w, what->n_in, wanted->n_out, seed);
    if (wanted->gate) world.linears[p][1] = linear_of(wanted->gate, what->n_in, wanted->n_out, seed + 7);
    if (wanted->bias) world.biases[p][0] = vector_of(wanted->n_out, seed + 1);
    if (wanted->gate_bias) world.biases[p][1] = vector_of(wanted->n_out, seed + 2);
  }
  world.x = test_rows(MOST_ROWS, what->n_in, &world.x_stride, 3);
  world.first = vector_of(MOST_ROWS * (520 + BEHIND), 4);
  return world;
}

static void world_free(World *world) {
  for (int p = 0; p < world->n_products; p++) {
    for (int which = 0; which < 2; which++) {
      test_linear_free(&world->linears[p][which]);
      free(world->biases[p][which]);
    }
  }
  free(world->x);
  free(world->first);
}

/* --- exactly */

/* The product of a matrix and a row for one output, and the error that fp32 may make: a chain of additions
 * over a split, or over 1024 / 4 inputs if the matrix is dense, then joining and the bias (test_product.c).
 * Sums of rounded inputs are exact. */
static double exact_sum(const World *world, int p, int which, const float *x, int o, double *error) {
  const TestLinear *t = &world->linears[p][which];
  const Linear *w = &t->linear;
  const size_t n_in = (size_t)w->n_in;
  const double bias = world->biases[p][which] ? (double)world->biases[p][which][o] : 0;
  double sum = 0, size = 0;
  if (w->kind == LINEAR_INT8) {
    int16_t *rounded = need(n_in, sizeof *rounded);
    const double scale = (double)test_round(x, w->n_in, rounded);
    for (size_t i = 0; i < n_in; i++) sum += t->weights[(size_t)o * n_in + i] * scale * rounded[i];
    free(rounded);
    *error = 5 * EPSILON * (fabs(sum) + fabs(bias));
    return sum + bias;
  }
  for (size_t i = 0; i < n_in; i++) {
    const double term = t->weights[(size_t)o * n_in + i] * (double)x[i];
    sum += term;
    size += fabs(term) + t->shift * fabs((double)x[i]) / w->n_in;
  }
  const int chain = matmul_by_outputs(w) ? 1024 / 4 : w->n_in / matmul_splits(w) + SPLIT_UNIT;
  *error = ((chain < w->n_in ? chain : w->n_in) + 20) * EPSILON * (size + fabs(bias));
  return sum + bias;
}

/* Both activations have slopes below 1.2; their own errors: test_rows.c. */
static double exact_output(const World *world, int p, const float *x, int o, double before, double *error) {
  const Wanted *wanted = &world->what->products[p];
  double value = exact_sum(world, p, 0, x, o, error), gate_error;
  if (wanted->gate) {
    const double g = exact_sum(world, p, 1, x, o, &gate_error);
    const double u = 2 * sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
    const double f = g / (1 + exp(wanted->activation == ACTIVATION_GELU_TANH ? -u : -g));
    *error = 1.2 * gate_error * (fabs(value) + *error) + fabs(f) * *error;
    value *= f;
    *error += (6 * fabs(u) + 8) * EPSILON * fabs(value) + 1e-36;
  }
  if (!wanted->add) return value;
  value *= (double)wanted->scale;
  *error = *error * (double)wanted->scale + 3 * EPSILON * (fabs(before) + fabs(value));
  return before + value;
}

/* --- and ours */

/* y: rows of all products, each n_out numbers and then BEHIND numbers that must stay as they are. team: of
 * n_threads, or NULL for OpenMP's. */
static void our_products(const World *world, const Kernels *kernels, int n_threads, Team *team, int row,
                         int n_rows, float *y[]) {
  const BackendModel loaded = {.kernels = kernels, .n_threads = n_threads, .team = team};
  const size_t stride = ((size_t)world->what->n_in + ROUNDED_ALIGN - 1) / ROUNDED_ALIGN * ROUNDED_ALIGN;
  Matmul products[MOST_PRODUCTS];
  size_t n_parts = 0;
  for (int p = 0; p < world->n_products; p++) {
    const Wanted *wanted = &world->what->products[p];
    const TestLinear *t = world->linears[p];
    products[p] = (Matmul){.w = {&t[0].linear, world->biases[p][0]},
                           .gate = {wanted->gate ? &t[1].linear : NULL, world->biases[p][1]},
                           .activation = wanted->activation,
                           .add = wanted->add,
                           .scale = wanted->scale,
                           .y = y[p],
                           .y_stride = (size_t)wanted->n_out + BEHIND};
    n_parts += (size_t)wanted->n_out * (size_t)matmul_splits(&t[0].linear);
    if (wanted->gate) n_parts += (size_t)wanted->n_out * (size_t)matmul_splits(&t[1].linear);
    memcpy(y[p], world->first + (size_t)row * products[p].y_stride,
           (size_t)n_rows * products[p].y_stride * sizeof **y);
  }
  const BackendState state = {
      .loaded = &loaded,
      .scratch = {.parts = need(n_parts * (size_t)(n_rows < FEW_ROWS ? n_rows : FEW_ROWS), sizeof(float)),
                  .n_parts = n_parts * (size_t)(n_rows < FEW_ROWS ? n_rows : FEW_ROWS),
                  .rounded = {need((size_t)n_rows * stride, sizeof(int16_t)),
                              need((size_t)n_rows, sizeof(float)), stride}}};
  const MatmulScratch *memory = &state.scratch;
  memset(memory->rounded.numbers, 77, (size_t)n_rows * stride * sizeof(int16_t));
  run_matmuls(&state, world->x + (size_t)row * world->x_stride, (int)world->x_stride, n_rows, products,
              world->n_products);
  free(memory->parts);
  free(memory->rounded.numbers);
  free(memory->rounded.scales);
}

static void check_exactly(const World *world, const Kernels *kernels, int row, float *const y[]) {
  for (int p = 0; p < world->n_products; p++) {
    const int n_out = world->what->products[p].n_out;
    const float *first = world->first + (size_t)row * (size_t)(n_out + BEHIND);
    for (int o = 0; o < n_out; o++) {
      double error;
      const double want =
          exact_output(world, p, world->x + (size_t)row * world->x_stride, o, (double)first[o], &error);
      if (!(fabs((double)y[p][o] - want) <= error))
        fail_msg("%s, %s, product %d: output %d is %.9g, not %.9g (more than %g off)", kernels->name,
                 world->what->name, p, o, (double)y[p][o], want, error);
    }
    assert_memory_equal(y[p] + n_out, first + n_out, BEHIND * sizeof *first);
  }
}

static void check(const World *world, const Kernels *kernels, Team *const *teams) {
  static const int row_counts[] = {2,  3,  4,  5,  6,  7,  8,  9,   13,  16,  17,
                                   23, 24, 25, 30, 48, 49, 60, 131, 132, 133, 145};
  float *single[MOST_PRODUCTS] = {NULL}, *y[MOST_PRODUCTS] = {NULL};
  size_t stride[MOST_PRODUCTS] = {0};
  const int most = world->what->n_rows;
  for (int p = 0; p < world->n_products; p++) {
    stride[p] = (size_t)world->what->products[p].n_out + BEHIND;
    single[p] = need((size_t)most * stride[p], sizeof **single);
    y[p] = need((size_t)most * stride[p], sizeof **y);
  }
  for (int row = 0; row < most; row++) {
    float *at[MOST_PRODUCTS] = {NULL};
    for (int p = 0; p < world->n_products; p++) at[p] = single[p] + (size_t)row * stride[p];
    our_products(world, kernels, 1, NULL, row, 1, at);
    if (row < 3) check_exactly(world, kernels, row, at);
  }
  for (int n_threads = 2; n_threads <= MOST_THREADS; n_threads++) {
    for (int own = 0; own < 2; own++) {
      our_products(world, kernels, n_threads, own ? teams[n_threads] : NULL, 1, 1, y);
      for (int p = 0; p < world->n_products; p++)
        assert_memory_equal(y[p], single[p] + stride[p], stride[p] * sizeof **y);
    }
  }
  for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts && row_counts[i] <= most; i++) {
    const int n_threads = 1 + (int)(i * 3 % 7);
    our_products(world, kernels, n_threads, i % 2 ? teams[n_threads] : NULL, 0, row_counts[i], y);
    for (int p = 0; p < world->n_products; p++)
      assert_memory_equal(y[p], single[p], (size_t)row_counts[i] * stride[p] * sizeof **y);
  }
  for (int p = 0; p < world->n_products; p++) {
    free(single[p]);
    free(y[p]);
  }
}

TEST(products_are_right_however_they_are_shared) {
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  Team *teams[MOST_THREADS + 1] = {NULL};
  Error err;
  for (int n = 1; n <= MOST_THREADS; n++) assert_int_equal(team_open(n, &teams[n], &err), STATUS_OK);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    World world = world_of(&cases[c]);
    for (int isa = 0; isa < n_tables; isa++) check(&world, tables[isa], teams);
    world_free(&world);
  }
  for (int n = 1; n <= MOST_THREADS; n++) team_close(teams[n]);
}

/* The order of sums, and so every bit of an answer, hangs on these. */
TEST(inputs_are_cut_into_pieces_as_documented) {
  static const struct {
    LinearKind kind;
    int n_in, n_splits;
  } known[] = {{LINEAR_AWQ, 1, 1},        {LINEAR_AWQ, 32, 1},       {LINEAR_AWQ, 33, 2},
               {LINEAR_AWQ, 96, 3},       {LINEAR_AWQ, 128, 4},      {LINEAR_AWQ, 4096, 4},
               {LINEAR_AWQ, 4097, 5},     {LINEAR_GROUPED, 5120, 5}, {LINEAR_GROUPED, 5121, 6},
               {LINEAR_AWQ, 16384, 16},   {LINEAR_AWQ, 16385, 16},   {LINEAR_AWQ, 100000, 16},
               {LINEAR_DENSE, 100000, 1}, {LINEAR_INT8, 100000, 1},  {LINEAR_GROUPED, 64, 2},
               {LINEAR_FP8, 100000, 1},   {LINEAR_FP4, 100000, 1}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const Linear w = {.kind = known[i].kind, .n_in = known[i].n_in};
    const int n = matmul_splits(&w);
    assert_int_equal(n, known[i].n_splits);
    assert_int_equal(matmul_split_begin(&w, 0), 0);
    assert_int_equal(matmul_split_begin(&w, n), w.n_in);
    for (int split = 0; split < n; split++) {
      const int begin = matmul_split_begin(&w, split), size = matmul_split_begin(&w, split + 1) - begin;
      assert_int_equal(begin % SPLIT_UNIT, 0);
      assert_true(size > 0 && abs(size - w.n_in / n) <= SPLIT_UNIT);
    }
  }
}
