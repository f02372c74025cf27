/* test_session_limits.c - the sizes of sessions, what they refuse and in which words, and what they ask of a
 * device beside steps. */
#include "session_test.h"

#include "base/file.h"
#include "engine/prefix/prefix_store.h"
#include "test/directory.h"
#include "test/engine/step_once.h"
#include "test/tests.h"

/* --- sizes */

TEST(sizes_follow_from_options_backend_and_model) {
  /* the model has 200 positions, the backend's chunk is 256 */
  static const struct {
    SessionOptions options;
    StateOptions want;
  } cases[] = {
      {{0}, {.n_ctx = 200, .max_chunk = 200, .max_logit_rows = 1, .kv = KV_F16}},
      {{.n_ctx = 200}, {.n_ctx = 200, .max_chunk = 200, .max_logit_rows = 1, .kv = KV_F16}},
      {{.n_ctx = 1}, {.n_ctx = 1, .max_chunk = 1, .max_logit_rows = 1, .kv = KV_F16}},
      {{.n_ctx = 50, .kv = KV_F32}, {.n_ctx = 50, .max_chunk = 50, .max_logit_rows = 1, .kv = KV_F32}},
      {{.n_ctx = 50, .chunk = 49}, {.n_ctx = 50, .max_chunk = 49, .max_logit_rows = 1, .kv = KV_F16}},
      {{.n_ctx = 50, .chunk = 51, .max_logit_rows = 50},
       {.n_ctx = 50, .max_chunk = 50, .max_logit_rows = 50, .kv = KV_F16}},
      {{.n_ctx = 50, .chunk = 8, .max_logit_rows = 8},
       {.n_ctx = 50, .max_chunk = 8, .max_logit_rows = 8, .kv = KV_F16}},
      {{.n_ctx = 50, .chunk = 8, .max_logit_rows = 9},
       {.n_ctx = 50, .max_chunk = 8, .max_logit_rows = 8, .kv = KV_F16}},
      {{.chunk = 1, .max_logit_rows = 7}, {.n_ctx = 200, .max_chunk = 1, .max_logit_rows = 1, .kv = KV_F16}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const StateOptions got = session_sizes(&cases[i].options, &fake_backend, &model.config);
    assert_int_equal(got.n_ctx, cases[i].want.n_ctx);
    assert_int_equal(got.max_chunk, cases[i].want.max_chunk);
    assert_int_equal(got.max_logit_rows, cases[i].want.max_logit_rows);
    assert_int_equal(got.kv, cases[i].want.kv);
  }
  Backend few = fake_backend;
  few.chunk = 24;
  assert_int_equal(session_sizes(&(SessionOptions){0}, &few, &model.config).max_chunk, 24);
}

static void assert_refused(SessionOptions options, const char *message) {
  BackendModel loaded = {&model};
  Session *session;
  Error err = {{0}};
  options.sampler = greedy;
  assert_int_equal(session_open(&fake_backend, &loaded, &model, &options, &session, &err), STATUS_USAGE);
  assert_string_equal(err.text, message);
  assert_null(session);
}

TEST(sizes_out_of_range_are_named) {
  assert_refused((SessionOptions){.n_ctx = 201},
                 "context of 201 tokens, expected 1 to the model's maximum of 200");
  assert_refused((SessionOptions){.n_ctx = -1},
                 "context of -1 tokens, expected 1 to the model's maximum of 200");
  assert_refused((SessionOptions){.chunk = -2},
                 "chunk of -2 tokens and 0 rows of logits, expected none below 0");
  assert_refused((SessionOptions){.max_logit_rows = -3},
                 "chunk of 0 tokens and -3 rows of logits, expected none below 0");
}

TEST(a_device_that_cannot_open_leaves_no_session) {
  BackendModel loaded = {&model};
  Session *session;
  Error err = {{0}};
  const SessionOptions options = {.sampler = greedy};
  fake = (FakeCounts){.end_at = -1, .no_opening = true};
  assert_int_equal(session_open(&fake_backend, &loaded, &model, &options, &session, &err), STATUS_FAILED);
  assert_string_equal(err.text, "the device has no room");
  assert_null(session);
  assert_int_equal(fake.n_open, 0);
  session_close(NULL);
}

/* --- lengths and ids */

TEST(lengths_and_ids_out_of_range_are_named) {
  int32_t ids[FAKE_POSITIONS];
  double log_p[60];
  Error err = {{0}};
  make_ids(ids, 60, 5);
  Session *session = open_session((SessionOptions){.n_ctx = 50});
  sync_ok(session, ids, 20);
  assert_int_equal(session_sync(session, ids, 51, &err), STATUS_USAGE);
  assert_string_equal(err.text, "51 tokens, expected 1 to the context of 50");
  assert_int_equal(session_evaluate(session, ids, 0, NULL, NULL, &err), STATUS_USAGE);
  assert_string_equal(err.text, "0 tokens, expected 1 to the context of 50");
  assert_int_equal(session_rewind(session, ids, 51, &err), STATUS_USAGE);
  assert_int_equal(session_score(session, ids, 32, log_p, &err), STATUS_USAGE);
  assert_string_equal(err.text, "31 tokens behind 20, more than the context of 50");
  ids[0] = ids[59] = FAKE_VOCAB - 1;
  assert_int_equal(session_decode(session, ids[0], &err), STATUS_OK);
  ids[9] = FAKE_VOCAB;
  assert_int_equal(session_sync(session, ids, 10, &err), STATUS_USAGE);
  assert_string_equal(err.text, "token 9 has id 97, expected 0 to 96");
  ids[9] = -1;
  assert_int_equal(session_evaluate(session, ids, 10, NULL, NULL, &err), STATUS_USAGE);
  assert_string_equal(err.text, "token 9 has id -1, expected 0 to 96");
  assert_int_equal(session_rewind(session, ids, 10, &err), STATUS_USAGE);
  assert_int_equal(session_score(session, ids, 10, log_p, &err), STATUS_USAGE);
  assert_int_equal(session_view(session).text->n_past, 21);
  session_close(session);
}

static bool refuse_the_last(void *user, int done, int total) {
  ++*(int *)user;
  return done < total;
}

/* Once all is computed nothing can be stopped any more. */
TEST(the_last_call_of_progress_stops_nothing) {
  int32_t ids[FAKE_POSITIONS];
  int n_calls = 0;
  make_ids(ids, 30, 2);
  Session *session = open_session((SessionOptions){.chunk = 10});
  session_watch(session, refuse_the_last, &n_calls);
  assert_int_equal(session_sync(session, ids, 30, NULL), STATUS_OK);
  assert_int_equal(n_calls, 4);
  assert_holds(session, ids, 30);
  session_close(session);
}

/* --- keys and values */

TEST(bytes_of_a_token_are_known) {
  Model of_heads = model;
  BackendModel loaded = {&of_heads};
  Session *session;
  of_heads.config.n_kv_heads = 3;
  of_heads.config.head_dim = 34;
  LayerConfig layers[FAKE_LAYERS] = {{0}, {.n_kv_heads = 5}, {.head_dim = 64}};
  of_heads.config.layers = layers;
  for (KvType kv = KV_F16; kv <= KV_F32; kv++) {
    const SessionOptions options = {.kv = kv, .sampler = greedy};
    Backend some = fake_backend;
    assert_int_equal(session_open(&some, &loaded, &of_heads, &options, &session, NULL), STATUS_OK);
    const size_t *bytes = session_view(session).kv_bytes, size = kv == KV_F16 ? 2 : 4;
    assert_int_equal(bytes[0], 2 * 3 * 34 * size); /* keys, and values */
    assert_int_equal(bytes[1], 2 * 5 * 34 * size);
    assert_int_equal(bytes[2], 2 * 3 * 64 * size);
    assert_int_equal(session_view(session).text->config->n_layers, FAKE_LAYERS);
    some.kv_copy = NULL;
    assert_null(session_view(session).kv_bytes);
    session_close(session);
  }
  session = open_session((SessionOptions){.chunk = 10});
  assert_null(session_view(session).state_bytes);
  session_close(session);
  session = open_hybrid((SessionOptions){.chunk = 10}, 2);
  assert_int_equal(session_view(session).kv_bytes[0], 4);
  assert_int_equal(session_view(session).kv_bytes[1], 0);
  assert_int_equal(session_view(session).state_bytes[0], 0);
  assert_int_equal(session_view(session).state_bytes[1], KEPT_STATES_BYTES / 2);
  session_close(session);
}

TEST(spans_of_keys_are_checked) {
  static const struct {
    int pos, n, n_stored;
    bool read, write; /* of 20 tokens in a context of 30 */
  } cases[] = {
      {0, 20, 20, true, true},    {0, 21, 21, false, true},  {19, 1, 1, true, true},
      {20, 1, 1, false, true},    {0, 0, 5, false, false},   {0, -1, 5, false, false},
      {-1, 1, 1, false, false},   {29, 1, 1, false, true},   {30, 1, 1, false, false},
      {0, 30, 30, false, true},   {0, 31, 31, false, false}, {10, 20, 20, false, true},
      {10, 21, 21, false, false}, {5, 6, 5, true, false},    {5, 6, 6, true, true},
      {5, 6, 7, true, true},
  };
  int32_t ids[FAKE_POSITIONS];
  uint16_t bytes[2 * 40] = {0};
  make_ids(ids, 20, 1);
  Session *session = open_session((SessionOptions){.n_ctx = 30});
  sync_ok(session, ids, 20);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const TokenRange range = {.pos = cases[i].pos, .n_tokens = cases[i].n};
    char message[120];
    Error err = {{0}};
    assert_int_equal(session_kv_copy(session, TO_HOST, range, 0, range.n_tokens, bytes, &err),
                     cases[i].read ? STATUS_OK : STATUS_FAILED);
    snprintf(message, sizeof message, "keys of %d tokens (of %d) from %d on, the session holds 20",
             range.n_tokens, range.n_tokens, range.pos);
    assert_string_equal(err.text, cases[i].read ? "" : message);
    err.text[0] = 0;
    assert_int_equal(session_kv_copy(session, FROM_HOST, range, 0, cases[i].n_stored, bytes, &err),
                     cases[i].write ? STATUS_OK : STATUS_FAILED);
    snprintf(message, sizeof message, "keys of %d tokens (of %d) from %d on, the context is 30",
             range.n_tokens, cases[i].n_stored, range.pos);
    assert_string_equal(err.text, cases[i].write ? "" : message);
  }
  session_close(session);
}

/* A store has nothing to do for it: what the session holds stays, logits too, and no directory is made. */
TEST_IN_DIRECTORY(a_device_that_hands_out_no_keys_has_none_stored) {
  int32_t ids[FAKE_POSITIONS];
  PrefixReport report;
  PrefixStore *store;
  char *none = in_directory(own_directory, "none");
  PrefixStoreOptions options = {own_directory, "k", "a model", UINT64_MAX, 1, NULL, NULL};
  Model wide = model;
  BackendModel loaded = {&wide};
  Session *session;
  wide.config.max_position = 300;
  wide.config.n_kv_heads = wide.config.head_dim = 1;
  const SessionOptions sizes = {.sampler = greedy};
  fake = (FakeCounts){.end_at = -1};
  assert_int_equal(session_open(&fake_ahead_backend, &loaded, &wide, &sizes, &session, NULL), STATUS_OK);
  make_ids(ids, 150, 1);
  sync_ok(session, ids, 150);
  assert_int_equal(prefix_store_open(&options, &store, NULL), STATUS_OK);
  assert_int_equal(prefix_store_restore(store, session, ids, 150, &report, NULL), STATUS_OK);
  assert_holds(session, ids, 150);
  assert_int_equal(report.n_tokens, 0);
  prefix_store_close(store);
  options.directory = none;
  assert_int_equal(prefix_store_open(&options, &store, NULL), STATUS_OK);
  for (int i = 150; i < 290; i++) assert_int_equal(session_decode(session, i % FAKE_VOCAB, NULL), STATUS_OK);
  assert_int_equal(prefix_store_save(store, session, 290, &report, NULL), STATUS_OK);
  assert_false(file_exists(none));
  prefix_store_close(store);
  session_close(session);
}

/* --- running ahead */

/* Where positions may yet turn otherwise, the host has to see each token. */
TEST(only_texts_that_cannot_grow_long_run_ahead) {
  static const struct {
    const Model *model;
    int n_ctx, n; /* n: tokens that are held */
    bool ahead;
  } cases[] = {
      {&model, 200, 0, true},
      {&long_model, SHORT_TEXT, 0, true},
      {&long_model, SHORT_TEXT + 1, 0, false},
      {&long_model, SHORT_TEXT + 1, SHORT_TEXT, false},
      {&long_model, SHORT_TEXT + 1, SHORT_TEXT + 1, true},
  };
  int32_t ids[FAKE_POSITIONS];
  make_ids(ids, 60, 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int ahead = 0; ahead < 2; ahead++) {
      const Backend *device = ahead ? &fake_ahead_backend : &fake_backend;
      BackendModel loaded = {cases[i].model};
      Session *session;
      const SessionOptions options = {.n_ctx = cases[i].n_ctx, .sampler = greedy};
      assert_int_equal(session_open(device, &loaded, cases[i].model, &options, &session, NULL), STATUS_OK);
      if (cases[i].n > 0) sync_ok(session, ids, cases[i].n);
      assert_int_equal(session_decodes_async(session), ahead && cases[i].ahead);
      session_close(session);
    }
  }
}

/* Prefilled is what is computed, and not what is on its way. */
TEST(a_prefill_waits_for_the_device) {
  int32_t ids[FAKE_POSITIONS];
  Error err = {{0}};
  make_ids(ids, 30, 1);
  backend = &fake_ahead_backend;
  Session *session = open_session((SessionOptions){.chunk = 10});
  sync_ok(session, ids, 30);
  assert_int_equal(fake.n_drained, 1);
  fake.no_draining = true;
  assert_int_equal(session_sync(session, ids, 20, &err), STATUS_FAILED);
  assert_string_equal(err.text, "the device is gone");
  assert_int_equal(session_drain(session, NULL), STATUS_FAILED);
  session_close(session);
  backend = &fake_backend;
  session = open_session((SessionOptions){.chunk = 10});
  sync_ok(session, ids, 30);
  assert_int_equal(session_drain(session, NULL), STATUS_OK);
  assert_int_equal(fake.n_drained, 0);
  assert_holds(session, ids, 30);
  session_close(session);
}

/* --- the brackets of a step */

static struct {
  bool replays, begins_badly, ends_badly;
  int n_begun, n_ended, n_logit_rows;
  Status so_far;
} steps;

static Status begin_step(BackendState *state, TokenRange range, bool *replayed, Error *err) {
  steps.n_begun++;
  steps.n_logit_rows = range.n_logit_rows;
  *replayed = steps.replays;
  return steps.begins_badly ? error_set(err, STATUS_FAILED, "no graph") : STATUS_OK;
}

static Status end_step(BackendState *state, Status so_far, Error *err) {
  steps.n_ended++;
  steps.so_far = so_far;
  return so_far == STATUS_OK && steps.ends_badly ? error_set(err, STATUS_FAILED, "no record") : so_far;
}

TEST(a_device_that_records_steps_is_told_of_both_ends) {
  Backend recording = fake_backend;
  BackendModel loaded = {&model};
  BackendState *device;
  Error err = {{0}};
  int32_t ids[10];
  make_ids(ids, 10, 1);
  recording.begin_step = begin_step;
  recording.end_step = end_step;
  fake = (FakeCounts){.end_at = -1};
  assert_int_equal(fake_open(&loaded,
                             &(StateOptions){.n_ctx = 20, .max_chunk = 10, .max_logit_rows = 4, .kv = KV_F16},
                             &device, &err),
                   STATUS_OK);
  static const struct {
    bool replays, begins_badly, ends_badly, fails;
    Status status;
    int n_steps, n_ended;
  } cases[] = {
      {false, false, false, false, STATUS_OK, 1, 1},    {true, false, false, false, STATUS_OK, 0, 0},
      {false, true, false, false, STATUS_FAILED, 0, 0}, {false, false, true, false, STATUS_FAILED, 1, 1},
      {false, false, false, true, STATUS_FAILED, 1, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fake = (FakeCounts){.end_at = -1, .fail_at = cases[i].fails ? 1 : 0, .n_open = 1};
    memset(&steps, 0, sizeof steps);
    steps.replays = cases[i].replays;
    steps.begins_badly = cases[i].begins_badly;
    steps.ends_badly = cases[i].ends_badly;
    const TokenRange range = {.n_tokens = 10, .ids = ids, .n_logit_rows = 3};
    assert_int_equal(step_once(&recording, device, &model.config, range, &err), cases[i].status);
    assert_int_equal(steps.n_begun, 1);
    assert_int_equal(steps.n_logit_rows, 3);
    assert_int_equal(fake.n_steps, cases[i].n_steps);
    assert_int_equal(steps.n_ended, cases[i].n_ended);
    if (cases[i].n_ended) assert_int_equal(steps.so_far, cases[i].fails ? STATUS_FAILED : STATUS_OK);
    assert_int_equal(fake.n_rows, cases[i].n_steps && !cases[i].fails ? 3 : 0);
  }
  fake_close(device);
}
