/* test_routes.c - the experts that the CPU chooses in each miniature with experts, against those that
 * transformers chooses in fp32: test/data/routes.txt, by scripts/make_routes.py, which has its format.
 *
 * All tokens are compared whose choice is decided by more than 1e-4: the file has -1 for the others. */
#include "cpu/cpu.h"
#include "cpu_test.h"
#include "engine/forward.h"

enum { MAX_TOKENS = 64, MOST_CHOSEN = 8 };

static FILE *routes;
static int layer_of_file, n_compared, n_different;
static int n_chosen;

static int next_number(void) {
  int number;
  assert_int_equal(fscanf(routes, "%d", &number), 1);
  return number;
}

static int ascending(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

/* Compares the choices of a layer with the next line of the file. */
static Status compare_choices(BackendState *state, TokenRange range, int layer, Error *err) {
  TRY(cpu_backend.norm_experts_residual(state, range, layer, err));
  assert_int_equal(next_number(), layer);
  layer_of_file++;
  for (int row = 0; row < range.n_tokens; row++) {
    int chosen[MOST_CHOSEN];
    bool same = true, decided = true;
    for (int i = 0; i < n_chosen; i++) chosen[i] = state->experts.choices[row * n_chosen + i].expert;
    qsort(chosen, (size_t)n_chosen, sizeof *chosen, ascending);
    for (int i = 0; i < n_chosen; i++) {
      const int expected = next_number();
      same = same && chosen[i] == expected;
      decided = decided && expected >= 0;
    }
    n_compared += decided;
    n_different += decided && !same;
  }
  return STATUS_OK;
}

static void check_miniature(const char *name, int n_tokens, int n_layers) {
  char path[128];
  int32_t ids[MAX_TOKENS];
  Model *model = NULL;
  Error err = {{0}};
  BackendModel *loaded = NULL;
  BackendState *state = NULL;
  const StateOptions options = {.n_ctx = n_tokens, .max_chunk = n_tokens, .max_logit_rows = 1, .kv = KV_F32};
  Backend spy = cpu_backend;
  spy.norm_experts_residual = compare_choices;
  assert_true(n_tokens <= MAX_TOKENS && n_chosen <= MOST_CHOSEN);
  for (int i = 0; i < n_tokens; i++) ids[i] = next_number();
  snprintf(path, sizeof path, "test/data/miniatures/%s", name);
  assert_int_equal(model_open(path, NULL, &model, &err), STATUS_OK);
  assert_int_equal(model->config.experts.n_chosen, n_chosen);
  assert_int_equal(model_prepare(model, 2, &err), STATUS_OK);
  assert_int_equal(cpu_backend.load(model, &(BackendOptions){.n_threads = 2}, &loaded, &err), STATUS_OK);
  assert_int_equal(cpu_backend.open(loaded, &options, &state, &err), STATUS_OK);
  layer_of_file = 0;
  const TokenRange range = {.n_tokens = n_tokens};
  assert_int_equal(forward(&spy, state, &model->config, range, ids, 1, &err), STATUS_OK);
  assert_int_equal(layer_of_file, n_layers);
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
  model_close(model);
}

static void experts_are_those_of_transformers(void **unused) {
  char name[64];
  int n_tokens, n_layers, n_miniatures = 0, end;
  (void)unused;
  routes = fopen("test/data/routes.txt", "r");
  assert_non_null(routes);
  while ((end = fscanf(routes, "%63s %d %d %d", name, &n_tokens, &n_chosen, &n_layers)) == 4) {
    n_compared = n_different = 0;
    check_miniature(name, n_tokens, n_layers);
    if (n_different) print_error("%s: %d of %d choices differ\n", name, n_different, n_compared);
    assert_int_equal(n_different, 0);
    assert_true(n_compared > n_layers * n_tokens / 2);
    n_miniatures++;
  }
  assert_int_equal(end, EOF);
  assert_int_equal(fclose(routes), 0);
  assert_int_equal(n_miniatures, 17);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(experts_are_those_of_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
