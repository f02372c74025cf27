/* test_answers.c - answers with the guesses of each kind of drafter: at any temperature they are those
 * without guesses, in a session and side by side in a batch, where a drafter guesses what it would guess
 * alone. Their tokens are drawn from the target's distribution, and a rule that keeps wrong guesses fails.
 *
 * usage: test_answers [DRAWS]: of each kind; 2,000 by default, some seconds. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/batch.h"
#include "engine/drafters/draft_model.h"
#include "engine/drafters/draft_text.h"
#include "engine/drafters/published.h"
#define DRAFTERS "test/data/drafters/"

extern const Backend cpu_backend;

enum { N_PROMPTS = 75, N_PROMPT = 12, N_ANSWER = 14, N_CTX = N_PROMPT + N_ANSWER, MOST_GUESSES = 5 };

static const BackendOptions one_thread = {.n_threads = 1};
static long n_draws = 2000;

/* A target, and who guesses for it: first N_TRAINED drafters as they are published. drafter NULL: the
 * text. */
typedef struct {
  const char *name, *target, *drafter;
} Kind;
static const Kind kinds[] = {
    {"EAGLE-3", DRAFTERS "target", DRAFTERS "eagle3"},
    {"DFlash", DRAFTERS "target", DRAFTERS "dflash"},
    {"a layer for several tokens", DRAFTERS "qwen3_5-mtp", DRAFTERS "qwen3_5-mtp"},
    {"an assistant of Gemma 4", "test/data/miniatures/gemma4-bf16", DRAFTERS "gemma4-assistant"},
    {"another model", DRAFTERS "target", "test/data/miniatures/qwen3-awq"},
    {"the text", DRAFTERS "target", NULL},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_TRAINED = 4 };

typedef struct {
  const Kind *kind;
  Model *target, *model;
  BackendModel *loaded, *loaded_draft;
  int vocab_size;
} Pair;

static void must(Status status, const Error *err) {
  if (status) fail_msg("%s", err->text);
}

static void prepare(Model *model) {
  Error err = {{0}};
  must(model_prepare_scales(model, 1, &err), &err);
  must(model_prepare(model, 1, &err), &err);
}

static bool is_trained(const Kind *kind) {
  return kind < kinds + N_TRAINED;
}

static PublishedOptions published_options(const Pair *p, int n_ctx) {
  return (PublishedOptions){.backend = &cpu_backend,
                            .backend_options = &one_thread,
                            .target = p->target,
                            .loaded_target = p->loaded,
                            .model = p->model,
                            .loaded = p->loaded_draft,
                            .n_ctx = n_ctx,
                            .kv = KV_F32,
                            .cost = 1e-9};
}

static Pair open_pair(const Kind *kind) {
  Pair p = {.kind = kind};
  Error err = {{0}};
  must(model_open(kind->target, NULL, &p.target, &err), &err);
  prepare(p.target);
  must(cpu_backend.load(p.target, &one_thread, &p.loaded, &err), &err);
  p.vocab_size = p.target->config.vocab_size;
  if (!kind->drafter) return p;
  must(is_trained(kind) ? model_open_draft(kind->drafter, p.target, &p.model, &err)
                        : model_open(kind->drafter, NULL, &p.model, &err),
       &err);
  prepare(p.model);
  const PublishedOptions options = published_options(&p, N_CTX);
  must(is_trained(kind) ? published_load(&options, &p.loaded_draft, &err)
                        : cpu_backend.load(p.model, &one_thread, &p.loaded_draft, &err),
       &err);
  return p;
}

static void close_pair(Pair *p) {
  if (p->loaded_draft) cpu_backend.unload(p->loaded_draft);
  cpu_backend.unload(p->loaded);
  model_close(p->model);
  model_close(p->target);
}

static Status open_drafter(void *pair, int n_ctx, Drafter *drafter, Error *err) {
  const Pair *p = pair;
  if (!p->kind->drafter) return draft_text_open(n_ctx, drafter, err);
  if (is_trained(p->kind)) {
    const PublishedOptions options = published_options(p, n_ctx);
    return published_open(&options, drafter, err);
  }
  const SessionOptions options = {
      .n_ctx = n_ctx, .kv = KV_F32, .sampler = {.top_p = 1, .repetition_penalty = 1}};
  Session *session;
  TRY(session_open(&cpu_backend, p->loaded_draft, p->model, &options, &session, err));
  return draft_model_open(session, p->vocab_size, 1e-9, drafter, err);
}

/* --- the guesses of a drafter, noted */

typedef struct {
  int n; /* 0: not asked */
  int32_t ids[DRAFT_MOST];
} Noted;

typedef struct {
  int32_t prompts[N_PROMPTS][N_PROMPT];
  SamplerSettings samplers[N_PROMPTS];
  int32_t answers[N_PROMPTS][N_ANSWER]; /* without guesses */
  Noted alone[N_PROMPTS][N_CTX];        /* what the session's drafter guessed after so many tokens */
  bool in_batch;                        /* a batch's is compared with it */
  int n_same;
} Work;

typedef struct {
  Drafter inner;
  Work *work;
} Listener;

static Status propose_and_note(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  Listener *l = self;
  Work *w = l->work;
  int at = 0;
  while (memcmp(w->prompts[at], text->ids, sizeof w->prompts[at]) != 0) at++;
  TRY(l->inner.propose(l->inner.self, text, most, guesses, err));
  Noted *noted = &w->alone[at][text->n];
  if (!w->in_batch) {
    noted->n = guesses->n;
    memcpy(noted->ids, guesses->ids, sizeof noted->ids);
    return STATUS_OK;
  }
  const int n = guesses->n < noted->n ? guesses->n : noted->n;
  assert_memory_equal(guesses->ids, noted->ids, (size_t)n * sizeof *guesses->ids);
  w->n_same += n;
  return STATUS_OK;
}

static Status take_on(void *self, const DraftRows *rows, Error *err) {
  const Listener *l = self;
  return l->inner.take(l->inner.self, rows, err);
}

static void forget_too(void *self) {
  const Listener *l = self;
  if (l->inner.forget) l->inner.forget(l->inner.self);
}

static void close_listener(void *self) {
  Listener *l = self;
  drafter_close(&l->inner);
  free(l);
}

typedef struct {
  Pair *pair;
  Work *work;
} Listening;

static Status open_listener(void *listening, int n_ctx, Drafter *drafter, Error *err) {
  const Listening *both = listening;
  Listener *l = calloc(1, sizeof *l);
  l->work = both->work;
  TRY(open_drafter(both->pair, n_ctx, &l->inner, err));
  *drafter = l->inner;
  drafter->self = l;
  drafter->propose = propose_and_note;
  drafter->take = l->inner.take ? take_on : NULL;
  drafter->forget = forget_too;
  drafter->close = close_listener;
  return STATUS_OK;
}

/* --- answers */

static uint32_t number(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 16;
}

static Status hear(void *user, int32_t id, TokenReply *reply, Error *err) {
  int32_t **next = user;
  (void)reply, (void)err;
  *(*next)++ = id;
  return STATUS_OK;
}

static void answer(const Pair *p, const Work *w, int at, Drafter *drafter, int32_t ids[N_ANSWER]) {
  Session *session;
  Error err = {{0}};
  GenerateResult result;
  const SessionOptions options = {.n_ctx = N_CTX,
                                  .chunk = 7,
                                  .kv = KV_F32,
                                  .sampler = w->samplers[at],
                                  .drafter = drafter,
                                  .n_guesses = drafter ? MOST_GUESSES : 0,
                                  .guess_always = true};
  const GenerateOptions generate_options = {.max_tokens = N_ANSWER};
  must(session_open(&cpu_backend, p->loaded, p->target, &options, &session, &err), &err);
  must(session_sync(session, w->prompts[at], N_PROMPT, NULL, NULL, &err), &err);
  must(generate(session, &generate_options, hear, &ids, &result, &err), &err);
  assert_true(!drafter || result.guesses.n_guessed > 0 || strcmp(p->kind->name, "the text") == 0);
  session_close(session);
}

typedef struct {
  Work *work;
  int n_asked;
  int32_t got[N_PROMPTS][N_ANSWER], *next[N_PROMPTS];
} Asking;

static Status next_request(void *user, bool may_wait, BatchRequest *request, bool *found, Error *err) {
  Asking *a = user;
  (void)may_wait, (void)err;
  *found = a->n_asked < N_PROMPTS;
  if (!*found) return STATUS_OK;
  const int at = a->n_asked++;
  a->next[at] = a->got[at];
  *request = (BatchRequest){.ids = a->work->prompts[at],
                            .n_ids = N_PROMPT,
                            .sampler = &a->work->samplers[at],
                            .generate = {.max_tokens = N_ANSWER},
                            .sink = hear,
                            .user = &a->next[at]};
  return STATUS_OK;
}

static Status request_is_done(void *user, const BatchRequest *request, const BatchResult *result,
                              Error *err) {
  (void)user, (void)request;
  if (result->status) return error_set(err, result->status, "%s", result->error.text);
  return STATUS_OK;
}

/* Five sequences at once; of 75 prompts the last ones alone where there are fewer drafters. */
static void answer_in_a_batch(Pair *p, Work *w, int n_drafters) {
  Error err = {{0}};
  Listening listening = {p, w};
  Asking *asking = calloc(1, sizeof *asking);
  Batch *batch;
  BatchOptions options = {.n_sequences = 5,
                          .n_ctx = N_CTX,
                          .n_guesses = MOST_GUESSES,
                          .guess_always = true,
                          .n_drafters = n_drafters,
                          .chunk = 40,
                          .kv = KV_F32,
                          .draft = {.open = open_listener, .user = &listening}};
  if (is_trained(p->kind)) options.draft.taps = published_taps(&p->model->config.draft);
  asking->work = w;
  w->in_batch = true;
  w->n_same = 0;
  const BatchJob job = {.next = next_request, .done = request_is_done, .user = asking};
  must(batch_open(&cpu_backend, p->loaded, p->target, &options, &batch, &err), &err);
  must(batch_run(batch, &job, &err), &err);
  batch_close(batch);
  assert_memory_equal(asking->got, w->answers, sizeof w->answers);
  free(asking);
  w->in_batch = false;
}

static void make_prompts(const Pair *p, Work *w) {
  uint32_t seed = 9;
  for (int i = 0; i < N_PROMPTS; i++) {
    for (int j = 0; j < N_PROMPT; j++) w->prompts[i][j] = (int32_t)(number(&seed) % (uint32_t)p->vocab_size);
    w->prompts[i][0] = i; /* no two share pages, whose tokens one's drafter would not see */
    for (int j = 5; j < N_PROMPT && i % 2; j++) w->prompts[i][j] = w->prompts[i][j - 4];
    w->samplers[i] = (SamplerSettings){
        .temperature = i % 3 ? 0 : 0.8, .top_p = 1, .repetition_penalty = i % 5 == 1 ? 1.1 : 1, .seed = i};
  }
}

static void answers_are_those_without_guesses(void **state) {
  (void)state;
  for (int k = 0; k < N_KINDS; k++) {
    Pair p = open_pair(&kinds[k]);
    Work *w = calloc(1, sizeof *w);
    Listening listening = {&p, w};
    Error err = {{0}};
    make_prompts(&p, w);
    for (int i = 0; i < N_PROMPTS; i++) {
      int32_t guessed[N_ANSWER];
      Drafter drafter;
      answer(&p, w, i, NULL, w->answers[i]);
      must(open_listener(&listening, N_CTX, &drafter, &err), &err);
      answer(&p, w, i, &drafter, guessed);
      drafter_close(&drafter);
      assert_memory_equal(guessed, w->answers[i], sizeof guessed);
    }
    if (!config_has_states(&p.target->config) && strcmp(p.kind->name, "an assistant of Gemma 4") != 0) {
      answer_in_a_batch(&p, w, 0);
      const int of_all = w->n_same;
      assert_true(of_all > N_PROMPTS * (kinds[k].drafter ? 10 : 0));
      answer_in_a_batch(&p, w, 2);
      assert_true(w->n_same < of_all / 4);
    }
    free(w);
    close_pair(&p);
  }
}

/* --- the distribution of tokens */

enum { BINS = 50, N_DRAWN = 5, N_LONG = 98, N_LONG_CTX = N_LONG + N_DRAWN };

/* Where a random point of the token's probability lies if tokens are in order of theirs: for a token that was
 * drawn by these probabilities it is uniform in 0 .. 1. */
static double place_of(const float *logits, int n, int32_t id, uint32_t *seed) {
  double most = -INFINITY, all = 0, likelier = 0;
  for (int i = 0; i < n; i++) most = fmax(most, logits[i]);
  for (int i = 0; i < n; i++) {
    const double e = exp(logits[i] - most);
    all += e;
    if (logits[i] > logits[id] || (logits[i] == logits[id] && i < id)) likelier += e;
  }
  return (likelier + exp(logits[id] - most) * (number(seed) / 65536.0)) / all;
}

/* The chance of counts as uneven as these (Wilson and Hilferty's approximation of chi-square's tail). */
static double chance_of(const long counts[BINS], long n) {
  double chi = 0;
  const double expected = (double)n / BINS, k = BINS - 1;
  for (int i = 0; i < BINS; i++) chi += (counts[i] - expected) * (counts[i] - expected) / expected;
  return erfc((cbrt(chi / k) - (1 - 2 / (9 * k))) / sqrt(2 / (9 * k)) / sqrt(2)) / 2;
}

/* Draws answers of five tokens. wrong_rule: the first guess of a step counts as drawn. */
static double draw(Pair *p, bool wrong_rule, long *n_kept) {
  Error err = {{0}};
  Drafter drafter;
  Session *session, *plain;
  SamplerSettings sampler = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
  const SessionOptions alone = {.n_ctx = N_LONG_CTX, .kv = KV_F32, .sampler = sampler};
  SessionOptions options = alone;
  long counts[BINS] = {0}, n = 0;
  uint32_t seed = 3;
  must(open_drafter(p, N_LONG_CTX, &drafter, &err), &err);
  options.drafter = &drafter;
  options.n_guesses = 3;
  options.guess_always = true;
  must(session_open(&cpu_backend, p->loaded, p->target, &options, &session, &err), &err);
  must(session_open(&cpu_backend, p->loaded, p->target, &alone, &plain, &err), &err);
  for (; n < n_draws; sampler.seed++) {
    int32_t ids[N_LONG_CTX]; /* 7, 30 and each of some tokens */
    for (int i = 0; i < N_LONG; i++) ids[i] = (int32_t[]){7, 30, i / 4, 41}[i % 4];
    must(session_set_sampler(session, &sampler, &err), &err);
    must(session_sync(session, ids, N_LONG, NULL, NULL, &err), &err);
    for (int i = N_LONG; i < N_LONG + N_DRAWN; i++, n++) {
      const int32_t *guesses;
      const float *logits;
      must(session_sample(session, &ids[i], &err), &err);
      if (wrong_rule && session_guessed(session, &guesses) > 0) ids[i] = guesses[0];
      must(session_sync(plain, ids, i, NULL, NULL, &err), &err);
      must(session_last_logits(plain, &logits, &err), &err);
      const int bin = (int)(place_of(logits, p->vocab_size, ids[i], &seed) * BINS);
      counts[bin < BINS ? bin : BINS - 1]++;
      session_hold(session, ids[i]);
      if (i + 1 < N_LONG + N_DRAWN) must(session_decode_held(session, N_LONG + N_DRAWN - i - 2, &err), &err);
    }
  }
  *n_kept = (long)session_guesses(session).n_accepted;
  session_close(session);
  session_close(plain);
  drafter_close(&drafter);
  return chance_of(counts, n);
}

static void tokens_are_drawn_from_the_targets_distribution(void **state) {
  (void)state;
  for (int k = 0; k < N_KINDS; k++) {
    Pair p = open_pair(&kinds[k]);
    long n_kept, n_wrong;
    const double right = draw(&p, false, &n_kept), wrong = draw(&p, true, &n_wrong);
    printf("guesses of %s: %ld draws, %ld of them guessed, p = %.3g; with a wrong rule %ld, p = %.3g\n",
           kinds[k].name, n_draws, n_kept, right, n_wrong, wrong);
    assert_true(right > 0.001);
    assert_true(wrong < 1e-6);
    assert_true(n_wrong > n_draws / 20);
    close_pair(&p);
  }
}

int main(int argc, char **argv) {
  if (argc > 1) n_draws = strtol(argv[1], NULL, 10);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_are_those_without_guesses),
      cmocka_unit_test(tokens_are_drawn_from_the_targets_distribution),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
