/* test_miniatures.c - the logits after the last token of each miniature's text, against those of transformers
 * in fp32: test/data/logits.txt, by scripts/make_logits.py, which has its format. All kinds of layers, norms,
 * gates, streams and experts, in steps of all tokens, of seven, and of one. */
#include "cpu/cpu.h"
#include "cpu_test.h"
#include "test/engine/step_once.h"

enum { MAX_TOKENS = 64, MOST_LOGITS = 256 };

/* KL(want || got), in nats. */
static double divergence(const double *want, const float *got, int n) {
  double sums[2] = {0}, sum = 0;
  for (int i = 0; i < n; i++) sums[0] += exp(want[i]), sums[1] += exp((double)got[i]);
  for (int i = 0; i < n; i++)
    sum += exp(want[i]) / sums[0] * (want[i] - log(sums[0]) - (double)got[i] + log(sums[1]));
  return sum;
}

static void spoil(float *numbers, size_t n) {
  for (size_t i = 0; numbers && i < n; i++) numbers[i] = NAN;
}

/* Leaves no numbers where a step has to write before it reads, padding of what it multiplies included. */
static void spoil_scratch(BackendState *state) {
  const StatePlan *plan = &state->plan;
  const size_t rows = (size_t)state->options.max_chunk,
               heads = (size_t)state->loaded->model->config.n_heads * rows;
  spoil(state->q_latents, rows * (size_t)plan->q_rank);
  spoil(state->kv_latents, rows * (size_t)plan->kv_a);
  spoil(state->head_inputs, heads * (size_t)plan->head_in);
  for (int i = 0; i < 2; i++) spoil(state->gate_inputs[i], rows * (size_t)plan->gate_rank);
  spoil(state->stream_weights, rows * (size_t)plan->streams);
  spoil(state->stream_factors, rows * (size_t)plan->stream_factors);
}

static void last_logits(BackendModel *loaded, const Model *model, const int32_t *ids, int n, int step,
                        float *logits) {
  Error err = {{0}};
  BackendState *state = NULL;
  const StateOptions options = {.n_ctx = n, .max_chunk = step, .max_logit_rows = 1, .kv = KV_F32};
  if (cpu_backend.open(loaded, &options, &state, &err)) fail_msg("%s", err.text);
  for (int pos = 0; pos < n; pos += step) {
    const TokenRange range = {.pos = pos,
                              .ids = ids + pos,
                              .n_logit_rows = 1,
                              .n_tokens = n - pos < step ? n - pos : step,
                              .long_rope = n > rope_original_context(&model->config)};
    spoil_scratch(state);
    if (step_once(&cpu_backend, state, &model->config, range, &err)) fail_msg("%s", err.text);
  }
  assert_int_equal(cpu_backend.read_logits(state, 0, logits, &err), STATUS_OK);
  cpu_backend.close(state);
}

/* Both compute in fp32 and the file has five digits, which gives some 1e-8. A wrong formula gives 1e-3 and
 * more (make_miniatures.py checks it). */
static void check_miniature(const char *name, const int32_t *ids, int n, const double *want, int n_vocab) {
  char path[128];
  float got[MOST_LOGITS];
  Model *model;
  BackendModel *loaded;
  Error err = {{0}};
  snprintf(path, sizeof path, "test/data/miniatures/%s", name);
  if (model_open(path, NULL, &model, &err) || model_prepare_scales(model, 1, &err) ||
      model_prepare(model, 1, &err) ||
      cpu_backend.load(model, &(BackendOptions){.n_threads = 1}, &loaded, &err))
    fail_msg("%s: %s", name, err.text);
  assert_int_equal(model->config.vocab_size, n_vocab);
  for (int i = 0; i < 3; i++) {
    const int steps[3] = {n, 7, 1};
    last_logits(loaded, model, ids, n, steps[i], got);
    const double distance = divergence(want, got, n_vocab);
    if (!(distance < 1e-6)) fail_msg("%s in steps of %d: KL %g", name, steps[i], distance);
  }
  cpu_backend.unload(loaded);
  model_close(model);
}

static void logits_are_those_of_transformers(void **state) {
  char name[64];
  int n, n_vocab, end, n_miniatures = 0;
  FILE *file = fopen("test/data/logits.txt", "r");
  assert_non_null(file);
  while ((end = fscanf(file, "%63s %d %d", name, &n, &n_vocab)) == 3) {
    int32_t ids[MAX_TOKENS];
    double want[MOST_LOGITS];
    assert_true(n <= MAX_TOKENS && n_vocab <= MOST_LOGITS);
    for (int i = 0; i < n; i++) assert_int_equal(fscanf(file, "%d", &ids[i]), 1);
    for (int i = 0; i < n_vocab; i++) assert_int_equal(fscanf(file, "%lf", &want[i]), 1);
    check_miniature(name, ids, n, want, n_vocab);
    n_miniatures++;
  }
  assert_int_equal(end, EOF);
  assert_int_equal(fclose(file), 0);
  assert_true(n_miniatures > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(logits_are_those_of_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
