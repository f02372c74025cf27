/* test_miniatures.c - the logits after the last token of each miniature's text, against those of transformers
 * in fp32: test/data/logits.txt, by scripts/make_logits.py, which has its format. All kinds of layers, norms,
 * gates, streams and experts, in steps of all tokens, of seven, and of one, and among other texts. Then what
 * recurrent states of 16 bits change, which is printed. */
#include "cpu/cpu.h"
#include "cpu_test.h"
#include "test/engine/step_once.h"
#include "test/tests.h"

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
  spoil(state->z_inputs, rows * (size_t)plan->gate_rank);
  spoil(state->a_inputs, rows * (size_t)plan->gate_rank);
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

/* The logits after the last token of one text among three in the same steps: the others are the text from its
 * third token on, and backwards, and come in pieces of other lengths, in another order in each step. Two of
 * them go on after the first one has ended; each ends with the logits that it has in steps of its own. */
static void last_logits_among_others(BackendModel *loaded, const Model *model, const int32_t *ids, int n,
                                     float logits[][MOST_LOGITS]) {
  enum { N = 3 };
  static const int pieces[N][3] = {{5, 1, 3}, {2, 7, 1}, {1, 1, 4}};
  Error err = {{0}};
  BackendState *state = NULL;
  int32_t texts[N][MAX_TOKENS], step_ids[MAX_TOKENS], rows[N], table[MAX_TOKENS / PAGE_TOKENS + 1];
  const int sizes[N] = {n, n > 3 ? n - 2 : n, n}, n_table = (n + PAGE_TOKENS - 1) / PAGE_TOKENS;
  const StateOptions options = {.n_ctx = n,
                                .max_chunk = MAX_TOKENS,
                                .max_logit_rows = N,
                                .kv = KV_F32,
                                .n_sequences = N,
                                .n_pages = N * n_table};
  const bool is_long = n > rope_original_context(&model->config);
  for (int i = 0; i < n; i++) texts[0][i] = ids[i], texts[2][i] = ids[n - 1 - i];
  for (int i = 0; i < sizes[1]; i++) texts[1][i] = ids[n - sizes[1] + i];
  if (cpu_backend.open(loaded, &options, &state, &err)) fail_msg("%s", err.text);
  for (int s = 0; s < N; s++) {
    for (int i = 0; i < n_table; i++) table[i] = (i * N + s) % (N * n_table);
    assert_int_equal(cpu_backend.set_pages(state, s, 0, table, n_table, &err), STATUS_OK);
  }
  int done[N] = {0};
  for (int turn = 0; done[0] < sizes[0] || done[1] < sizes[1] || done[2] < sizes[2]; turn++) {
    SequenceRows parts[N];
    TokenRange range = {.ids = step_ids, .parts = parts, .logit_rows = rows};
    int of_row[N];
    for (int k = 0; k < N; k++) {
      const int s = (k + turn) % N, left = sizes[s] - done[s], piece = pieces[s][turn % 3];
      const int some = left < piece ? left : piece;
      if (some == 0) continue;
      parts[range.n_parts++] =
          (SequenceRows){.sequence = s, .pos = done[s], .n_tokens = some, .long_rope = is_long};
      for (int i = 0; i < some; i++) step_ids[range.n_tokens++] = texts[s][done[s]++];
      if (some < left) continue;
      of_row[range.n_logit_rows] = s;
      rows[range.n_logit_rows++] = range.n_tokens - 1;
    }
    spoil_scratch(state);
    if (step_once(&cpu_backend, state, &model->config, range, &err)) fail_msg("%s", err.text);
    for (int r = 0; r < range.n_logit_rows; r++)
      assert_int_equal(cpu_backend.read_logits(state, r, logits[of_row[r]], &err), STATUS_OK);
  }
  cpu_backend.close(state);
  for (int s = 1; s < N; s++) {
    float alone[MOST_LOGITS];
    if (is_long) break; /* a text that is shorter has other positions */
    last_logits(loaded, model, texts[s], sizes[s], 4, alone);
    if (memcmp(alone, logits[s], (size_t)model->config.vocab_size * sizeof *alone) != 0)
      fail_msg("sequence %d among others has other logits than alone", s);
  }
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
  float among[3][MOST_LOGITS];
  last_logits_among_others(loaded, model, ids, n, among);
  const double distance = divergence(want, among[0], n_vocab);
  if (!(distance < 1e-6)) fail_msg("%s among others: KL %g", name, distance);
  cpu_backend.unload(loaded);
  model_close(model);
}

/* The mean KL(states in fp32 || in `type`) of n tokens, one a step. */
static double cost_of_states(BackendModel *loaded, const Model *model, StatesType type, int n) {
  const int vocab = model->config.vocab_size;
  StateOptions options = {.n_ctx = n, .max_chunk = 1, .max_logit_rows = 1, .kv = KV_F32};
  BackendState *states[2]; /* in fp32, in `type` */
  Error err = {{0}};
  double sum = 0, want[MOST_LOGITS];
  float got[MOST_LOGITS];
  uint64_t seed = 3;
  for (int i = 0; i < 2; i++) {
    if (cpu_backend.open(loaded, &options, &states[i], &err)) fail_msg("%s", err.text);
    options.states = type;
  }
  for (int pos = 0; pos < n; pos++) {
    const int32_t id = (int32_t)(next_random(&seed) % (uint64_t)vocab);
    const TokenRange range = {.pos = pos, .ids = &id, .n_logit_rows = 1, .n_tokens = 1};
    for (int i = 0; i < 2; i++) {
      assert_int_equal(step_once(&cpu_backend, states[i], &model->config, range, &err), STATUS_OK);
      assert_int_equal(cpu_backend.read_logits(states[i], 0, got, &err), STATUS_OK);
      for (int k = 0; k < vocab && i == 0; k++) want[k] = (double)got[k];
    }
    sum += divergence(want, got, vocab);
  }
  for (int i = 0; i < 2; i++) cpu_backend.close(states[i]);
  return sum / n;
}

/* The bounds are the project's own. fp16 has three bits more than bf16: its squared errors are 64 times
 * smaller, and so is KL. No model with experts, whose choices may change. */
TEST(states_of_16_bits_cost_little) {
  static const char *const names[] = {"qwen3_5",        "qwen3_5-awq", "olmo-hybrid-bf16", "nemotron-h-awq",
                                      "falcon-h1-bf16", "bamba-bf16",  "granite4-h-awq"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[128];
    Model *model;
    BackendModel *loaded;
    Error err = {{0}};
    snprintf(path, sizeof path, "test/data/miniatures/%s", names[i]);
    if (model_open(path, NULL, &model, &err) || model_prepare_scales(model, 1, &err) ||
        model_prepare(model, 1, &err) ||
        cpu_backend.load(model, &(BackendOptions){.n_threads = 1}, &loaded, &err))
      fail_msg("%s: %s", names[i], err.text);
    const double bf16 = cost_of_states(loaded, model, STATES_BF16, 400),
                 f16 = cost_of_states(loaded, model, STATES_F16, 400);
    print_message("%-16s mean KL of states in bf16 %.1e, in f16 %.1e\n", names[i], bf16, f16);
    assert_true(bf16 > 1e-7 && bf16 < 1e-3 && f16 > bf16 / 640 && f16 < bf16 / 6.4);
    cpu_backend.unload(loaded);
    model_close(model);
  }
}

TEST(logits_are_those_of_transformers) {
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
