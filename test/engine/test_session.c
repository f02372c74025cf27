/* test_session.c - sessions and the generating loop over a backend that is a hash of its cache
 * (fake_backend.h): chunks, common beginnings, interruptions, failures and ends, compared with logits made
 * from the whole text at once. */
#include "session_test.h"

#include "engine/one.h"

/* --- prefill */

static void chunks_do_not_matter(void **state) {
  const int chunks[] = {1, 7, 64, 199, 0}, n = 150;
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, n, 1);
  for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
    Session *session = open_session((SessionOptions){.chunk = chunks[c]});
    sync_ok(session, ids, n);
    assert_holds(session, ids, n);
    assert_int_equal(fake.n_tokens, n);
    assert_int_equal(fake.n_rows, 1);
    int size = chunks[c] ? chunks[c] : FAKE_POSITIONS; /* the default of 256 is cut to the context */
    assert_int_equal(fake.n_steps, (n + size - 1) / size);
    session_close(session);
    assert_int_equal(fake.n_open, 0);
  }
}

static void a_common_beginning_is_kept(void **state) {
  int32_t ids[FAKE_POSITIONS], other[FAKE_POSITIONS];
  make_ids(ids, 120, 1);
  Session *session = open_session((SessionOptions){.chunk = 16});
  sync_ok(session, ids, 60);

  fake.n_tokens = 0;
  sync_ok(session, ids, 120); /* goes on */
  assert_holds(session, ids, 120);
  assert_int_equal(fake.n_tokens, 60);

  fake.n_tokens = 0;
  sync_ok(session, ids, 120); /* the same: the last again, for its logits */
  assert_holds(session, ids, 120);
  assert_int_equal(fake.n_tokens, 1);

  fake.n_tokens = 0;
  sync_ok(session, ids, 40); /* shorter */
  assert_holds(session, ids, 40);
  assert_int_equal(fake.n_tokens, 1);

  memcpy(other, ids, sizeof other);
  other[10] = (other[10] + 1) % FAKE_VOCAB;
  fake.n_tokens = 0;
  sync_ok(session, other, 40); /* another text from its eleventh token on */
  assert_holds(session, other, 40);
  assert_int_equal(fake.n_tokens, 30);
  session_close(session);
}

static void a_failed_restore_keeps_what_was_held_and_no_more(void **state) {
  int32_t ids[FAKE_POSITIONS], other[FAKE_POSITIONS];
  make_ids(ids, 60, 1);
  memcpy(other, ids, sizeof other);
  other[20] = (other[20] + 1) % FAKE_VOCAB;
  Session *session = open_session((SessionOptions){.chunk = 16});
  Error err = {{0}};
  assert_int_equal(session_rewind(session, ids, 60, &err), STATUS_OK);
  assert_int_equal(session_view(session).text->n_past, 0);
  sync_ok(session, other, 60);
  assert_int_equal(session_rewind(session, ids, 60, &err), STATUS_OK);
  assert_int_equal(session_view(session).text->n_past, 20);
  sync_ok(session, ids, 60); /* which computes what is not there */
  assert_holds(session, ids, 60);
  session_close(session);
}

/* The keys of the last token, too; but its logits are made by computing it again. */
static void restored_keys_are_not_computed_again(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 60, 1);
  for (int n_held = 19; n_held <= 60; n_held++) {
    Session *session = open_session((SessionOptions){.chunk = 16});
    sync_ok(session, ids, 20);
    Error err = {{0}};
    assert_int_equal(session_rewind(session, ids, 60, &err), STATUS_OK);
    session_adopt(session, n_held);
    const int n_kept = n_held > 20 ? n_held : 20;
    assert_int_equal(session_view(session).text->n_past, n_kept);
    fake.n_tokens = 0;
    assert_int_equal(session_sync(session, ids, 60, &err), STATUS_OK);
    assert_int_equal(fake.n_tokens, n_kept < 60 ? 60 - n_kept : 1);
    session_close(session);
  }
}

/* `auk bench -p 2,4,8 -d N` times this: rows after a context are one step, with the logits of the last. */
static void a_few_tokens_are_one_step(void **state) {
  int32_t ids[FAKE_POSITIONS];
  const int depth = 70;
  Session *session = open_session((SessionOptions){.chunk = 32});
  make_ids(ids, depth, 1);
  for (int n = 1; n <= 32; n *= 2) {
    make_ids(ids + depth, n, n);
    sync_ok(session, ids, depth);
    fake.n_steps = fake.n_tokens = fake.n_rows = 0;
    sync_ok(session, ids, depth + n);
    assert_holds(session, ids, depth + n);
    assert_int_equal(fake.n_steps, 1);
    assert_int_equal(fake.n_tokens, n);
    assert_int_equal(fake.n_rows, 1);
  }
  session_close(session);
}

static void no_more_is_kept_than_is_said(void **state) {
  int32_t ids[FAKE_POSITIONS];
  float logits[FAKE_VOCAB];
  make_ids(ids, 60, 1);
  Session *session = open_session((SessionOptions){.chunk = 16});
  sync_ok(session, ids, 60);
  session_keep(session, 25);
  assert_int_equal(session_view(session).text->n_past, 25);
  assert_int_equal(session_common(session, ids, 60), 25);
  assert_int_equal(session_logits(session, logits, NULL), STATUS_FAILED);
  fake.n_tokens = 0;
  sync_ok(session, ids, 60);
  assert_int_equal(fake.n_tokens, 35);
  assert_holds(session, ids, 60);
  session_keep(session, 0);
  fake.n_tokens = 0;
  sync_ok(session, ids, 60);
  assert_int_equal(fake.n_tokens, 60);
  session_close(session);
}

typedef struct {
  int calls, stop_at, last_done, total;
} Watcher;

static bool watch(void *user, int done, int total) {
  Watcher *watcher = user;
  assert_true(done >= watcher->last_done && done <= total);
  watcher->last_done = done;
  watcher->total = total;
  return ++watcher->calls != watcher->stop_at;
}

static void an_interrupted_prefill_can_go_on(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 100, 3);
  Session *session = open_session((SessionOptions){.chunk = 10});
  Watcher watcher = {.stop_at = 4};
  Error err;
  session_watch(session, watch, &watcher);
  assert_int_equal(session_sync(session, ids, 100, &err), STATUS_INTERRUPTED);
  assert_int_equal(session_view(session).text->n_past, 30);
  assert_memory_equal(session_view(session).text->ids, ids, 30 * sizeof *ids);
  int32_t id;
  assert_int_equal(session_sample(session, &id, &err), STATUS_FAILED); /* no logits */

  watcher = (Watcher){.stop_at = -1};
  fake.n_tokens = 0;
  assert_int_equal(session_sync(session, ids, 100, &err), STATUS_OK);
  assert_int_equal(fake.n_tokens, 70);
  assert_int_equal(watcher.last_done, 100);
  assert_int_equal(watcher.total, 100);
  assert_holds(session, ids, 100);
  session_close(session);
}

static void a_failed_step_leaves_what_was_there(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 100, 4);
  Session *session = open_session((SessionOptions){.chunk = 10});
  fake.fail_at = 3;
  Error err;
  assert_int_equal(session_sync(session, ids, 100, &err), STATUS_FAILED);
  assert_string_equal(err.text, "the device is gone");
  assert_int_equal(session_view(session).text->n_past, 20);
  fake.fail_at = 0;
  sync_ok(session, ids, 100);
  assert_holds(session, ids, 100);
  fake.fail_at = fake.n_steps + 1;
  assert_int_equal(session_decode(session, 5, &err), STATUS_FAILED);
  assert_int_equal(session_view(session).text->n_past, 100);
  session_close(session);
}

static void ids_and_lengths_are_checked(void **state) {
  int32_t ids[FAKE_POSITIONS + 1];
  make_ids(ids, FAKE_POSITIONS + 1, 5);
  Session *session = open_session((SessionOptions){.n_ctx = 50});
  assert_int_equal(session_view(session).text->n_ctx, 50);
  Error err;
  assert_int_equal(session_sync(session, ids, 0, &err), STATUS_USAGE);
  assert_int_equal(session_sync(session, ids, 51, &err), STATUS_USAGE);
  sync_ok(session, ids, 50);
  assert_int_equal(session_decode(session, 1, &err), STATUS_USAGE); /* full */
  assert_holds(session, ids, 50);
  const int32_t bad[] = {-1, FAKE_VOCAB, INT32_MAX};
  for (int i = 0; i < 3; i++) {
    ids[7] = bad[i];
    assert_int_equal(session_sync(session, ids, 20, &err), STATUS_USAGE);
    assert_non_null(strstr(err.text, "token 7"));
    assert_int_equal(session_decode(session, bad[i], &err), STATUS_USAGE);
  }
  assert_int_equal(session_view(session).text->n_past, 50);
  session_close(session);
}

static void impossible_sizes_are_refused(void **state) {
  const SessionOptions bad[] = {
      {.n_ctx = FAKE_POSITIONS + 1, .sampler = greedy},
      {.n_ctx = -1, .sampler = greedy},
      {.chunk = -1, .sampler = greedy},
      {.max_logit_rows = -1, .sampler = greedy},
      {.sampler = {.temperature = -1, .top_p = 1, .repetition_penalty = 1}},
  };
  BackendModel loaded = {&model};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Session *session;
    Error err;
    assert_int_equal(session_open(backend, &loaded, &model, &bad[i], &session, &err), STATUS_USAGE);
    assert_null(session);
  }
  assert_int_equal(fake.n_open, 0);
}

/* --- decoding, evaluating */

static void decoding_is_prefilling_one_token(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 90, 6);
  Session *session = open_session((SessionOptions){.chunk = 32});
  sync_ok(session, ids, 40);
  for (int i = 40; i < 90; i++) {
    assert_int_equal(session_decode(session, ids[i], NULL), STATUS_OK);
    assert_holds(session, ids, i + 1);
  }
  session_close(session);
}

static Status take_row(void *user, int row, const float *logits, Error *err) {
  const int32_t *ids = user;
  float want[FAKE_VOCAB];
  whole_logits(ids, row + 1, want);
  assert_memory_equal(logits, want, sizeof want);
  return row == 70 ? error_set(err, STATUS_FAILED, "disk full") : STATUS_OK;
}

static void evaluation_gives_the_logits_of_every_token(void **state) {
  const int chunks[] = {1, 7, 64, 0}, rows[] = {0, 1, 5, 64, 1000};
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 100, 7);
  for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
      Session *session = open_session((SessionOptions){.chunk = chunks[c], .max_logit_rows = rows[r]});
      Error err;
      sync_ok(session, ids + 3, 30); /* another timeline before */
      fake.n_rows = fake.n_tokens = 0;
      assert_int_equal(session_evaluate(session, ids, 70, take_row, ids, &err), STATUS_OK);
      assert_int_equal(fake.n_rows, 70);
      assert_int_equal(fake.n_tokens, 70);
      assert_holds(session, ids, 70);
      assert_int_equal(session_evaluate(session, ids, 100, take_row, ids, &err), STATUS_FAILED);
      assert_string_equal(err.text, "disk full");
      session_close(session);
    }
}

/* The same numbers as log_probability() of the logits that the whole text gives, whatever the chunks and
 * rows, and any number of continuations of one beginning, which stays in the cache. */
static void continuations_are_scored_behind_what_is_held(void **state) {
  const int chunks[] = {1, 7, 64, 0}, rows[] = {0, 1, 5, 64}, lengths[] = {1, 2, 9, 40, 1};
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 50, 7);
  for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
      Session *session = open_session((SessionOptions){.chunk = chunks[c], .max_logit_rows = rows[r]});
      sync_ok(session, ids, 50);
      for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int32_t more[40];
        double log_p[40];
        const int n = lengths[l];
        make_ids(more, n, 11 + (int)l);
        fake.n_tokens = 0;
        assert_int_equal(session_score(session, more, n, log_p, NULL), STATUS_OK);
        assert_int_equal(fake.n_tokens, n - 1);
        assert_int_equal(session_view(session).text->n_past, 50);
        for (int i = 0; i < n; i++) {
          float logits[FAKE_VOCAB];
          whole_logits(ids, 50 + i, logits);
          assert_true(log_p[i] == log_probability(logits, FAKE_VOCAB, more[i]));
          ids[50 + i] = more[i];
        }
      }
      session_close(session);
    }
}

static void a_score_leaves_nothing_behind(void **state) {
  int32_t ids[FAKE_POSITIONS], more[60], id;
  double log_p[60], again[60];
  Error err;
  make_ids(ids, 50, 7);
  make_ids(more, 60, 3);
  Session *session = open_session((SessionOptions){.n_ctx = 100, .chunk = 8});
  assert_int_equal(session_score(session, more, 5, log_p, &err), STATUS_FAILED); /* nothing to go on from */
  sync_ok(session, ids, 50);
  assert_int_equal(session_score(session, more, 52, log_p, &err), STATUS_USAGE);
  assert_int_equal(session_score(session, more, 0, log_p, &err), STATUS_USAGE);
  assert_int_equal(session_score(session, more, 51, log_p, &err), STATUS_OK); /* the last needs no place */

  fake.fail_at = fake.n_steps + 3;
  assert_int_equal(session_score(session, more, 51, again, &err), STATUS_FAILED);
  assert_int_equal(session_view(session).text->n_past, 50);
  fake.fail_at = 0;
  assert_int_equal(session_score(session, more, 51, again, &err), STATUS_OK);
  assert_memory_equal(again, log_p, 51 * sizeof *again);

  assert_int_equal(session_sample(session, &id, &err), STATUS_FAILED); /* the logits are gone */
  sync_ok(session, ids, 50);
  assert_holds(session, ids, 50);
  assert_int_equal(session_decode(session, more[0], &err), STATUS_OK); /* another beginning, other scores */
  assert_int_equal(session_score(session, more + 1, 20, again, &err), STATUS_OK);
  assert_memory_equal(again, log_p + 1, 20 * sizeof *again);
  session_close(session);
}

static void a_seed_makes_the_same_draws_whenever_it_is_given(void **state) {
  SamplerSettings settings = greedy;
  settings.temperature = 5;
  settings.seed = 7;
  int32_t ids[FAKE_POSITIONS], first[20], id;
  make_ids(ids, 30, 2);
  Session *session = open_session((SessionOptions){.sampler = settings});
  int same = 0;
  for (int round = 0; round < 4; round++) {
    settings.seed = round == 2 ? 8 : 7;
    if (round) assert_int_equal(sampler_set(session_view(session).text->sampler, &settings, NULL), STATUS_OK);
    sync_ok(session, ids, 30);
    for (int i = 0; i < 20; i++) {
      assert_int_equal(session_sample(session, &id, NULL), STATUS_OK);
      if (round == 0) first[i] = id;
      if (round == 2)
        same += id == first[i];
      else
        assert_int_equal(id, first[i]);
      assert_int_equal(session_decode(session, first[i], NULL), STATUS_OK);
    }
  }
  assert_true(same < 20); /* another seed, other draws */
  session_close(session);
}

/* Presence counts what was generated, not the prompt; a text that is synced anew is prompt. */
static void the_sampler_knows_prompt_from_answer(void **state) {
  SamplerSettings settings = greedy;
  settings.presence_penalty = 50; /* more than any logit of the fake model */
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 50, 8);
  Session *session = open_session((SessionOptions){.sampler = settings});
  sync_ok(session, ids, 50);
  bool seen[FAKE_VOCAB] = {false};
  for (int i = 0; i < 40; i++) {
    int32_t id;
    assert_int_equal(session_sample(session, &id, NULL), STATUS_OK);
    assert_false(seen[id]); /* each token once: 40 of 97, most of them in the prompt */
    seen[id] = true;
    assert_int_equal(session_decode(session, id, NULL), STATUS_OK);
  }
  int32_t text[FAKE_POSITIONS];
  memcpy(text, session_view(session).text->ids, 90 * sizeof *text);
  for (int n = 60; n <= 90; n++) {
    int32_t id;
    float logits[FAKE_VOCAB];
    sync_ok(session, text, n);
    assert_int_equal(session_sample(session, &id, NULL), STATUS_OK);
    whole_logits(text, n, logits);
    for (int v = 0; v < FAKE_VOCAB; v++) assert_true(logits[v] <= logits[id]);
  }
  session_close(session);
}

/* The tokens that a text begins with as the text before it did are not computed again. The penalties count
 * them all the same. */
static void a_common_beginning_is_known_to_the_sampler(void **state) {
  SamplerSettings settings = greedy;
  settings.repetition_penalty = 1000;
  for (int common = 1; common < 50; common += 7) {
    int32_t first[FAKE_POSITIONS], second[FAKE_POSITIONS];
    make_ids(first, 60, 8), make_ids(second, 60, 9);
    memcpy(second, first, (size_t)common * sizeof *first);
    Session *session = open_session((SessionOptions){.sampler = settings}),
            *fresh = open_session((SessionOptions){.sampler = settings});
    sync_ok(session, first, 60);
    sync_ok(session, second, 60);
    sync_ok(fresh, second, 60);
    for (int i = 0; i < 20; i++) {
      int32_t id, want;
      assert_int_equal(session_sample(session, &id, NULL), STATUS_OK);
      assert_int_equal(session_sample(fresh, &want, NULL), STATUS_OK);
      assert_int_equal(id, want);
      assert_int_equal(session_decode(session, id, NULL), STATUS_OK);
      assert_int_equal(session_decode(fresh, id, NULL), STATUS_OK);
    }
    session_close(session);
    session_close(fresh);
  }
}

/* --- texts that grow long */

typedef struct {
  const int32_t *ids;
  int n;
} Text;

static Status check_row(void *user, int row, const float *logits, Error *err) {
  (void)err;
  const Text *text = user;
  float want[FAKE_VOCAB];
  long_logits(text->ids, row + 1, text->n, want);
  assert_memory_equal(logits, want, sizeof want);
  return STATUS_OK;
}

/* However a text came to its length, its logits are those of a text that always had it. */
static void a_text_that_grows_long_is_computed_again(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 100, 5);
  Error err;
  const int chunks[] = {1, 7, 0};
  for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
    Session *session = open_long((SessionOptions){.chunk = chunks[c], .max_logit_rows = 3});
    sync_ok(session, ids, SHORT_TEXT - 3);
    for (int n = SHORT_TEXT - 2; n < SHORT_TEXT + 4; n++) {
      fake.n_tokens = 0;
      assert_int_equal(session_decode(session, ids[n - 1], &err), STATUS_OK);
      assert_holds_long(session, ids, n);
      assert_int_equal(fake.n_tokens, n == SHORT_TEXT + 1 ? n : 1);
    }
    sync_ok(session, ids, 60); /* long, and longer */
    assert_holds_long(session, ids, 60);
    sync_ok(session, ids, SHORT_TEXT); /* short again */
    assert_holds_long(session, ids, SHORT_TEXT);
    fake.n_tokens = 0;
    sync_ok(session, ids, 30); /* and shorter: its beginning is there */
    assert_holds_long(session, ids, 30);
    assert_int_equal(fake.n_tokens, 1);
    sync_ok(session, ids, 70);
    assert_holds_long(session, ids, 70);
    for (int n = SHORT_TEXT - 1; n < SHORT_TEXT + 2; n++)
      assert_int_equal(session_evaluate(session, ids, n, check_row, &(Text){ids, n}, &err), STATUS_OK);
    session_close(session);
  }
}

typedef struct {
  int stop_at, n_calls, last; /* stops once so many are done; -1: never */
} WatchAgain;

static bool watch_again(void *user, int done, int total) {
  WatchAgain *w = user;
  assert_int_equal(total, SHORT_TEXT);
  w->n_calls++;
  w->last = done;
  return w->stop_at < 0 || done < w->stop_at;
}

/* A watcher gets the progress and may stop it; later results are as if nothing had been stopped. */
static void what_is_computed_again_can_be_stopped(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 100, 5);
  Error err;
  Session *session = open_long((SessionOptions){.chunk = 4});
  sync_ok(session, ids, SHORT_TEXT);
  WatchAgain w = {.stop_at = 8};
  session_watch(session, watch_again, &w);
  assert_int_equal(session_decode(session, ids[SHORT_TEXT], &err), STATUS_INTERRUPTED);
  assert_true(w.n_calls == 3 && w.last == 8);
  assert_int_equal(session_view(session).text->n_past, 8);
  w = (WatchAgain){.stop_at = -1};
  sync_ok(session, ids, SHORT_TEXT);
  assert_holds_long(session, ids, SHORT_TEXT);
  assert_int_equal(session_decode(session, ids[SHORT_TEXT], &err), STATUS_OK);
  assert_int_equal(w.last, SHORT_TEXT);
  assert_holds_long(session, ids, SHORT_TEXT + 1);
  session_close(session);
}

/* A continuation is scored as a part of the text that it makes. */
static void scores_of_long_texts_are_theirs(void **state) {
  const int n = 30, lengths[] = {5, 11, 12, 40, 3};
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, n, 5);
  Error err;
  Session *session = open_long((SessionOptions){.chunk = 8});
  sync_ok(session, ids, n);
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
    double log_p[40];
    make_ids(ids + n, lengths[l], 11 + (int)l);
    assert_int_equal(session_score(session, ids + n, lengths[l], log_p, &err), STATUS_OK);
    for (int i = 0; i < lengths[l]; i++) {
      float logits[FAKE_VOCAB];
      long_logits(ids, n + i, n + lengths[l] - 1, logits);
      assert_true(log_p[i] == log_probability(logits, FAKE_VOCAB, ids[n + i]));
    }
  }
  session_close(session);
}

/* A failure on the way leaves fewer tokens, and no wrong ones. */
static void a_failure_while_a_text_grows_long(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 100, 5);
  Error err;
  Session *session = open_long((SessionOptions){.chunk = 16});
  sync_ok(session, ids, SHORT_TEXT);
  fake.fail_at = fake.n_steps + 2;
  assert_int_equal(session_decode(session, ids[SHORT_TEXT], &err), STATUS_FAILED);
  assert_int_equal(session_view(session).text->n_past, 16);
  fake.fail_at = 0;
  sync_ok(session, ids, SHORT_TEXT);
  assert_holds_long(session, ids, SHORT_TEXT);
  assert_int_equal(session_decode(session, ids[SHORT_TEXT], &err), STATUS_OK);
  assert_holds_long(session, ids, SHORT_TEXT + 1);
  session_close(session);
}

/* --- the loop */

typedef struct {
  int32_t ids[FAKE_POSITIONS];
  int n, stop_after, fail_after;
  volatile int *interrupt;
} Heard;

static Status hear(void *user, int32_t id, TokenReply *reply, Error *err) {
  Heard *heard = user;
  heard->ids[heard->n++] = id;
  if (heard->interrupt && heard->n == 5) *heard->interrupt = 1;
  if (heard->n == heard->fail_after) return error_set(err, STATUS_PIPE, "gone");
  reply->stop = heard->n == heard->stop_after;
  return STATUS_OK;
}

static GenerateResult generate_ok(Session *session, GenerateOptions options, Heard *heard) {
  GenerateResult result;
  Error err = {{0}};
  if (generate(session, &options, hear, heard, &result, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(result.n_generated, heard->n);
  return result;
}

static void every_end_is_told(void **state) {
  const int32_t eos[] = {FAKE_VOCAB - 2, FAKE_VOCAB - 1};
  int32_t ids[FAKE_POSITIONS], greedy_ids[20];
  make_ids(ids, 30, 9);
  Session *session = open_session((SessionOptions){.n_ctx = 60, .chunk = 16});

  sync_ok(session, ids, 30);
  Heard heard = {.n = 0};
  GenerateResult result = generate_ok(session, (GenerateOptions){.max_tokens = 20}, &heard);
  assert_int_equal(result.reason, FINISH_LENGTH);
  assert_int_equal(heard.n, 20);
  assert_int_equal(session_view(session).text->n_past, 49); /* no call asked for what follows the twentieth */
  assert_true(result.first_token_ms >= 0 && result.decode_ms >= 0);
  memcpy(greedy_ids, heard.ids, sizeof greedy_ids);
  for (int i = 0; i < 20; i++) {
    float logits[FAKE_VOCAB];
    whole_logits(ids, 30 + i, logits);
    for (int v = 0; v < FAKE_VOCAB; v++) assert_true(logits[v] <= logits[greedy_ids[i]]);
    ids[30 + i] = greedy_ids[i];
  }

  sync_ok(session, ids, 30);
  heard = (Heard){.n = 0};
  result = generate_ok(session, (GenerateOptions){.max_tokens = 0}, &heard);
  assert_int_equal(result.reason, FINISH_LENGTH);
  assert_int_equal(heard.n, 0);

  heard = (Heard){.n = 0};
  result = generate_ok(session, (GenerateOptions){.max_tokens = -1}, &heard);
  assert_int_equal(result.reason, FINISH_CONTEXT);
  assert_int_equal(heard.n, 31); /* 30 that fit, and the one that the last logits give */
  assert_int_equal(session_view(session).text->n_past, 60);

  fake.end_at = 36;
  sync_ok(session, ids, 30);
  heard = (Heard){.n = 0};
  result = generate_ok(session, (GenerateOptions){.max_tokens = -1, .eos = eos, .n_eos = 2}, &heard);
  assert_int_equal(result.reason, FINISH_EOS);
  assert_int_equal(heard.n, 7);
  assert_memory_equal(heard.ids, greedy_ids, 7 * sizeof *greedy_ids);

  sync_ok(session, ids, 30);
  heard = (Heard){.n = 0};
  result = generate_ok(
      session, (GenerateOptions){.max_tokens = 10, .eos = eos, .n_eos = 2, .ignore_eos = true}, &heard);
  assert_int_equal(result.reason, FINISH_LENGTH);
  assert_int_equal(heard.ids[7], FAKE_VOCAB - 1);

  sync_ok(session, ids, 30);
  heard = (Heard){.stop_after = 4};
  result = generate_ok(session, (GenerateOptions){.max_tokens = -1}, &heard);
  assert_int_equal(result.reason, FINISH_STOP);
  assert_int_equal(heard.n, 4);

  sync_ok(session, ids, 30);
  volatile int interrupt = 0;
  heard = (Heard){.interrupt = &interrupt};
  result = generate_ok(session, (GenerateOptions){.max_tokens = -1, .interrupted = &interrupt}, &heard);
  assert_int_equal(result.reason, FINISH_INTERRUPTED);
  assert_int_equal(heard.n, 5);

  sync_ok(session, ids, 30);
  heard = (Heard){.fail_after = 3};
  Error err;
  const GenerateOptions endless = {.max_tokens = -1};
  assert_int_equal(generate(session, &endless, hear, &heard, &result, &err), STATUS_PIPE);
  assert_int_equal(heard.n, 3);
  session_close(session);
}

/* Tokens that are held are as good as tokens that are decoded one by one, in as many steps as they need; to
 * the sampler they are of the answer. */
static void held_tokens_are_those_of_an_answer(void **state) {
  enum { N = 20, CHUNK = 4, N_CTX = 36 };
  SamplerSettings settings = greedy;
  settings.presence_penalty = 50; /* more than any logit of the fake model */
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, N_CTX + 1, 8);
  Session *session = open_session((SessionOptions){.chunk = CHUNK, .sampler = settings});
  Error err;
  for (int n = 0; n <= N_CTX - N; n++) {
    float logits[FAKE_VOCAB];
    int32_t id, best = -1;
    session_limit(session, 0);
    sync_ok(session, ids, N);
    session_limit(session, N_CTX);
    assert_int_equal(session_view(session).text->n_ctx, N_CTX);
    for (int i = 0; i < n; i++) assert_true(session_hold(session, ids[N + i]));
    assert_int_equal(session_view(session).text->n_ids - session_view(session).text->n_past, n);
    fake.n_steps = 0;
    if (n == N_CTX - N) assert_false(session_hold(session, ids[N_CTX]));
    assert_int_equal(session_decode_held(session, 0, &err), STATUS_OK);
    assert_int_equal(fake.n_steps, (n + CHUNK - 1) / CHUNK);
    assert_int_equal(session_view(session).text->n_ids, session_view(session).text->n_past);
    assert_holds(session, ids, N + n);
    assert_int_equal(session_sample(session, &id, &err), STATUS_OK);
    whole_logits(ids, N + n, logits);
    for (int i = 0; i < n; i++) logits[ids[N + i]] = -1000;
    for (int v = 0; v < FAKE_VOCAB; v++)
      if (best < 0 || logits[v] > logits[best]) best = v;
    assert_int_equal(id, best);
  }
  session_limit(session, FAKE_POSITIONS + 1); /* no more than it has */
  assert_int_equal(session_view(session).text->n_ctx, FAKE_POSITIONS);
  assert_int_equal(session_sync(session, ids, N_CTX + 1, &err), STATUS_OK);
  session_limit(session, N_CTX);
  assert_int_equal(session_sync(session, ids, N_CTX + 1, &err), STATUS_USAGE);
  session_close(session);
}

static void no_token_is_pushed_beyond_the_context(void **state) {
  enum { N_CTX = 40 };
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, N_CTX, 9);
  Session *session = open_session((SessionOptions){.n_ctx = N_CTX, .chunk = 16});
  Error err = {{0}};
  for (int room = 0; room < 2; room++) {
    sync_ok(session, ids, N_CTX - room);
    for (int i = 0; i < room; i++) assert_int_equal(session_decode_async(session, &err), STATUS_OK);
    fake.n_steps = 0;
    assert_int_equal(session_decode_async(session, &err), STATUS_USAGE);
    assert_non_null(strstr(err.text, "the context of 40 tokens is full"));
    assert_int_equal(fake.n_steps, 0);
    assert_int_equal(session_view(session).n_in_flight, room);
    assert_int_equal(session_drain(session, &err), STATUS_OK);
  }
  session_close(session);
}

/* A stop is noticed one step late at most, and nothing of that step is part of the session. */
static void a_lead_is_dropped_at_a_stop(void **state) {
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 30, 9);
  Session *session = open_session((SessionOptions){.n_ctx = 60, .chunk = 16});
  sync_ok(session, ids, 30);
  Heard heard = {.stop_after = 4};
  GenerateResult result = generate_ok(session, (GenerateOptions){.max_tokens = -1}, &heard);
  assert_int_equal(result.reason, FINISH_STOP);
  assert_int_equal(heard.n, 4);
  assert_int_equal(session_view(session).text->n_past, 34);
  assert_memory_equal(session_view(session).text->ids + 30, heard.ids, 4 * sizeof *heard.ids);
  assert_int_equal(fake.largest_lead, 1);
  assert_int_equal(session_view(session).n_in_flight, 0);
  float logits[FAKE_VOCAB];
  assert_int_equal(session_logits(session, logits, NULL), STATUS_FAILED);

  memcpy(ids + 30, heard.ids, 4 * sizeof *heard.ids); /* and it goes on as if nothing had been ahead */
  sync_ok(session, ids, 34);
  assert_holds(session, ids, 34);
  session_close(session);
}

int main(void) {
  const struct CMUnitTest ahead_tests[] = {
      cmocka_unit_test(decoding_is_prefilling_one_token),
      cmocka_unit_test(every_end_is_told),
      cmocka_unit_test(a_lead_is_dropped_at_a_stop),
      cmocka_unit_test(no_token_is_pushed_beyond_the_context),
  };
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_do_not_matter),
      cmocka_unit_test(held_tokens_are_those_of_an_answer),
      cmocka_unit_test(a_common_beginning_is_kept),
      cmocka_unit_test(a_failed_restore_keeps_what_was_held_and_no_more),
      cmocka_unit_test(restored_keys_are_not_computed_again),
      cmocka_unit_test(a_few_tokens_are_one_step),
      cmocka_unit_test(no_more_is_kept_than_is_said),
      cmocka_unit_test(a_text_that_grows_long_is_computed_again),
      cmocka_unit_test(what_is_computed_again_can_be_stopped),
      cmocka_unit_test(scores_of_long_texts_are_theirs),
      cmocka_unit_test(a_failure_while_a_text_grows_long),
      cmocka_unit_test(an_interrupted_prefill_can_go_on),
      cmocka_unit_test(a_failed_step_leaves_what_was_there),
      cmocka_unit_test(ids_and_lengths_are_checked),
      cmocka_unit_test(impossible_sizes_are_refused),
      cmocka_unit_test(decoding_is_prefilling_one_token),
      cmocka_unit_test(evaluation_gives_the_logits_of_every_token),
      cmocka_unit_test(continuations_are_scored_behind_what_is_held),
      cmocka_unit_test(a_score_leaves_nothing_behind),
      cmocka_unit_test(a_seed_makes_the_same_draws_whenever_it_is_given),
      cmocka_unit_test(the_sampler_knows_prompt_from_answer),
      cmocka_unit_test(a_common_beginning_is_known_to_the_sampler),
      cmocka_unit_test(every_end_is_told),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  backend = &fake_ahead_backend;
  return failed + cmocka_run_group_tests_name("running ahead", ahead_tests, NULL, NULL);
}
