/* test_guessing.c - guessed tokens change nothing but the number of steps: answers with drafters that are
 * right, wrong and half right are those without a drafter, token by token and draw by draw, over the backend
 * that is a hash of its cache (fake_backend.h); and what guesses cost stays within its bound. */
#include "session_test.h"

#include "engine/drafters/draft_text.h"
#include "engine/generate.h"

enum { N_PROMPTS = 300, LONGEST_PROMPT = 30, N_FORCED = 4, ANSWER = 60 };

/* --- a drafter that knows the answer, and says it, or something else */

typedef enum { RIGHT, WRONG, HALF_RIGHT, N_KINDS } Kind;

typedef struct {
  Kind kind;
  int32_t ids[FAKE_POSITIONS]; /* [n] prompt and answer */
  int n;
  int n_told; /* what take() was told of, and checked */
  uint32_t seed;
} Oracle;

static uint32_t number(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 16;
}

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  Oracle *o = self;
  (void)err;
  assert_true(most >= 1 && most <= DRAFT_MOST && text->n_computed < text->n);
  assert_memory_equal(text->ids, o->ids, (size_t)(text->n < o->n ? text->n : o->n) * sizeof *o->ids);
  while (guesses->n < most && text->n + guesses->n < o->n) {
    const int32_t id = o->ids[text->n + guesses->n];
    const bool right = o->kind == RIGHT || (o->kind == HALF_RIGHT && number(&o->seed) % 2);
    guesses->ids[guesses->n++] = right ? id : (id + 1) % FAKE_VOCAB;
  }
  return STATUS_OK;
}

/* --- answers */

typedef struct {
  const Model *model;
  SamplerSettings sampler;
  bool forces, masks, scores;
  int stop_at; /* the token of the answer at which the sink ends it; 0: none */
} Case;

typedef struct {
  const Case *of;
  int32_t ids[FAKE_POSITIONS];
  int n, left;
  uint64_t mask[(FAKE_VOCAB + 63) / 64];
  double scored;
  int n_scored;
} Heard;

static const int32_t forced_ids[N_FORCED] = {5, 90, 5, 6};

static Status hear(void *user, int32_t id, TokenReply *reply, Error *err) {
  Heard *h = user;
  (void)err;
  h->ids[h->n++] = id;
  reply->stop = h->n == h->of->stop_at;
  if (h->left > 0) {
    h->left--;
  } else if (h->of->forces && id % 7 == 3) {
    reply->forced = forced_ids;
    reply->n_forced = h->left = N_FORCED;
  }
  return STATUS_OK;
}

/* A mask that depends on the tokens so far. */
static Status allow(void *user, const uint64_t **mask, Error *err) {
  Heard *h = user;
  (void)err;
  uint32_t seed = h->n > 0 ? (uint32_t)h->ids[h->n - 1] : 0;
  for (size_t i = 0; i < sizeof h->mask / sizeof *h->mask; i++)
    h->mask[i] = (uint64_t)number(&seed) << 48 | (uint64_t)number(&seed) << 32 | number(&seed) << 16 | 0xffff;
  *mask = h->mask;
  return STATUS_OK;
}

static Status score(void *user, const float *logits, int32_t id, Error *err) {
  Heard *h = user;
  (void)err;
  h->scored += log_probability(logits, FAKE_VOCAB, id) * ++h->n_scored;
  return STATUS_OK;
}

typedef struct {
  Heard heard;
  GenerateResult result;
  int n_steps;
} Run;

static Run answer(const Case *c, const int32_t *prompt, int n, Drafter *drafter, bool always) {
  BackendModel loaded = {c->model};
  Session *session;
  Run run = {.heard = {.of = c}};
  Error err = {{0}};
  fake = (FakeCounts){.end_at = -1, .turn = LONG_TURN};
  const SessionOptions options = {.n_ctx = LONGEST_PROMPT + ANSWER,
                                  .sampler = c->sampler,
                                  .drafter = drafter,
                                  .n_guesses = drafter ? 6 : 0,
                                  .guess_always = always};
  if (session_open(&fake_backend, &loaded, c->model, &options, &session, &err)) fail_msg("%s", err.text);
  assert_int_equal(session_sync(session, prompt, n, NULL, NULL, NULL), STATUS_OK);
  const int before = fake.n_steps;
  const GenerateOptions generate_options = {
      .max_tokens = ANSWER - n % 7, .allow = c->masks ? allow : NULL, .score = c->scores ? score : NULL};
  if (generate(session, &generate_options, hear, &run.heard, &run.result, &err)) fail_msg("%s", err.text);
  run.n_steps = fake.n_steps - before;
  /* What the session holds is the text, whose next tokens are drawn as they would be. */
  const int n_held = session_length(session) - n;
  assert_true(n_held <= run.heard.n);
  assert_memory_equal(session_ids(session) + n, run.heard.ids, (size_t)n_held * sizeof *prompt);
  session_close(session);
  return run;
}

static void check_same(const Run *run, const Run *plain) {
  assert_int_equal(run->heard.n, plain->heard.n);
  assert_memory_equal(run->heard.ids, plain->heard.ids, (size_t)plain->heard.n * sizeof *plain->heard.ids);
  assert_int_equal(run->result.reason, plain->result.reason);
  assert_int_equal(run->heard.n_scored, plain->heard.n_scored);
  assert_true(run->heard.scored == plain->heard.scored);
}

static const SamplerSettings warm = {.temperature = 3, .top_p = 0.9, .repetition_penalty = 1, .seed = 11},
                             penalised = {.temperature = 3,
                                          .top_p = 0.9,
                                          .repetition_penalty = 1.3,
                                          .presence_penalty = 0.5,
                                          .frequency_penalty = 0.25,
                                          .seed = 11};

static void guesses_change_no_token(void **state) {
  (void)state;
  const Case cases[] = {
      {.model = &model, .sampler = greedy},
      {.model = &model, .sampler = warm, .stop_at = 31},
      {.model = &model, .sampler = penalised, .forces = true},
      {.model = &model, .sampler = penalised, .masks = true},
      {.model = &model, .sampler = warm, .scores = true, .forces = true},
      {.model = &hybrid_model, .sampler = greedy, .forces = true},
      {.model = &hybrid_model, .sampler = penalised},
      {.model = &long_model, .sampler = warm, .masks = true},
      {.model = &long_hybrid_model, .sampler = penalised, .forces = true},
  };
  enum { N_CASES = sizeof cases / sizeof *cases };
  long long guessed[N_KINDS] = {0}, accepted[N_KINDS] = {0}, steps[N_KINDS] = {0}, plain_steps = 0;
  for (int i = 0; i < N_PROMPTS; i++) {
    Case c = cases[i % N_CASES];
    c.sampler.seed += (uint64_t)i;
    int32_t prompt[LONGEST_PROMPT];
    const int n = 5 + i % (LONGEST_PROMPT - 5);
    make_ids(prompt, n, i);
    const Run plain = answer(&c, prompt, n, NULL, false);
    plain_steps += plain.n_steps;
    for (int kind = 0; kind < N_KINDS; kind++) {
      for (int always = 0; always < 2; always++) {
        Oracle oracle = {.kind = (Kind)kind, .n = n + plain.heard.n, .seed = (uint32_t)i};
        memcpy(oracle.ids, prompt, (size_t)n * sizeof *prompt);
        memcpy(oracle.ids + n, plain.heard.ids, (size_t)plain.heard.n * sizeof *prompt);
        Drafter drafter = {.name = "oracle", .self = &oracle, .propose = propose};
        const Run run = answer(&c, prompt, n, &drafter, always);
        check_same(&run, &plain);
        if (!always) continue;
        guessed[kind] += run.result.guesses.n_guessed;
        accepted[kind] += run.result.guesses.n_accepted;
        steps[kind] += run.n_steps;
      }
    }
  }
  /* A guess is not judged where the answer ends before it. */
  assert_true(accepted[RIGHT] > guessed[RIGHT] * 9 / 10 && guessed[RIGHT] > 10000);
  assert_true(steps[RIGHT] * 3 < plain_steps);
  assert_int_equal(accepted[WRONG], 0);
  assert_true(guessed[WRONG] > 10000);
  assert_true(accepted[HALF_RIGHT] > 1000 && accepted[HALF_RIGHT] < guessed[HALF_RIGHT] / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(guesses_change_no_token),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
