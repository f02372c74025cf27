/* test_timeline.c - sessions taken through thousands of states in random order: after each call, what a
 * session holds, its logits, its scores and its draws are those of a record that keeps only the text and
 * works out everything anew. If a call forgets to reset something, or resets too much, a later call shows
 * it. */
#include "session_test.h"

typedef enum {
  SYNC,
  INTERRUPTED,
  DECODE,
  FAILED_STEP,
  SAMPLE,
  SCORE,
  KEEP,
  RESTORE,
  EVALUATE,
  SET,
  PUSH,
  N_CALLS
} Call;

/* The state that the session should have. `notes` are the tokens that the sampler has counted, which after
 * session_keep() or a failure are those of the longer text. */
typedef struct {
  Session *session;
  const Model *model;
  int n_ctx, chunk;
  int32_t ids[FAKE_POSITIONS];
  int n;
  bool long_rope;    /* the keys are those of a long text */
  bool logits, last; /* those of the last token are on the device; were kept by a score */
  bool notes_differ;
  bool generated[FAKE_POSITIONS];
  SamplerSettings settings;
  uint64_t n_draws, seed;
} Record;

static uint32_t number(Record *r, uint32_t below) {
  r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(r->seed >> 33) % below;
}

static bool is_long(const Record *r, int n) {
  return r->model->config.rope.kind == ROPE_LONGROPE && n > SHORT_TEXT;
}

/* Behind the first n tokens, with the keys that are there. */
static void record_logits(const Record *r, int n, bool long_rope, float *out) {
  int32_t copy[FAKE_POSITIONS];
  for (int i = 0; i < n; i++) copy[i] = r->ids[i] + (long_rope ? LONG_TURN : 0);
  whole_logits(copy, n, out);
}

static void check(const Record *r) {
  float got[FAKE_VOCAB], want[FAKE_VOCAB];
  Error err = {{0}};
  assert_int_equal(session_view(r->session).text->n_past, r->n);
  assert_memory_equal(session_view(r->session).text->ids, r->ids, (size_t)r->n * sizeof *r->ids);
  assert_int_equal(session_view(r->session).text->long_rope, r->long_rope);
  assert_int_equal(session_view(r->session).n_in_flight, 0);
  assert_int_equal(session_logits(r->session, got, &err), r->logits ? STATUS_OK : STATUS_FAILED);
  if (!r->logits) assert_non_null(strstr(err.text, "the session has no logits"));
  if (!r->logits) return;
  record_logits(r, r->n, r->long_rope, want);
  assert_memory_equal(got, want, sizeof got);
}

/* ids[0 .. n) with a beginning of what is held, and then others. */
static int make_text(Record *r, int32_t *ids) {
  int n = 1 + (int)number(r, (uint32_t)r->n_ctx), common = (int)number(r, (uint32_t)n + 10);
  for (int i = 0; i < n; i++) ids[i] = i < common && i < r->n ? r->ids[i] : (int32_t)number(r, FAKE_VOCAB);
  return n;
}

static bool is_recurrent(const Record *r) {
  return r->model->config.layers != NULL;
}

/* With a recurrent state less may be kept than the texts have in common. */
static int common_of(const Record *r, const int32_t *ids, int n) {
  int common = 0;
  if (is_long(r, n) != r->long_rope) return 0;
  while (common < r->n && common < n - 1 && ids[common] == r->ids[common]) common++;
  const int kept = session_common(r->session, ids, n);
  assert_true(is_recurrent(r) ? kept <= common : kept == common);
  return kept;
}

/* The text is ids[0 .. n) of one of n_all tokens now, all of it prompt. */
static void take(Record *r, const int32_t *ids, int n, int n_all, bool logits) {
  memcpy(r->ids, ids, (size_t)n * sizeof *ids);
  memset(r->generated, 0, sizeof r->generated);
  r->n = n;
  r->long_rope = is_long(r, n_all);
  r->logits = logits;
  r->last = r->notes_differ = false;
}

static void call_sync(Record *r) {
  int32_t ids[FAKE_POSITIONS];
  const int n = make_text(r, ids), common = common_of(r, ids, n);
  fake.n_tokens = 0;
  sync_ok(r->session, ids, n);
  assert_int_equal(fake.n_tokens, n - common);
  take(r, ids, n, n, true);
}

typedef struct {
  int stop_at, total, last;
} Stop;

static bool stop(void *user, int done, int total) {
  Stop *s = user;
  assert_int_equal(total, s->total);
  s->last = done;
  return done < s->stop_at;
}

/* Stopped at the first chunk that ends at a place or after it; at the end there is nothing to stop. */
static void call_interrupted(Record *r) {
  int32_t ids[FAKE_POSITIONS];
  const int n = make_text(r, ids), common = common_of(r, ids, n);
  Stop s = {.stop_at = (int)number(r, (uint32_t)n + 1), .total = n};
  int done = common;
  while (done < s.stop_at && done < n) done = done + r->chunk < n ? done + r->chunk : n;
  session_watch(r->session, stop, &s);
  const Status status = session_sync(r->session, ids, n, NULL);
  session_watch(r->session, NULL, NULL);
  if (is_recurrent(r)) done = s.last; /* chunks end where a state is kept, too */
  assert_true(done == n || done >= s.stop_at);
  assert_int_equal(status, done < n ? STATUS_INTERRUPTED : STATUS_OK);
  assert_int_equal(s.last, done);
  take(r, ids, done, n, done == n);
}

/* recompute_rope(): all is computed again when the text becomes a long one, or a short one again. */
static void suit(Record *r, int n) {
  if (is_long(r, n) == r->long_rope) return;
  r->long_rope = !r->long_rope;
  r->logits = r->n > 0;
  r->last = false;
}

/* A drafter; half of its guesses are made right, by taking the guess as the next token. */
static bool guesses;

static Status propose(void *self, const DraftText *text, int most, Guesses *out, Error *err) {
  uint32_t *random = self;
  (void)text, (void)err;
  *random = *random * 1664525u + 1013904223u;
  for (int n = (int)(*random >> 20) % (most + 1); out->n < n; out->n++)
    out->ids[out->n] = (int32_t)(*random >> 8) % (FAKE_VOCAB - out->n);
  return STATUS_OK;
}

static Status decode_with_guesses(Record *r, int32_t *id, Error *err) {
  const int32_t *guessed;
  if (session_guessed(r->session, &guessed) > 0 && number(r, 4)) *id = guessed[0];
  if (!session_hold(r->session, *id)) return session_decode(r->session, *id, err);
  return session_decode_held(r->session, -1, err);
}

static void decode(Record *r, int32_t id) {
  Error err = {{0}};
  if (r->n == r->n_ctx) {
    char message[80];
    snprintf(message, sizeof message, "the context of %d tokens is full", r->n_ctx);
    assert_int_equal(session_decode(r->session, id, &err), STATUS_USAGE);
    assert_string_equal(err.text, message);
    return;
  }
  assert_int_equal(guesses ? decode_with_guesses(r, &id, &err) : session_decode(r->session, id, &err),
                   STATUS_OK);
  suit(r, r->n + 1);
  r->generated[r->n] = true;
  r->ids[r->n++] = id;
  r->logits = true;
  r->last = false;
}

/* The step after the next that succeeds does not; the text stays, its logits go. */
static void call_failed_step(Record *r) {
  if (r->n == r->n_ctx || is_long(r, r->n + 1) != r->long_rope) return;
  Error err = {{0}};
  const int32_t *guessed; /* which take no step */
  const int32_t id = session_guessed(r->session, &guessed) > 0 && guessed[0] == 3 ? 4 : 3;
  fake.fail_at = fake.n_steps + 1;
  assert_int_equal(session_decode(r->session, id, &err), STATUS_FAILED);
  assert_string_equal(err.text, "the device is gone");
  fake.fail_at = 0;
  r->logits = r->last = false;
}

/* A sampler of its own, which knows the whole text and the number of draws before. */
static int32_t pick(const Record *r, uint64_t draw) {
  float logits[FAKE_VOCAB];
  Sampler *sampler;
  int32_t id;
  assert_int_equal(sampler_open(&r->settings, FAKE_VOCAB, &sampler, NULL), STATUS_OK);
  for (int i = 0; i < r->n; i++) sampler_count_token(sampler, r->ids[i], r->generated[i]);
  for (uint64_t i = 0; i < draw; i++) sampler_take_draw(sampler);
  record_logits(r, r->n, r->long_rope, logits);
  assert_int_equal(sampler_pick(sampler, logits, &id, NULL), STATUS_OK);
  sampler_close(sampler);
  return id;
}

static void call_sample(Record *r) {
  int32_t id;
  if (r->notes_differ) return;
  assert_int_equal(session_sample(r->session, &id, NULL), r->logits ? STATUS_OK : STATUS_FAILED);
  if (r->logits) assert_int_equal(id, pick(r, r->n_draws++));
}

static void call_score(Record *r) {
  enum { MOST = 30 };
  int32_t more[MOST];
  double log_p[MOST];
  const int n = 1 + (int)number(r, MOST), before = r->n;
  for (int i = 0; i < n; i++) more[i] = (int32_t)number(r, FAKE_VOCAB);
  const Status status = session_score(r->session, more, n, log_p, NULL);
  if (n - 1 > r->n_ctx - r->n) {
    assert_int_equal(status, STATUS_USAGE);
    return;
  }
  suit(r, r->n + n - 1);
  assert_int_equal(status, r->logits || r->last ? STATUS_OK : STATUS_FAILED);
  if (status) return;
  for (int i = 0; i < n; i++) {
    float logits[FAKE_VOCAB];
    record_logits(r, before + i, r->long_rope, logits);
    assert_true(log_p[i] == log_probability(logits, FAKE_VOCAB, more[i]));
    if (i + 1 < n) r->ids[before + i] = more[i];
  }
  r->logits = false;
  r->last = true;
}

static void call_keep(Record *r) {
  const int n = (int)number(r, (uint32_t)r->n + 1);
  session_keep(r->session, n);
  r->notes_differ = r->notes_differ || n < r->n;
  r->n = n;
  r->logits = r->last = false;
}

static void call_restore(Record *r) {
  int32_t ids[FAKE_POSITIONS];
  if (!session_view(r->session).kv_bytes) return;
  const int n = make_text(r, ids), common = common_of(r, ids, n);
  const int n_more = (int)number(r, (uint32_t)(n - common));
  const bool fails = number(r, 4) == 0; /* what was written is not adopted */
  assert_int_equal(session_rewind(r->session, ids, n, NULL), STATUS_OK);
  assert_int_equal(session_view(r->session).text->n_past, common);
  for (int layer = 0; layer < session_view(r->session).text->config->n_layers && n_more > 0; layer++) {
    uint16_t bytes[2 * FAKE_POSITIONS];
    for (int i = 0; i < n_more; i++) {
      bytes[i] = (uint16_t)(ids[common + i] + (session_view(r->session).text->long_rope ? LONG_TURN : 0));
      bytes[n_more + i] = fake_tag(layer, common + i);
    }
    const TokenRange range = {.pos = common, .n_tokens = n_more};
    assert_int_equal(session_kv_copy(r->session, FROM_HOST, range, layer, n_more, bytes, NULL), STATUS_OK);
  }
  if (fails)
    session_keep(r->session, common);
  else
    session_adopt(r->session, common + n_more);
  take(r, ids, fails ? common : common + n_more, n, false);
}

typedef struct {
  const Record *record;
  const int32_t *ids;
  int n, n_rows;
} Rows;

static Status take_row(void *user, int row, const float *logits, Error *err) {
  (void)err;
  Rows *rows = user;
  float want[FAKE_VOCAB];
  Record copy = *rows->record;
  memcpy(copy.ids, rows->ids, (size_t)rows->n * sizeof *rows->ids);
  record_logits(&copy, row + 1, is_long(&copy, rows->n), want);
  assert_memory_equal(logits, want, sizeof want);
  assert_int_equal(row, rows->n_rows++);
  return STATUS_OK;
}

static void call_evaluate(Record *r) {
  int32_t ids[FAKE_POSITIONS];
  const int n = make_text(r, ids);
  Rows rows = {r, ids, n, 0};
  assert_int_equal(session_evaluate(r->session, ids, n, take_row, &rows, NULL), STATUS_OK);
  assert_int_equal(rows.n_rows, n);
  take(r, ids, n, n, true);
}

static void call_set(Record *r) {
  static const SamplerSettings some[] = {
      {.temperature = 3, .top_p = 0.9, .repetition_penalty = 1},
      {.temperature = 1, .top_p = 1, .repetition_penalty = 3},
      {.temperature = 3, .top_k = 20, .top_p = 1, .repetition_penalty = 1, .presence_penalty = 6},
      {.temperature = 3, .top_p = 1, .repetition_penalty = 1, .frequency_penalty = 4},
  };
  Error err = {{0}};
  const SamplerSettings bad = {.temperature = -1, .top_p = 1, .repetition_penalty = 1};
  assert_int_equal(sampler_set(session_view(r->session).text->sampler, &bad, &err),
                   STATUS_USAGE); /* changes nothing */
  if (number(r, 3) == 0) return;
  r->settings = some[number(r, 4)];
  r->settings.seed = number(r, 1000);
  assert_int_equal(sampler_set(session_view(r->session).text->sampler, &r->settings, &err), STATUS_OK);
  r->n_draws = 0;
}

/* Some tokens ahead of the host; some of them are pulled and the rest dropped. The fake device knows nothing
 * of what it has picked itself: with penalties there is one at a time. */
static void call_push(Record *r) {
  if (!session_decodes_async(r->session) || r->notes_differ) return;
  const bool alone = r->settings.repetition_penalty != 1 || r->settings.presence_penalty != 0 ||
                     r->settings.frequency_penalty != 0;
  if (!r->logits) assert_int_equal(session_decode_async(r->session, NULL), STATUS_FAILED);
  if (!r->logits) return;
  const int n_calls = (int)number(r, 8);
  for (int i = 0; i < n_calls; i++) {
    const int n_in_flight = session_view(r->session).n_in_flight;
    if (n_in_flight > 0 && (alone || number(r, 2) == 0)) {
      int32_t id, want = pick(r, r->n_draws++);
      assert_int_equal(session_wait_token(r->session, &id, NULL), STATUS_OK);
      assert_int_equal(id, want);
      r->generated[r->n] = true;
      r->ids[r->n++] = id;
      assert_int_equal(session_view(r->session).text->n_past, r->n);
      assert_int_equal(session_view(r->session).n_in_flight, n_in_flight - 1);
    } else {
      const bool full = r->n + n_in_flight == r->n_ctx;
      assert_int_equal(session_decode_async(r->session, NULL), full ? STATUS_USAGE : STATUS_OK);
      assert_int_equal(session_view(r->session).n_in_flight, n_in_flight + !full);
    }
  }
  if (session_view(r->session).n_in_flight > 0) r->logits = false;
  assert_int_equal(session_drain(r->session, NULL), STATUS_OK);
}

static void call(Record *r, Call which) {
  switch (which) {
  case SYNC: call_sync(r); break;
  case INTERRUPTED: call_interrupted(r); break;
  case DECODE:
    for (uint32_t i = number(r, 5); i > 0 && !r->notes_differ; i--) decode(r, (int32_t)number(r, FAKE_VOCAB));
    break;
  case FAILED_STEP: call_failed_step(r); break;
  case SAMPLE: call_sample(r); break;
  case SCORE: call_score(r); break;
  case KEEP: call_keep(r); break;
  case RESTORE: call_restore(r); break;
  case EVALUATE: call_evaluate(r); break;
  case SET: call_set(r); break;
  case PUSH: call_push(r); break;
  case N_CALLS: break;
  }
}

static void walk(const Model *model_of_it, int n_slots, int n_ctx, int chunk, int rows, uint64_t seed) {
  enum { STEPS = 600 };
  Record r = {.model = model_of_it, .n_ctx = n_ctx, .chunk = chunk, .settings = greedy, .seed = seed};
  uint32_t random = (uint32_t)seed;
  Drafter drafter = {.name = "random", .self = &random, .propose = propose};
  const SessionOptions options = {.n_ctx = n_ctx,
                                  .chunk = chunk,
                                  .max_logit_rows = rows,
                                  .sampler = greedy,
                                  .drafter = guesses ? &drafter : NULL,
                                  .n_guesses = guesses ? 1 + rows % DRAFT_MOST : 0,
                                  .guess_always = true};
  BackendModel loaded = {model_of_it};
  fake = (FakeCounts){.end_at = -1, .turn = LONG_TURN, .n_slots = n_slots};
  assert_int_equal(session_open(backend, &loaded, model_of_it, &options, &r.session, NULL), STATUS_OK);
  for (int i = 0; i < STEPS; i++) {
    call(&r, (Call)number(&r, N_CALLS));
    check(&r);
    if (number(&r, 2)) call(&r, DECODE); /* the notes of the sampler show in a token */
    call_sample(&r);
    check(&r);
  }
  session_close(r.session);
  assert_int_equal(fake.n_open, 0);
}

static void a_session_is_what_its_calls_make_it(void **state) {
  static const struct {
    int n_ctx, chunk, rows;
  } sizes[] = {{60, 1, 1}, {60, 7, 3}, {90, 16, 16}, {41, 90, 5}, {40, 13, 13}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    walk(&model, 0, sizes[i].n_ctx, sizes[i].chunk, sizes[i].rows, 1 + i);
    walk(&long_model, 0, sizes[i].n_ctx, sizes[i].chunk, sizes[i].rows, 100 + i);
  }
}

/* The fake state is all of the text before it: one that is not the session's shows in the logits. */
static void a_recurrent_state_is_that_of_the_text(void **state) {
  static const struct {
    int n_slots, n_ctx, chunk, rows;
  } sizes[] = {{2, 60, 1, 1}, {2, 60, 7, 3}, {3, 200, 16, 16}, {16, 200, 200, 5}, {5, 70, 13, 13}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    walk(&hybrid_model, sizes[i].n_slots, sizes[i].n_ctx, sizes[i].chunk, sizes[i].rows, 200 + i);
    assert_true(fake.n_saved > 50 && fake.n_restored > 50);
    walk(&long_hybrid_model, sizes[i].n_slots, sizes[i].n_ctx, sizes[i].chunk, sizes[i].rows, 300 + i);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_session_is_what_its_calls_make_it),
                                     cmocka_unit_test(a_recurrent_state_is_that_of_the_text)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  guesses = true;
  failed += cmocka_run_group_tests_name("with guesses", tests, NULL, NULL);
  guesses = false;
  backend = &fake_ahead_backend;
  return failed + cmocka_run_group_tests_name("running ahead", tests, NULL, NULL);
}
