/* test_answers.c - answers with the guesses of each kind of drafter, and with guesses forced to be right,
 * wrong and half right: at any temperature they are those without guesses, in a session and side by side in a
 * batch, where a drafter guesses what it would guess alone. Their tokens are drawn from the target's
 * distribution, and a rule that keeps wrong guesses fails.
 *
 * usage: test_answers [PROMPTS [DRAWS [TARGET [DRAFTER...]]]]: of each kind 75 prompts and 2,000 draws by
 * default (15 and 500 under a sanitizer), some seconds; `test_answers 300 200000` is all. TARGET: a model in
 * place of the miniatures, with drafters that are trained for it or models with its vocabulary. */
#include <math.h>

#include "engine/drafters/draft_model.h"
#include "engine/drafters/draft_text.h"
#include "engine/drafters/published.h"
#include "engine/engine.h"
#include "model/config/config.h"
#include "test/unit.h"

#define DRAFTERS "test/data/drafters/"

extern const Backend cpu_backend;

enum { MOST_PROMPTS = 300, N_PROMPT = 12, N_ANSWER = 14, N_CTX = N_PROMPT + N_ANSWER, MOST_GUESSES = 5 };

static const BackendOptions one_thread = {.n_threads = 1};
#ifdef __SANITIZE_ADDRESS__ /* ten times slower */
static int n_prompts = 15;
static long n_draws = 500;
#else
static int n_prompts = 75;
static long n_draws = 2000;
#endif

typedef enum { TRAINED, MODEL, TEXT, RIGHT, WRONG, HALF_RIGHT } Guesser;

/* A target, and who guesses for it. */
typedef struct {
  Guesser who;
  const char *name, *target, *drafter; /* drafter: of TRAINED and MODEL */
} Kind;
enum { MOST_KINDS = 16, N_FORCED = 3 };
static int n_kinds = 9;
static Kind kinds[MOST_KINDS] = {
    {TRAINED, "EAGLE-3", DRAFTERS "target", DRAFTERS "eagle3"},
    {TRAINED, "DFlash", DRAFTERS "target", DRAFTERS "dflash"},
    {TRAINED, "a layer for several tokens", DRAFTERS "qwen3_5-mtp", DRAFTERS "qwen3_5-mtp"},
    {TRAINED, "an assistant of Gemma 4", "test/data/miniatures/gemma4-bf16", DRAFTERS "gemma4-assistant"},
    {MODEL, "another model", DRAFTERS "target", "test/data/miniatures/qwen3-awq"},
    {TEXT, "the text", DRAFTERS "target", NULL},
    {RIGHT, "one who is right", DRAFTERS "target", NULL},
    {WRONG, "one who is wrong", DRAFTERS "qwen3_5-mtp", NULL},
    {HALF_RIGHT, "one who is half right", "test/data/miniatures/gemma4-bf16", NULL},
};

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
  return kind->who == TRAINED;
}

static bool is_forced(const Kind *kind) {
  return kind->who >= RIGHT;
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
  *drafter = (Drafter){.name = p->kind->name};
  if (is_forced(p->kind)) return STATUS_OK; /* guess_by_the_answer() */
  if (p->kind->who == TEXT) return draft_text_open(n_ctx, drafter, err);
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
  int32_t prompts[MOST_PROMPTS][N_PROMPT];
  SamplerSettings samplers[MOST_PROMPTS];
  int32_t answers[MOST_PROMPTS][N_ANSWER]; /* without guesses */
  Noted alone[MOST_PROMPTS][N_CTX];        /* what the session's drafter guessed after so many tokens */
  bool in_batch;
  bool from_the_beginning; /* in the batch a drafter sees all of a text, and guesses as it does alone */
  int n_in_batch;          /* guesses of the batch */
  long long n_guessed, n_accepted; /* of sessions */
} Work;

typedef struct {
  Drafter inner;
  const Kind *kind;
  Work *work;
} Listener;

static void guess_by_the_answer(Guesser who, const int32_t *answer, int n_answered, int most,
                                Guesses *guesses) {
  for (int i = n_answered; i < N_ANSWER && guesses->n < most; i++) {
    const bool right = who == RIGHT || (who == HALF_RIGHT && i % 2);
    guesses->ids[guesses->n++] = right ? answer[i] : (answer[i] + 1) % 100;
  }
}

static Status propose_and_note(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  Listener *l = self;
  Work *w = l->work;
  int at = 0;
  while (memcmp(w->prompts[at], text->ids, sizeof w->prompts[at]) != 0) at++;
  if (is_forced(l->kind))
    guess_by_the_answer(l->kind->who, w->answers[at], text->n - N_PROMPT, most, guesses);
  else
    TRY(l->inner.propose(l->inner.self, text, most, guesses, err));
  Noted *noted = &w->alone[at][text->n];
  if (!w->in_batch) {
    noted->n = guesses->n;
    memcpy(noted->ids, guesses->ids, sizeof noted->ids);
    return STATUS_OK;
  }
  const int n = guesses->n < noted->n ? guesses->n : noted->n;
  if (w->from_the_beginning) assert_memory_equal(guesses->ids, noted->ids, (size_t)n * sizeof *guesses->ids);
  w->n_in_batch += w->from_the_beginning ? n : guesses->n;
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
  l->kind = both->pair->kind;
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

static void answer(const Pair *p, Work *w, int at, Drafter *drafter, int32_t ids[N_ANSWER]) {
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
  must(session_sync(session, w->prompts[at], N_PROMPT, &err), &err);
  must(generate(session, &generate_options, hear, &ids, &result, &err), &err);
  assert_true(!drafter || result.guesses.n_guessed > 0 || p->kind->who == TEXT);
  w->n_guessed += result.guesses.n_guessed;
  w->n_accepted += result.guesses.n_accepted;
  session_close(session);
}

typedef struct {
  Work *work;
  int n_asked, n;
  int32_t got[MOST_PROMPTS][N_ANSWER], *next[MOST_PROMPTS];
} Asking;

static Status next_request(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Asking *a = user;
  (void)may_wait, (void)err;
  *found = a->n_asked < a->n;
  if (!*found) return STATUS_OK;
  const int at = a->n_asked++;
  a->next[at] = a->got[at];
  *request = (EngineRequest){.ids = a->work->prompts[at],
                             .n_ids = N_PROMPT,
                             .sampler = &a->work->samplers[at],
                             .generate = {.max_tokens = N_ANSWER},
                             .sink = hear,
                             .user = &a->next[at]};
  return STATUS_OK;
}

static Status request_is_done(void *user, const EngineRequest *request, const EngineResult *result,
                              Error *err) {
  (void)user, (void)request;
  if (result->status) return error_set(err, result->status, "%s", result->error.text);
  return STATUS_OK;
}

/* Five sequences at once. n_drafters 2: sequences have drafters only while there are two at most, as the last
 * two are (five end, and the next five begin), and from the end of their prompts on. */
static void answer_in_a_batch(Pair *p, Work *w, int n_drafters) {
  Error err = {{0}};
  Listening listening = {p, w};
  Asking *asking = calloc(1, sizeof *asking);
  Engine *engine;
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
  asking->n = n_drafters == 2 ? n_prompts - (n_prompts + 3) % 5 : n_prompts;
  w->in_batch = true;
  w->from_the_beginning = n_drafters == 0;
  w->n_in_batch = 0;
  const EngineJob job = {.next = next_request, .done = request_is_done, .user = asking};
  must(engine_open(&cpu_backend, p->loaded, p->target, &(const EngineOptions){.batch = &options}, &engine,
                   &err),
       &err);
  must(engine_run(engine, &job, &err), &err);
  engine_close(engine);
  assert_memory_equal(asking->got, w->answers, (size_t)asking->n * sizeof *w->answers);
  free(asking);
  w->in_batch = false;
}

static void make_prompts(const Pair *p, Work *w) {
  uint32_t seed = 9;
  for (int i = 0; i < n_prompts; i++) {
    for (int j = 0; j < N_PROMPT; j++) w->prompts[i][j] = (int32_t)(number(&seed) % (uint32_t)p->vocab_size);
    /* No two whose pages are kept at a time begin alike: a drafter does not see tokens that are shared. */
    w->prompts[i][0] = i % p->vocab_size;
    for (int j = 5; j < N_PROMPT && i % 2; j++) w->prompts[i][j] = w->prompts[i][j - 4];
    w->samplers[i] = (SamplerSettings){
        .temperature = i % 3 ? 0 : 0.8, .top_p = 1, .repetition_penalty = i % 5 == 1 ? 1.1 : 1, .seed = i};
  }
}

/* True if each of several sequences at once has a drafter of this kind. */
static bool guesses_for_many(const Pair *p) {
  return !config_has_states(&p->target->config) &&
         !(is_trained(p->kind) && p->model->config.draft.kind == DRAFT_ASSISTANT);
}

static void answers_are_those_without_guesses(void **state) {
  for (int k = 0; k < n_kinds; k++) {
    const Guesser who = kinds[k].who;
    Pair p = open_pair(&kinds[k]);
    Work *w = calloc(1, sizeof *w);
    Listening listening = {&p, w};
    Error err = {{0}};
    make_prompts(&p, w);
    for (int i = 0; i < n_prompts; i++) {
      int32_t guessed[N_ANSWER];
      Drafter drafter;
      answer(&p, w, i, NULL, w->answers[i]);
      must(open_listener(&listening, N_CTX, &drafter, &err), &err);
      answer(&p, w, i, &drafter, guessed);
      drafter_close(&drafter);
      assert_memory_equal(guessed, w->answers[i], sizeof guessed);
    }
    printf("guesses of %s: %d of %d answers the same, %lld of %lld guesses right%s\n", kinds[k].name,
           n_prompts, n_prompts, w->n_accepted, w->n_guessed, guesses_for_many(&p) ? "; five at once" : "");
    fflush(stdout);
    assert_true(who != RIGHT || w->n_accepted == w->n_guessed);
    assert_true(who != WRONG || w->n_accepted == 0);
    if (guesses_for_many(&p)) {
      answer_in_a_batch(&p, w, 0);
      const int of_all = w->n_in_batch;
      assert_true(of_all > n_prompts * (who == TEXT ? 0 : 7));
      answer_in_a_batch(&p, w, 2);
      assert_true(who == TEXT || (w->n_in_batch > 0 && w->n_in_batch < of_all / 2));
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
    must(sampler_set(session_view(session).text->sampler, &sampler, &err), &err);
    must(session_sync(session, ids, N_LONG, &err), &err);
    for (int i = N_LONG; i < N_LONG + N_DRAWN; i++, n++) {
      const int32_t *guesses;
      const float *logits;
      must(session_sample(session, &ids[i], &err), &err);
      if (wrong_rule && session_guessed(session, &guesses) > 0) ids[i] = guesses[0];
      must(session_sync(plain, ids, i, &err), &err);
      must(session_last_logits(plain, &logits, &err), &err);
      const int bin = (int)(place_of(logits, p->vocab_size, ids[i], &seed) * BINS);
      counts[bin < BINS ? bin : BINS - 1]++;
      session_hold(session, ids[i]);
      if (i + 1 < N_LONG + N_DRAWN) must(session_decode_held(session, N_LONG + N_DRAWN - i - 2, &err), &err);
    }
  }
  *n_kept = (long)session_take_guesses(session).n_accepted;
  session_close(session);
  session_close(plain);
  drafter_close(&drafter);
  return chance_of(counts, n);
}

static void tokens_are_drawn_from_the_targets_distribution(void **state) {
  for (int k = 0; k < n_kinds && n_draws > 0; k++) {
    if (is_forced(&kinds[k]) || !SAMPLED(k)) continue; /* what a guess is there depends on the answer */
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

/* Drafters for one model, beside the text and forced guesses. */
static void choose_kinds(const char *target, int n_drafters, char **drafters) {
  Error err = {{0}};
  n_kinds = 0;
  for (int i = 0; i < n_drafters && n_kinds < MOST_KINDS - N_FORCED - 1; i++) {
    bool trained;
    must(config_is_draft(drafters[i], &trained, &err), &err);
    kinds[n_kinds++] = (Kind){trained ? TRAINED : MODEL, drafters[i], target, drafters[i]};
  }
  kinds[n_kinds++] = (Kind){TEXT, "the text", target, NULL};
  kinds[n_kinds++] = (Kind){RIGHT, "one who is right", target, NULL};
  kinds[n_kinds++] = (Kind){WRONG, "one who is wrong", target, NULL};
  kinds[n_kinds++] = (Kind){HALF_RIGHT, "one who is half right", target, NULL};
}

int main(int argc, char **argv) {
  if (argc > 1) n_prompts = (int)strtol(argv[1], NULL, 10);
  if (argc > 2) n_draws = strtol(argv[2], NULL, 10);
  if (argc > 3) choose_kinds(argv[3], argc - 4, argv + 4);
  if (n_prompts < 1 || n_prompts > MOST_PROMPTS) {
    fprintf(stderr, "test_answers: expected 1 to %d prompts\n", MOST_PROMPTS);
    return 2;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_are_those_without_guesses),
      cmocka_unit_test(tokens_are_drawn_from_the_targets_distribution),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
