/* test_routes.c - the experts that the CPU chooses in each miniature with experts, against those that
 * transformers chooses in fp32: test/data/routes.txt, by scripts/make_routes.py, which has its format.
 *
 * All tokens are compared whose choice is decided by more than 1e-4: the file has -1 for the others. And the
 * weights of experts that no token chose stay as they are stored. */
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
  assert_int_equal(n_miniatures, 52);
}

static Status check_first_expert(BackendState *state, TokenRange range, int layer, Error *err) {
  TRY(cpu_backend.norm_experts_residual(state, range, layer, err));
  for (int row = 0; row < range.n_tokens; row++)
    assert_int_equal(state->experts.choices[row * n_chosen].expert, 0);
  return STATUS_OK;
}

/* Groups of two experts, in rows of 16. One of the first group has no score (NaN), the other one the best. As
 * on the GPU, the group stays, whatever lies between the rows. */
static void a_group_with_one_score_stays(void **unused) {
  static const float bias[8] = {100, NAN};
  const int32_t ids[] = {3, 4, 5};
  Model *model = NULL;
  Error err = {{0}};
  BackendModel *loaded = NULL;
  BackendState *state = NULL;
  const StateOptions options = {.n_ctx = 3, .max_chunk = 3, .max_logit_rows = 1, .kv = KV_F32};
  Backend spy = cpu_backend;
  (void)unused;
  spy.norm_experts_residual = check_first_expert;
  assert_int_equal(model_open("test/data/miniatures/glm4-moe-awq", NULL, &model, &err), STATUS_OK);
  assert_int_equal(model_prepare(model, 1, &err), STATUS_OK);
  assert_int_equal(cpu_backend.load(model, &(BackendOptions){.n_threads = 1}, &loaded, &err), STATUS_OK);
  assert_int_equal(model->config.experts.n_groups, 4);
  n_chosen = model->config.experts.n_chosen;
  loaded->layers[1].experts.choice_bias = bias;
  assert_int_equal(cpu_backend.open(loaded, &options, &state, &err), STATUS_OK);
  for (int i = 0; i < 3 * state->plan.routes; i++) state->experts.routes[i] = NAN;
  assert_int_equal(forward(&spy, state, &model->config, (TokenRange){.n_tokens = 3}, ids, 1, &err),
                   STATUS_OK);
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
  model_close(model);
}

static bool was_chosen[64]; /* experts of the layer computed last */

static Status check_repacked(BackendState *state, TokenRange range, int layer, Error *err) {
  const Model *model = state->loaded->model;
  const ExpertConfig *config = &model->config.experts;
  assert_true(config->n_experts < 64 && range.n_tokens == 1);
  TRY(cpu_backend.norm_experts_residual(state, range, layer, err));
  memset(was_chosen, 0, sizeof was_chosen);
  for (int i = 0; i < config->n_chosen; i++) was_chosen[state->experts.choices[i].expert] = true;
  for (int e = 0; e < config->n_experts; e++) {
    const Expert *expert = &model->layers[layer].moe.experts[e];
    assert_int_equal(expert->gate.weight != NULL, was_chosen[e]);
    assert_int_equal(expert->down.weight != NULL, was_chosen[e]);
    n_compared += was_chosen[e];
  }
  return STATUS_OK;
}

/* gpt-oss in bf16 stores its experts' matrices transposed. */
static void experts_that_no_token_chose_are_not_repacked(void **unused) {
  const int32_t id = 3;
  Model *model = NULL;
  Error err = {{0}};
  BackendModel *loaded = NULL;
  BackendState *state = NULL;
  const StateOptions options = {.n_ctx = 1, .max_chunk = 1, .max_logit_rows = 1, .kv = KV_F32};
  Backend spy = cpu_backend;
  (void)unused;
  spy.norm_experts_residual = check_repacked;
  n_compared = 0;
  assert_int_equal(model_open("test/data/miniatures/gpt-oss-bf16", NULL, &model, &err), STATUS_OK);
  assert_int_equal(model_prepare_but_experts(model, 2, &err), STATUS_OK);
  assert_int_equal(model_prepare_but_experts(model, 2, &err), STATUS_OK);
  assert_int_equal(cpu_backend.load(model, &(BackendOptions){.n_threads = 2}, &loaded, &err), STATUS_OK);
  assert_int_equal(cpu_backend.open(loaded, &options, &state, &err), STATUS_OK);
  assert_int_equal(forward(&spy, state, &model->config, (TokenRange){.n_tokens = 1}, &id, 1, &err),
                   STATUS_OK);
  assert_int_equal(n_compared, model->config.n_layers * model->config.experts.n_chosen);
  assert_int_equal(model_prepare(model, 2, &err), STATUS_OK); /* repacks the others */
  for (int layer = 0; layer < model->config.n_layers; layer++)
    for (int e = 0; e < model->config.experts.n_experts; e++)
      assert_non_null(model->layers[layer].moe.experts[e].up.weight);
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
  model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(experts_are_those_of_transformers),
                                     cmocka_unit_test(a_group_with_one_score_stays),
                                     cmocka_unit_test(experts_that_no_token_chose_are_not_repacked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
