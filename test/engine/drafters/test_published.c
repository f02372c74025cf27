/* test_published.c - drafters as they are published guess what their public implementations guess: logits of
 * test/data/drafters (scripts/make_drafters.py) by speculators, the DFlash authors' code and transformers. */
#include <math.h>

#include "engine/drafters/published.h"
#include "engine/session.h"
#include "model/files/safetensors.h"
#include "reference.h"
#include "test/engine/step_once.h"
#include "test/tests.h"

enum { N_CTX = 120, CHUNK = 9 };

typedef struct {
  Model *target, *model;
  BackendModel *loaded;
  BackendState *state;
  Drafter drafter;
  Sampler *sampler;
  int n; /* tokens that the target has computed */
} Pair;

static void must(Status status, const Error *err) {
  if (status) fail_msg("%s", err->text);
}

static void open_pair(const char *drafter, const char *target, Pair *pair) {
  static const BackendOptions one_thread = {.n_threads = 1};
  const SamplerSettings greedy = {.top_p = 1, .repetition_penalty = 1};
  Error err = {{0}};
  *pair = (Pair){.n = 0};
  must(model_open(target, NULL, &pair->target, &err), &err);
  must(model_prepare(pair->target, 1, &err), &err);
  must(model_open_draft(drafter, pair->target, &pair->model, &err), &err);
  must(model_prepare(pair->model, 1, &err), &err);
  const PublishedOptions options = {.backend = &cpu_backend,
                                    .backend_options = &one_thread,
                                    .target = pair->target,
                                    .model = pair->model,
                                    .n_ctx = N_CTX,
                                    .kv = KV_F32,
                                    .cost = 0.1};
  must(published_open(&options, &pair->drafter, &err), &err);
  must(cpu_backend.load(pair->target, &one_thread, &pair->loaded, &err), &err);
  const StateOptions sizes = {
      .n_ctx = N_CTX, .max_chunk = CHUNK, .max_logit_rows = 1, .kv = KV_F32, .taps = pair->drafter.taps};
  must(cpu_backend.open(pair->loaded, &sizes, &pair->state, &err), &err);
  must(sampler_open(&greedy, pair->target->config.vocab_size, &pair->sampler, &err), &err);
}

static void close_pair(Pair *pair) {
  drafter_close(&pair->drafter);
  cpu_backend.close(pair->state);
  cpu_backend.unload(pair->loaded);
  sampler_close(pair->sampler);
  model_close(pair->model);
  model_close(pair->target);
}

/* Computes the tokens up to ids[n), from position `from` on, in steps of at most CHUNK. */
static void compute(Pair *pair, const int32_t *ids, int from, int n) {
  Error err = {{0}};
  for (int pos = from; pos < n;) {
    const int size = n - pos < CHUNK ? n - pos : CHUNK;
    const TokenRange range = {.pos = pos, .n_tokens = size, .ids = ids + pos, .taps = &pair->drafter.taps};
    must(step_once(&cpu_backend, pair->state, &pair->target->config, range, &err), &err);
    const DraftRows rows = {pair->state, ids + pos, pos, 0, size};
    must(pair->drafter.take(pair->drafter.self, &rows, &err), &err);
    pos += size;
  }
  pair->n = n;
}

static Guesses propose(Pair *pair, const int32_t *ids, int n, int most) {
  Error err = {{0}};
  Guesses guesses = {.n = 0};
  const DraftText text = {ids, n, pair->n, pair->n, pair->sampler};
  must(pair->drafter.propose(pair->drafter.self, &text, most, &guesses, &err), &err);
  return guesses;
}

static int largest(const float *logits, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

typedef struct {
  const char *name, *target;
} Case;

static const Case cases[] = {
    {"eagle3", DRAFTERS "target"},
    {"eagle3-speculators", DRAFTERS "target"},
    {"eagle3-norm-before-fc", DRAFTERS "target"},
    {"dflash", DRAFTERS "target"},
    {"dflash-speculators", DRAFTERS "target"},
    {"gemma4-assistant", "test/data/miniatures/gemma4-bf16"},
    {"qwen3_5-mtp", DRAFTERS "qwen3_5-mtp"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* Both compute in fp32 from the same numbers, so logits differ by rounding alone: 1e-5 is far above that, and
 * far below what a wrong norm, state, position or mask gives. */
TEST(guesses_are_those_of_the_public_implementations) {
  for (int c = 0; c < N_CASES; c++) {
    Pair pair;
    Reference r;
    Error err = {{0}};
    char path[256];
    snprintf(path, sizeof path, DRAFTERS "%s", cases[c].name);
    open_pair(path, cases[c].target, &pair);
    must(open_reference(cases[c].name, &r, &err), &err);
    assert_int_equal(r.n_vocab, pair.model->config.vocab_size);
    float *got = calloc((size_t)r.n_vocab, sizeof *got);
    double sum = 0;
    for (int round = 0; round < r.n_rounds; round++) {
      const int n = r.rounds[round];
      compute(&pair, r.ids, pair.n, n);
      for (int k = 0; k < r.n_guesses; k++) {
        const float *want = r.logits + (size_t)(round * r.n_guesses + k) * (size_t)r.n_vocab;
        const Guesses guesses = propose(&pair, r.ids, n + 1, k + 1);
        assert_int_equal(guesses.n, k + 1);
        must(published_logits(pair.drafter.self, got, &err), &err);
        const double distance = kl(want, got, r.n_vocab);
        sum += distance;
        if (!(distance < 1e-5)) fail_msg("%s: round %d, guess %d: KL %g", cases[c].name, round, k, distance);
        const int32_t *ids = pair.model->draft.target_ids;
        const int best = largest(want, r.n_vocab);
        assert_int_equal(guesses.ids[k], ids ? ids[best] : best);
      }
    }
    print_message("%s: mean KL %.1e\n", cases[c].name, sum / r.n_rounds / r.n_guesses);
    free(got);
    safetensors_close(&r.file);
    close_pair(&pair);
  }
}

/* --- a session with and without a drafter */

enum { TEXT = 44, PROMPT = 11 };

/* The text that a session makes, and how many guesses it took. */
static GuessCounts answer(Pair *pair, Drafter *drafter, double temperature, int32_t *ids) {
  const SessionOptions options = {
      .n_ctx = N_CTX,
      .chunk = CHUNK + 8,
      .kv = KV_F32,
      .sampler = {.temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = 3},
      .drafter = drafter,
      .n_guesses = drafter ? 4 : 0,
      .guess_always = true};
  Session *session;
  Error err = {{0}};
  must(session_open(&cpu_backend, pair->loaded, pair->target, &options, &session, &err), &err);
  must(session_sync(session, ids, PROMPT, &err), &err);
  for (int n = PROMPT; n < TEXT; n++) {
    must(session_sample(session, &ids[n], &err), &err);
    assert_true(session_hold(session, ids[n]));
    must(session_decode_held(session, TEXT - n, &err), &err);
  }
  const GuessCounts counts = session_take_guesses(session);
  session_close(session);
  return counts;
}

TEST(a_text_is_the_same_with_each_drafter) {
  for (int c = 0; c < 2 * N_CASES; c++) {
    const Case *one = &cases[c / 2];
    Pair pair;
    char path[256];
    int32_t plain[TEXT], guessed[TEXT];
    snprintf(path, sizeof path, DRAFTERS "%s", one->name);
    open_pair(path, one->target, &pair);
    for (int i = 0; i < PROMPT; i++) plain[i] = guessed[i] = (i * 7 + c) % 90;
    answer(&pair, NULL, c % 2, plain);
    const GuessCounts counts = answer(&pair, &pair.drafter, c % 2, guessed);
    assert_memory_equal(plain, guessed, sizeof plain);
    assert_true(counts.n_guessed > TEXT);
    close_pair(&pair);
  }
}

/* A guess is the target's pick from the drafter's logits: by its temperature, top-k and top-p, with the draw
 * that the target makes there. Penalties are left out, and the target's own draws stay as they are. */
TEST(guesses_are_picked_as_the_target_picks) {
  enum { K = 4 };
  const SamplerSettings settings = {.temperature = 1.5,
                                    .top_k = 50,
                                    .top_p = 0.95,
                                    .seed = 12,
                                    .repetition_penalty = 5,
                                    .presence_penalty = 3,
                                    .frequency_penalty = 2};
  SamplerSettings plain = settings;
  plain.repetition_penalty = 1;
  plain.presence_penalty = plain.frequency_penalty = 0;
  int32_t ids[40];
  int n_other = 0;
  for (int c = 0; c < N_CASES; c++) {
    Pair pair;
    Sampler *own;
    Error err = {{0}};
    char path[256];
    snprintf(path, sizeof path, DRAFTERS "%s", cases[c].name);
    open_pair(path, cases[c].target, &pair);
    const int n_vocab = pair.model->config.vocab_size;
    const int32_t *target_ids = pair.model->draft.target_ids;
    float *logits = calloc((size_t)n_vocab, sizeof *logits);
    must(sampler_open(&plain, n_vocab, &own, &err), &err);
    must(sampler_set(pair.sampler, &settings, &err), &err);
    for (int i = 0; i < 40; i++) ids[i] = (i * 5 + c) % 90;
    for (int i = 0; i < 40; i++) sampler_count_token(pair.sampler, ids[i], i >= 20);
    compute(&pair, ids, 0, 20);
    for (uint64_t draws = 0; draws < 40; draws += 13)
      for (int k = 0; k < K; k++) {
        int32_t want;
        sampler_set_draws(pair.sampler, draws);
        const Guesses guesses = propose(&pair, ids, 21, k + 1);
        assert_int_equal(guesses.n, k + 1);
        assert_int_equal(sampler_draws(pair.sampler), draws);
        must(published_logits(pair.drafter.self, logits, &err), &err);
        sampler_set_draws(own, draws + (uint64_t)k);
        must(sampler_pick(own, logits, &want, &err), &err);
        assert_int_equal(guesses.ids[k], target_ids ? target_ids[want] : want);
        n_other += want != largest(logits, n_vocab);
      }
    free(logits);
    sampler_close(own);
    close_pair(&pair);
  }
  assert_true(n_other > 20); /* a greedy guess would not do */
}

/* A text that begins anew is guessed as at first, and one that is cut in the middle goes on. */
TEST(what_was_before_is_forgotten) {
  int32_t ids[40], other[40];
  for (int c = 0; c < N_CASES; c++) {
    Pair pair;
    char path[256];
    snprintf(path, sizeof path, DRAFTERS "%s", cases[c].name);
    open_pair(path, cases[c].target, &pair);
    for (int i = 0; i < 40; i++) ids[i] = (i * 5 + c) % 90, other[i] = (i * 11 + 3) % 90;
    compute(&pair, ids, 0, 20);
    const Guesses first = propose(&pair, ids, 21, 4);
    compute(&pair, other, 0, 30);
    propose(&pair, other, 31, 4);
    compute(&pair, ids, 0, 20);
    const Guesses again = propose(&pair, ids, 21, 4);
    assert_int_equal(first.n, 4);
    assert_memory_equal(first.ids, again.ids, 4 * sizeof *first.ids);
    /* cut in the middle, as by an undone turn */
    compute(&pair, other, 12, 30);
    assert_int_equal(propose(&pair, other, 31, 4).n, 4);
    close_pair(&pair);
  }
}

/* A drafter that came late, as one that is lent to a sequence of a batch, and whose text is then computed
 * again from before its first row on: it knows nothing of what it saw. */
TEST(a_text_may_begin_before_the_first_row) {
  int32_t ids[40];
  for (int c = 0; c < N_CASES; c++) {
    Pair pair;
    char path[256];
    snprintf(path, sizeof path, DRAFTERS "%s", cases[c].name);
    open_pair(path, cases[c].target, &pair);
    for (int i = 0; i < 40; i++) ids[i] = (i * 5 + c) % 90;
    compute(&pair, ids, 0, 20);
    const Guesses first = propose(&pair, ids, 21, 4);
    pair.drafter.forget(pair.drafter.self);
    compute(&pair, ids, 20, 30);
    assert_int_equal(propose(&pair, ids, 31, 4).n, 4);
    compute(&pair, ids, 0, 20);
    const Guesses again = propose(&pair, ids, 21, 4);
    assert_int_equal(again.n, 4);
    assert_memory_equal(first.ids, again.ids, 4 * sizeof *first.ids);
    close_pair(&pair);
  }
}

/* States wait until guesses are wanted: guesses are the same if they are wanted after each step and if they
 * are wanted once, after more tokens than wait at a time (64), or where the text is cut among those that
 * wait. */
TEST(waiting_states_give_the_same_guesses) {
  enum { N = 101 };
  int32_t ids[N + 1];
  for (int i = 0; i <= N; i++) ids[i] = (i * i + 7 * i) % 90;
  for (int c = 0; c < N_CASES; c++) {
    Pair pair;
    char path[256];
    Guesses guesses[3];
    snprintf(path, sizeof path, DRAFTERS "%s", cases[c].name);
    for (int way = 0; way < 3; way++) {
      open_pair(path, cases[c].target, &pair);
      for (int n = CHUNK; way == 0 && n < N; n += 5) {
        compute(&pair, ids, pair.n, n);
        propose(&pair, ids, n + 1, 3);
      }
      const bool cut = way == 2 && !config_has_states(&pair.target->config); /* those are of one position */
      if (cut) compute(&pair, ids, 0, N - 4);
      compute(&pair, ids, cut ? N - 10 : pair.n, N);
      guesses[way] = propose(&pair, ids, N + 1, 4);
      assert_int_equal(guesses[way].n, 4);
      close_pair(&pair);
    }
    assert_memory_equal(guesses[0].ids, guesses[1].ids, 4 * sizeof(int32_t));
    assert_memory_equal(guesses[0].ids, guesses[2].ids, 4 * sizeof(int32_t));
  }
}

/* Several tokens that are known and not computed, as a form or a tool makes them. */
TEST(known_tokens_come_before_guesses) {
  int32_t ids[40];
  for (int c = 0; c < N_CASES; c++) {
    Pair pair;
    char path[256];
    snprintf(path, sizeof path, DRAFTERS "%s", cases[c].name);
    open_pair(path, cases[c].target, &pair);
    for (int i = 0; i < 40; i++) ids[i] = (i * 5 + c) % 90;
    compute(&pair, ids, 0, 20);
    const Guesses guesses = propose(&pair, ids, 23, 2);
    assert_int_equal(guesses.n, 2);
    Guesses one = propose(&pair, ids, 21, 4);
    /* With the drafter's own guesses as known tokens, the guess after them is its own. */
    ids[21] = one.ids[0];
    ids[22] = one.ids[1];
    const Guesses own = propose(&pair, ids, 23, 1);
    if (pair.model->config.draft.kind != DRAFT_DFLASH) assert_int_equal(own.ids[0], one.ids[2]);
    close_pair(&pair);
  }
}
