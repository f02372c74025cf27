/* test_guessing.c - guessed tokens change nothing but the number of steps: answers with drafters that are
 * right, wrong and half right are those without a drafter, token by token and draw by draw, over the backend
 * that is a hash of its cache (fake_backend.h); and what guesses cost stays within its bound. */
#include "session_test.h"

#include <math.h>

#include "engine/drafters/draft_text.h"
#include "engine/one.h"
#include "test/tests.h"

enum { N_PROMPTS = 300, LONGEST_PROMPT = 30, N_FORCED = 4, ANSWER = 60 };

/* --- a drafter that knows the answer, and says it, or something else */

typedef enum { RIGHT, WRONG, HALF_RIGHT, N_KINDS } Kind;

typedef struct {
  Kind kind;
  int32_t ids[FAKE_POSITIONS]; /* [n] prompt and answer */
  int n;
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
  const Backend *backend; /* one that waits for each step, or one that runs ahead */
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

static Status score(void *user, const TokenScore *scores, Error *err) {
  Heard *h = user;
  (void)err;
  h->scored += scores->log_p * ++h->n_scored;
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
  if (session_open(c->backend, &loaded, c->model, &options, &session, &err)) fail_msg("%s", err.text);
  assert_int_equal(session_sync(session, prompt, n, NULL), STATUS_OK);
  const int before = fake.n_steps;
  const GenerateOptions generate_options = {
      .max_tokens = ANSWER - n % 7, .allow = c->masks ? allow : NULL, .score = c->scores ? score : NULL};
  if (generate(session, &generate_options, hear, &run.heard, &run.result, &err)) fail_msg("%s", err.text);
  run.n_steps = fake.n_steps - before;
  /* The session holds the beginning of the answer, and no guess that was wrong. */
  const int n_held = session_view(session).text->n_past - n;
  assert_true(n_held <= run.heard.n);
  assert_memory_equal(session_view(session).text->ids + n, run.heard.ids, (size_t)n_held * sizeof *prompt);
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

typedef struct {
  long long guessed[N_KINDS], accepted[N_KINDS], steps[N_KINDS], plain_steps;
} Counts;

/* Compares answers to a prompt with those without guesses. */
static void compare_answers(const Case *c, const int32_t *prompt, int n, uint32_t seed, Counts *counts) {
  const Run plain = answer(c, prompt, n, NULL, false);
  counts->plain_steps += plain.n_steps;
  for (int kind = 0; kind < N_KINDS; kind++) {
    for (int always = 0; always < 2; always++) {
      Oracle oracle = {.kind = (Kind)kind, .n = n + plain.heard.n, .seed = seed};
      memcpy(oracle.ids, prompt, (size_t)n * sizeof *prompt);
      memcpy(oracle.ids + n, plain.heard.ids, (size_t)plain.heard.n * sizeof *prompt);
      Drafter drafter = {.name = "oracle", .self = &oracle, .propose = propose};
      const Run run = answer(c, prompt, n, &drafter, always);
      check_same(&run, &plain);
      if (!always) continue;
      counts->guessed[kind] += run.result.guesses.n_guessed;
      counts->accepted[kind] += run.result.guesses.n_accepted;
      counts->steps[kind] += run.n_steps;
    }
  }
}

TEST(guesses_change_no_token) {
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
  Counts all = {.plain_steps = 0};
  for (int i = 0; i < N_PROMPTS; i++) {
    Case c = cases[i % N_CASES];
    int32_t prompt[LONGEST_PROMPT];
    const int n = 5 + i % (LONGEST_PROMPT - 5);
    c.sampler.seed += (uint64_t)i;
    make_ids(prompt, n, i);
    c.backend = &fake_backend;
    compare_answers(&c, prompt, n, (uint32_t)i, &all);
    c.backend = &fake_ahead_backend;
    if (c.sampler.repetition_penalty == 1) compare_answers(&c, prompt, n, (uint32_t)i, &all);
  }
  /* A guess is not judged where the answer ends before it. */
  assert_true(all.accepted[RIGHT] > all.guessed[RIGHT] * 9 / 10 && all.guessed[RIGHT] > 10000);
  assert_true(all.steps[RIGHT] * 3 < all.plain_steps);
  assert_int_equal(all.accepted[WRONG], 0);
  assert_true(all.guessed[WRONG] > 10000);
  assert_true(all.accepted[HALF_RIGHT] > 1000 && all.accepted[HALF_RIGHT] < all.guessed[HALF_RIGHT] / 2);
}

/* --- the distribution */

#ifdef __SANITIZE_ADDRESS__
enum { N_DRAWS = 50000 };
#else
enum { N_DRAWS = 200000 };
#endif
enum { FIRST_PROMPT = 4 };

typedef enum { LIKELIEST, UNLIKELY, DRAWN, N_GUESSERS } Guesser;

/* Guesses by its kind: the likeliest token, one of little weight, or one drawn with other random numbers. */
static Status propose_by_logits(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  const Guesser kind = *(const Guesser *)self;
  static uint32_t seed = 1;
  int32_t ids[FAKE_POSITIONS];
  float logits[FAKE_VOCAB];
  (void)err;
  memcpy(ids, text->ids, (size_t)text->n * sizeof *ids);
  for (int n = text->n; guesses->n < most && guesses->n < 2; n++) {
    int32_t best = 0;
    whole_logits(ids, n, logits);
    for (int32_t v = 1; v < FAKE_VOCAB; v++) best = logits[v] > logits[best] ? v : best;
    if (kind == UNLIKELY) best = (best + 1) % FAKE_VOCAB;
    if (kind == DRAWN) best = (int32_t)(number(&seed) % FAKE_VOCAB);
    ids[n] = guesses->ids[guesses->n++] = best;
  }
  return STATUS_OK;
}

/* The chi-square of counts against softmax(logits / temperature), cells of few expected draws together, as a
 * standard normal number (Wilson and Hilferty, 1931). */
static double chi_square(const long *counts, const float *logits, double temperature) {
  double sum = 0, all = 0, square = 0, few = 0, few_expected = 0;
  int n_cells = 0;
  for (int v = 0; v < FAKE_VOCAB; v++) all += (double)counts[v];
  for (int v = 0; v < FAKE_VOCAB; v++) sum += exp((double)logits[v] / temperature);
  for (int v = 0; v < FAKE_VOCAB; v++) {
    const double expected = all * exp((double)logits[v] / temperature) / sum;
    few += (double)counts[v];
    few_expected += expected;
    if (few_expected < 10) continue;
    square += (few - few_expected) * (few - few_expected) / few_expected;
    few = few_expected = 0;
    n_cells++;
  }
  const double k = n_cells - 1, part = 2 / (9 * k);
  return (cbrt(square / k) - (1 - part)) / sqrt(part);
}

/* The first token, and the second after the first that came most often. With `wrong_rule` the guess is kept
 * with its probability, and if it is not, any token is drawn: it comes too often. */
static double worst_of(Guesser kind, bool wrong_rule) {
  enum { LONG_ENOUGH = 3000 };
  static long first[FAKE_VOCAB], second[FAKE_VOCAB][FAKE_VOCAB];
  memset(first, 0, sizeof first);
  memset(second, 0, sizeof second);
  BackendModel loaded = {&model};
  Session *session;
  Drafter drafter = {.name = "by logits", .self = &kind, .propose = propose_by_logits};
  int32_t prompt[FIRST_PROMPT + 2], id;
  const SessionOptions options = {
      .n_ctx = 20, .sampler = warm, .drafter = &drafter, .n_guesses = 2, .guess_always = true};
  fake = (FakeCounts){.end_at = -1};
  assert_int_equal(session_open(&fake_backend, &loaded, &model, &options, &session, NULL), STATUS_OK);
  make_ids(prompt, FIRST_PROMPT, 7);
  sync_ok(session, prompt, FIRST_PROMPT - 1);
  for (int i = 0; i < N_DRAWS; i++) {
    const SamplerSettings settings = {
        .temperature = 2, .top_p = 1, .repetition_penalty = 1, .seed = (uint64_t)i};
    const int32_t *guesses;
    session_keep(session, FIRST_PROMPT - 1);
    assert_int_equal(sampler_set(session_view(session).text->sampler, &settings, NULL), STATUS_OK);
    assert_true(session_hold(session, prompt[FIRST_PROMPT - 1]));
    assert_int_equal(session_decode_held(session, -1, NULL), STATUS_OK);
    assert_int_equal(session_guessed(session, &guesses), 2);
    const int32_t guess = guesses[0];
    assert_int_equal(session_sample(session, &id, NULL), STATUS_OK);
    if (wrong_rule && id != guess) { /* another draw */
      sampler_set_draws(session_view(session).text->sampler, 1000);
      assert_int_equal(session_sample(session, &id, NULL), STATUS_OK);
    }
    first[id]++;
    assert_true(session_hold(session, id));
    assert_int_equal(session_decode_held(session, -1, NULL), STATUS_OK);
    assert_int_equal(session_guessed(session, &guesses), id == guess ? 1 : 2);
    assert_int_equal(session_sample(session, &prompt[FIRST_PROMPT], NULL), STATUS_OK);
    second[id][prompt[FIRST_PROMPT]]++;
  }
  session_close(session);
  float logits[FAKE_VOCAB];
  whole_logits(prompt, FIRST_PROMPT, logits);
  double worst = chi_square(first, logits, 2);
  for (int32_t v = 0; v < FAKE_VOCAB; v++) {
    if (first[v] < LONG_ENOUGH) continue;
    prompt[FIRST_PROMPT] = v;
    whole_logits(prompt, FIRST_PROMPT + 1, logits);
    const double other = chi_square(second[v], logits, 2);
    worst = other > worst ? other : worst;
  }
  return worst;
}

TEST(tokens_are_distributed_as_without_guesses) {
  const double most = 4.1; /* p = 0.00002, for about 30 comparisons of each kind: together above 0.001 */
  for (int kind = 0; kind < N_GUESSERS; kind++) {
    if (!SAMPLED(kind)) continue;
    const double worst = worst_of((Guesser)kind, false);
    if (worst > most) fail_msg("guesses of kind %d: %.1f standard deviations", kind, worst);
  }
  assert_true(worst_of(LIKELIEST, true) > 2 * most);
}

/* --- how many guesses */

static void check_bound(bool redoes) {
  Guessing g = {.most = DRAFT_MOST, .row_cost = 0.2, .share = 1, .redoes = redoes};
  double cost = 0;
  int n_steps = 0;
  for (; n_steps < 20000; n_steps++) {
    const int rank = n_steps % DRAFT_RANKS, n = guessing_length(&g, rank, DRAFT_MOST);
    guessing_note_step(&g, 1 + n, &(Guesses){.n = n, .rank = rank}, 0);
    cost += 0.2 * n + (redoes && n > 0 ? 0.2 : 0);
    if (n > 0) guessing_judge(&g, false);
    assert_true(cost <= 1 + (double)(n_steps + 1) / GUESS_CREDIT + 1e-9);
  }
  assert_true(cost > 10); /* it tries again */
  /* Where they turn right, it soon takes all of them. */
  int n = 0;
  for (n_steps = 0; n_steps < 1000 && n < DRAFT_MOST; n_steps++) {
    n = guessing_length(&g, 3, DRAFT_MOST);
    guessing_note_step(&g, 1 + n, &(Guesses){.n = n, .rank = 3}, 0);
    for (int i = 0; i < n; i++) guessing_judge(&g, true);
  }
  assert_in_range(n_steps, 1, 300);
}

TEST(wrong_guesses_cost_at_most_their_bound) {
  check_bound(false);
  check_bound(true);
}

/* A row costs what is measured. */
TEST(a_dear_row_allows_no_guess) {
  Guessing g = {.most = 7, .row_cost = 0.1, .share = 1, .timed = true};
  for (int i = 0; i < 50; i++) {
    guessing_note_step(&g, 1, &(Guesses){.rank = 3}, 10);
    guessing_note_step(&g, 5, &(Guesses){.rank = 3}, 50); /* as much as five steps */
  }
  assert_true(g.row_cost > 0.9 && guessing_length(&g, 3, 7) == 0);
  for (int i = 0; i < 50; i++) guessing_note_step(&g, 5, &(Guesses){.rank = 3}, 12);
  assert_true(g.row_cost < 0.1 && guessing_length(&g, 3, 7) > 0);
}

/* --- guesses from the text */

/* The end of the longest passage that ends like ids[0 .. n), of 3 to 32 tokens, the last of equal ones. */
static int longest_before(const int32_t *ids, int n) {
  int best = 0, length = 2;
  for (int end = n - 1; end >= 3; end--) {
    int same = 0;
    while (same < 32 && same < end && ids[end - 1 - same] == ids[n - 1 - same]) same++;
    if (same > length) best = end, length = same;
  }
  return best;
}

TEST(the_text_goes_on_as_after_its_longest_match) {
  enum { N = 190, ROUNDS = 400 };
  Drafter drafter;
  int32_t ids[N + 10];
  uint32_t seed = 3;
  int n = 0, n_unchanged = 0, n_found = 0;
  assert_int_equal(draft_text_open(N, &drafter, NULL), STATUS_OK);
  for (int round = 0; round < ROUNDS; round++) {
    if (number(&seed) % 4 == 0) n = (int)(number(&seed) % (uint32_t)(n + 1)); /* cut */
    if (n_unchanged > n) n_unchanged = n;
    for (int more = 1 + (int)(number(&seed) % 12); more > 0 && n < N; more--, n++)
      ids[n] = n > 12 && number(&seed) % 8 ? ids[n - 12] : (int32_t)(number(&seed) % 9);
    const DraftText text = {.ids = ids, .n = n, .n_computed = n - 1, .n_unchanged = n_unchanged};
    Guesses guesses = {.n = 0};
    assert_int_equal(drafter.propose(drafter.self, &text, 6, &guesses, NULL), STATUS_OK);
    n_unchanged = n;
    const int end = longest_before(ids, n);
    assert_int_equal(guesses.n, end ? 6 : 0);
    n_found += end > 0;
    for (int i = 0; i < guesses.n; i++)
      assert_int_equal(guesses.ids[i], end + i < n ? ids[end + i] : guesses.ids[end + i - n]);
  }
  assert_true(n_found > ROUNDS / 2 && n_found < ROUNDS);
  drafter_close(&drafter);
}

/* A short text is cut and typed again: what was cut is no passage before it. */
TEST(what_was_cut_is_no_passage) {
  static const int32_t ids[] = {1, 2, 3, 4, 5, 6};
  for (int n = 1; n <= 6; n++)
    for (int kept = 0; kept < n; kept++) {
      Drafter drafter;
      assert_int_equal(draft_text_open(6, &drafter, NULL), STATUS_OK);
      for (int round = 0; round < 3; round++) {
        const DraftText text = {.ids = ids, .n = n, .n_computed = n - 1, .n_unchanged = round ? kept : 0};
        Guesses guesses = {.n = 0};
        assert_int_equal(drafter.propose(drafter.self, &text, 6, &guesses, NULL), STATUS_OK);
        assert_int_equal(guesses.n, 0);
      }
      drafter_close(&drafter);
    }
}

/* --- what a drafter that reads hidden states is given */

typedef struct {
  int32_t ids[FAKE_POSITIONS]; /* [n] of whose states it knows */
  int n, n_asked;
} Reader;

static Status keep_nothing(BackendState *state, TokenRange range, int index, Error *err) {
  (void)state, (void)err;
  assert_true(index == 0 && range.taps->n == 1);
  return STATUS_OK;
}

/* Rows follow those that it knows, or replace them from their first position on. */
static Status read_rows(void *self, const DraftRows *rows, Error *err) {
  Reader *r = self;
  (void)err;
  assert_true(rows->n > 0 && rows->pos >= 0 && rows->pos <= r->n && rows->row >= 0);
  memcpy(r->ids + rows->pos, rows->ids, (size_t)rows->n * sizeof *r->ids);
  r->n = rows->pos + rows->n;
  return STATUS_OK;
}

/* It knows all tokens that are computed. Each third guess is wrong on purpose, so that rows are dropped. */
static Status guess_as_read(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  Reader *r = self;
  (void)err;
  assert_int_equal(r->n, text->n_computed);
  assert_memory_equal(r->ids, text->ids, (size_t)text->n_computed * sizeof *r->ids);
  int32_t ids[FAKE_POSITIONS];
  memcpy(ids, text->ids, (size_t)text->n * sizeof *ids);
  for (int n = text->n; guesses->n < most; n++) {
    float logits[FAKE_VOCAB];
    int32_t best = 0;
    whole_logits(ids, n, logits);
    for (int32_t v = 1; v < FAKE_VOCAB; v++) best = logits[v] > logits[best] ? v : best;
    if (++r->n_asked % 3 == 0) best = (best + 1) % FAKE_VOCAB;
    ids[n] = guesses->ids[guesses->n++] = best;
  }
  return STATUS_OK;
}

/* Texts that go on, branch off and begin anew, with prompts in one step and in several: before each guess the
 * drafter has the states of all tokens that are computed, those of dropped ones replaced. */
TEST(states_of_all_tokens_that_stay_are_given) {
  for (int chunk = 3; chunk <= 48; chunk *= 4) {
    Backend reading = fake_backend;
    reading.keep_tap = keep_nothing;
    Reader reader = {.n = 0};
    Drafter drafter = {.name = "reader",
                       .taps = {.n = 1, .layers = {1}},
                       .self = &reader,
                       .take = read_rows,
                       .propose = guess_as_read};
    const SessionOptions options = {.n_ctx = 90,
                                    .chunk = chunk,
                                    .sampler = greedy,
                                    .drafter = &drafter,
                                    .n_guesses = 4,
                                    .guess_always = true};
    BackendModel loaded = {&model};
    Session *session;
    Error err = {{0}};
    int32_t text[90], id;
    fake = (FakeCounts){.end_at = -1};
    assert_int_equal(session_open(&reading, &loaded, &model, &options, &session, &err), STATUS_OK);
    /* How many tokens of what the session holds the next text begins with, and how many it has. */
    static const int texts[][2] = {{0, 20}, {12, 16}, {5, 30}, {30, 31}, {0, 6}, {6, 40}, {39, 40}, {1, 3}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
      int32_t own[90];
      make_ids(own, 90, (int)i + 1);
      memcpy(text + texts[i][0], own + texts[i][0], (size_t)(texts[i][1] - texts[i][0]) * sizeof *text);
      sync_ok(session, text, texts[i][1]);
      for (int n = texts[i][1]; n < texts[i][1] + 15; n++) {
        assert_int_equal(session_sample(session, &id, &err), STATUS_OK);
        text[n] = id;
        assert_true(session_hold(session, id));
        assert_int_equal(session_decode_held(session, -1, &err), STATUS_OK);
        if (n % 5 == 0) assert_holds(session, text, n + 1);
      }
    }
    assert_true(reader.n_asked > 60);
    session_close(session);
  }
}
