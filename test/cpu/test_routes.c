/* test_routes.c - the experts that the CPU chooses in each miniature with experts, against those that
 * transformers chooses in fp32: test/data/routes.txt, by scripts/make_routes.py, which has its format.
 *
 * All tokens are compared whose choice is decided by more than 1e-4: the file has -1 for the others. And the
 * weights of experts that no token chose stay as they are stored. */
#include "cpu/cpu.h"
#include "cpu_test.h"
#include "test/engine/step_once.h"
#include "test/tests.h"

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
  TRY(cpu_backend.run[OP_EXPERTS](state, range, layer, err));
  assert_int_equal(next_number(), layer);
  layer_of_file++;
  for (int row = 0; row < range.n_tokens; row++) {
    int chosen[MOST_CHOSEN];
    bool same = true, decided = true;
    for (int i = 0; i < n_chosen; i++) chosen[i] = state->expert_choices[row * n_chosen + i].expert;
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

/* The partial sums of the chosen experts and the shared one fit together, so that threads share both at
 * once. */
static void check_parts(const BackendState *state, const ModelConfig *c) {
  const size_t rows = (size_t)(state->options.max_chunk < FEW_ROWS ? state->options.max_chunk : FEW_ROWS);
  for (int layer = 0; layer < c->n_layers; layer++) {
    const LayerConfig own = config_layer(c, layer);
    if (own.n_experts == 0) continue;
    const int n_in = c->experts.latent ? c->experts.latent : c->hidden,
              n_matrices = is_ungated(c->activation) ? 1 : 2;
    const size_t experts = (size_t)(c->experts.n_chosen * c->experts.width * matmul_splits_of(n_in)),
                 shared = (size_t)(own.intermediate * matmul_splits_of(c->hidden)),
                 down = (size_t)(c->experts.n_chosen * n_in * matmul_splits_of(c->experts.width)) +
                        (own.intermediate ? (size_t)(c->hidden * matmul_splits_of(own.intermediate)) : 0);
    assert_true(state->scratch.n_parts >= rows * (size_t)n_matrices * (experts + shared));
    assert_true(state->scratch.n_parts >= rows * down);
  }
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
  spy.run[OP_EXPERTS] = compare_choices;
  assert_true(n_tokens <= MAX_TOKENS && n_chosen <= MOST_CHOSEN);
  for (int i = 0; i < n_tokens; i++) ids[i] = next_number();
  snprintf(path, sizeof path, "test/data/miniatures/%s", name);
  assert_int_equal(model_open(path, NULL, &model, &err), STATUS_OK);
  assert_int_equal(model->config.experts.n_chosen, n_chosen);
  assert_int_equal(model_prepare(model, 2, &err), STATUS_OK);
  assert_int_equal(cpu_backend.load(model, &(BackendOptions){.n_threads = 2}, &loaded, &err), STATUS_OK);
  assert_int_equal(cpu_backend.open(loaded, &options, &state, &err), STATUS_OK);
  check_parts(state, &model->config);
  layer_of_file = 0;
  const TokenRange range = {.n_tokens = n_tokens, .ids = ids, .n_logit_rows = 1};
  assert_int_equal(step_once(&spy, state, &model->config, range, &err), STATUS_OK);
  assert_int_equal(layer_of_file, n_layers);
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
  model_close(model);
}

TEST(experts_are_those_of_transformers) {
  char name[64];
  int n_tokens, n_layers, n_miniatures = 0, end;
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
  assert_int_equal(n_miniatures, 58);
}

static Status check_first_expert(BackendState *state, TokenRange range, int layer, Error *err) {
  TRY(cpu_backend.run[OP_EXPERTS](state, range, layer, err));
  for (int row = 0; row < range.n_tokens; row++)
    assert_int_equal(state->expert_choices[row * n_chosen].expert, 0);
  return STATUS_OK;
}

/* A miniature with one layer of experts, the second one, in four groups of two. A token has three of the
 * experts in two groups. */
typedef struct {
  Model *model;
  BackendModel *loaded;
  BackendState *state;
  CpuLayer *layer; /* with the experts */
  ExpertConfig *config;
} Grouped;

static void open_grouped(Grouped *g) {
  Error err = {{0}};
  const StateOptions options = {.n_ctx = 3, .max_chunk = 3, .max_logit_rows = 1, .kv = KV_F32};
  assert_int_equal(model_open("test/data/miniatures/glm4-moe-awq", NULL, &g->model, &err), STATUS_OK);
  assert_int_equal(model_prepare(g->model, 1, &err), STATUS_OK);
  assert_int_equal(cpu_backend.load(g->model, &(BackendOptions){.n_threads = 1}, &g->loaded, &err),
                   STATUS_OK);
  assert_int_equal(cpu_backend.open(g->loaded, &options, &g->state, &err), STATUS_OK);
  g->layer = &g->loaded->layers[1];
  g->config = &g->model->config.experts;
  n_chosen = g->config->n_chosen;
  assert_true(g->config->n_groups == 4 && g->config->n_chosen_groups == 2 && n_chosen == 3);
}

static void close_grouped(Grouped *g) {
  cpu_backend.close(g->state);
  cpu_backend.unload(g->loaded);
  model_close(g->model);
}

/* Groups of two experts, in rows of 16. One of the first group has no score (NaN), the other one the best. As
 * on the GPU, the group stays, whatever lies between the rows. */
TEST(a_group_with_one_score_stays) {
  static const float bias[8] = {100, NAN};
  const int32_t ids[] = {3, 4, 5};
  Grouped g;
  Error err = {{0}};
  Backend spy = cpu_backend;
  spy.run[OP_EXPERTS] = check_first_expert;
  open_grouped(&g);
  g.layer->choice_bias = bias;
  for (int i = 0; i < 3 * g.state->plan.routes; i++) g.state->expert_routes[i] = NAN;
  assert_int_equal(step_once(&spy, g.state, &g.model->config,
                             (TokenRange){.n_tokens = 3, .ids = ids, .n_logit_rows = 1}, &err),
                   STATUS_OK);
  close_grouped(&g);
}

/* The choices of a row of zeros: the router's outputs are 0, scores 1/2. */
static const ExpertChoice *choices_of_zeros(Grouped *g) {
  Error err = {{0}};
  memset(g->state->x, 0, (size_t)g->state->plan.hidden * sizeof *g->state->x);
  assert_int_equal(cpu_backend.run[OP_EXPERTS](g->state, (TokenRange){.n_tokens = 1}, 1, &err), STATUS_OK);
  return g->state->expert_choices;
}

/* By biases alone: of equal groups, and of equal experts, the first are taken; a group is as good as its two
 * best, or as its best one; with one group all experts are there. */
TEST(groups_are_chosen_by_their_best) {
  static const struct {
    float bias[8];
    int n_groups;
    bool group_is_best;
    int expected[3];
  } cases[] = {
      {{0}, 4, false, {0, 1, 2}},
      {{0, 0, 1}, 4, false, {2, 0, 1}},
      {{0, 0, 0, 0, 1, 1, 1, 1}, 4, false, {4, 5, 6}},
      {{1, 0, .8f, .8f, .9f, 0}, 4, false, {0, 2, 3}},
      {{1, 0, .8f, .8f, .9f, 0}, 4, true, {0, 4, 1}},
      {{1, 0, .8f, .8f, .9f, 0}, 1, false, {0, 4, 2}},
      {{0, 0, 0, 0, 0, 0, 0, 1}, 4, true, {7, 0, 1}},
  };
  Grouped g;
  open_grouped(&g);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    g.layer->choice_bias = cases[i].bias;
    g.config->n_groups = cases[i].n_groups;
    g.config->n_chosen_groups = cases[i].n_groups == 1 ? 1 : 2;
    g.config->group_is_best = cases[i].group_is_best;
    const ExpertChoice *choices = choices_of_zeros(&g);
    for (int k = 0; k < 3; k++) assert_int_equal(choices[k].expert, cases[i].expected[k]);
  }
  close_grouped(&g);
}

/* Weights of experts whose scores are 1/2 (sigmoid) or 1/8 (softmax over eight): divided by their sum and
 * sum_plus, or not; times `scale`, and each expert's own scale. SCORE_CHOSEN always divides. */
TEST(weights_are_divided_and_scaled) {
  static const float bias[8], scales[8] = {1, 2, 4};
  static const struct {
    ExpertScore score;
    bool renormalise, has_scales;
    double sum_plus, scale, expected;
  } cases[] = {
      {SCORE_SIGMOID, true, false, 0, 1, 1. / 3},      {SCORE_SIGMOID, true, false, .5, 1, .25},
      {SCORE_SIGMOID, false, false, .5, 1, .5},        {SCORE_SIGMOID, true, false, .5, 2.5, .625},
      {SCORE_SIGMOID, false, true, 0, 1, .5},          {SCORE_SOFTMAX, false, false, .625, 1, .125},
      {SCORE_SOFTMAX, true, true, .625, 1, .125},      {SCORE_CHOSEN, false, false, 0, 1, 1. / 3},
      {SCORE_CHOSEN_SIGMOID, false, false, 0, 3, 1.5}, {SCORE_CHOSEN, false, true, 0, 2, 2. / 3},
  };
  Grouped g;
  open_grouped(&g);
  g.layer->choice_bias = bias;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    g.layer->expert_scales = cases[i].has_scales ? scales : NULL;
    g.config->score = cases[i].score;
    g.config->renormalise = cases[i].renormalise;
    g.config->sum_plus = cases[i].sum_plus;
    g.config->scale = cases[i].scale;
    const ExpertChoice *choices = choices_of_zeros(&g);
    for (int k = 0; k < 3; k++) {
      const double own = cases[i].has_scales ? (double)scales[k] : 1;
      assert_int_equal(choices[k].expert, k);
      assert_float_equal(choices[k].weight, cases[i].expected * own, 1e-6);
    }
  }
  close_grouped(&g);
}

static bool was_chosen[64]; /* experts of the layer computed last */

static Status check_repacked(BackendState *state, TokenRange range, int layer, Error *err) {
  const Model *model = state->loaded->model;
  const ExpertConfig *config = &model->config.experts;
  assert_true(config->n_experts < 64 && range.n_tokens == 1);
  TRY(cpu_backend.run[OP_EXPERTS](state, range, layer, err));
  memset(was_chosen, 0, sizeof was_chosen);
  for (int i = 0; i < config->n_chosen; i++) was_chosen[state->expert_choices[i].expert] = true;
  for (int e = 0; e < config->n_experts; e++) {
    const Expert *expert = &model->layers[layer].experts[e];
    assert_int_equal(expert->gate.weight != NULL, was_chosen[e]);
    assert_int_equal(expert->down.weight != NULL, was_chosen[e]);
    n_compared += was_chosen[e];
  }
  return STATUS_OK;
}

/* gpt-oss in bf16 stores its experts' matrices transposed. */
TEST(experts_that_no_token_chose_are_not_repacked) {
  const int32_t id = 3;
  Model *model = NULL;
  Error err = {{0}};
  BackendModel *loaded = NULL;
  BackendState *state = NULL;
  const StateOptions options = {.n_ctx = 1, .max_chunk = 1, .max_logit_rows = 1, .kv = KV_F32};
  Backend spy = cpu_backend;
  spy.run[OP_EXPERTS] = check_repacked;
  n_compared = 0;
  assert_int_equal(model_open("test/data/miniatures/gpt-oss-bf16", NULL, &model, &err), STATUS_OK);
  assert_int_equal(model_prepare_but_experts(model, 2, &err), STATUS_OK);
  assert_int_equal(model_prepare_but_experts(model, 2, &err), STATUS_OK);
  assert_int_equal(cpu_backend.load(model, &(BackendOptions){.n_threads = 2}, &loaded, &err), STATUS_OK);
  assert_int_equal(cpu_backend.open(loaded, &options, &state, &err), STATUS_OK);
  assert_int_equal(step_once(&spy, state, &model->config,
                             (TokenRange){.n_tokens = 1, .ids = &id, .n_logit_rows = 1}, &err),
                   STATUS_OK);
  assert_int_equal(n_compared, model->config.n_layers * model->config.experts.n_chosen);
  assert_int_equal(model_prepare(model, 2, &err), STATUS_OK); /* repacks the others */
  for (int layer = 0; layer < model->config.n_layers; layer++)
    for (int e = 0; e < model->config.experts.n_experts; e++)
      assert_non_null(model->layers[layer].experts[e].up.weight);
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
  model_close(model);
}
