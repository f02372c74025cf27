/* test_engine.c - which sequence a request gets, in an engine with a session and a batch on the tiny model;
 * what the session keeps from one request to the next; nothing of a run that was stopped is left for the
 * next. */
#include "engine/engine.h"
#include "test/tests.h"

enum { N_CTX = 120, N_ANSWER = 9, MOST = 8 };

static Model *model;
static BackendModel *loaded;
static const SamplerSettings warm = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 3};

static int load(void **state) {
  Error err = {{0}};
  if (model_open("test/data/stories260K-awq", NULL, &model, &err)) fail_msg("%s", err.text);
  if (cpu_backend.load(model, &(const BackendOptions){.n_threads = 1}, &loaded, &err))
    fail_msg("%s", err.text);
  return 0;
}

static int unload(void **state) {
  cpu_backend.unload(loaded);
  model_close(model);
  return 0;
}

/* A request of a run: how it was computed, and its answer. */
typedef struct {
  EngineRequest request;
  int32_t ids[N_CTX], answer[N_ANSWER];
  int n_answer, n_done, waits; /* waits: turns for which it gives the step to others */
  bool in_session, gone;
  double log_p[MOST];
  int reported[N_CTX], n_reported,
      total; /* tokens of the prompt that were said to be done, and of how many */
  EngineResult result;
} Asked;

typedef struct {
  Engine *engine;
  Asked *asked; /* [n] */
  int n, n_next, at_once;
  volatile int interrupted;
  int stop_after;    /* tokens in all, then the run is interrupted */
  bool stops_at_ask; /* it is interrupted while a request is taken */
  int n_tokens, n_waits;
} Run;

static Run *current;

static Status hear(void *user, int32_t id, TokenReply *reply, Error *err) {
  Asked *a = user;
  (void)reply, (void)err;
  a->answer[a->n_answer++] = id;
  const EngineRequest *in_session = engine_in_session(current->engine);
  a->in_session |= in_session && in_session->user == a;
  if (++current->n_tokens == current->stop_after) current->interrupted = 1;
  return STATUS_OK;
}

static EngineTurn turn(void *user, TokenReply *reply) {
  Asked *a = user;
  (void)reply;
  if (a->gone) return TURN_END;
  return a->waits-- > 0 ? TURN_WAIT : TURN_GO;
}

static Status next(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Run *run = user;
  int n_running = 0;
  (void)err;
  for (int i = 0; i < run->n_next; i++) n_running += run->asked[i].n_done == 0;
  assert_int_equal(may_wait, n_running == 0);
  *found = run->n_next < run->n && n_running < run->at_once;
  if (run->stops_at_ask) run->interrupted = 1;
  if (*found) *request = run->asked[run->n_next++].request;
  return STATUS_OK;
}

static Status done(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  Asked *a = request->user;
  (void)user, (void)err;
  a->result = *result;
  a->n_done++;
  return STATUS_OK;
}

static void progress(void *user, const EngineRequest *request, const EngineResult *result, int n_done,
                     int total) {
  Asked *a = request->user;
  (void)user, (void)result;
  assert_int_equal(a->n_answer, 0);
  a->total = total;
  if (a->n_reported < N_CTX) a->reported[a->n_reported++] = n_done;
}

static Status listen(void *user, bool may_wait, Error *err) {
  Run *run = user;
  (void)err;
  run->n_waits += may_wait;
  return STATUS_OK;
}

static void ask(Asked *a, int salt, int n, bool alone) {
  *a = (Asked){.n_answer = 0};
  for (int i = 0; i < n; i++) a->ids[i] = 300 + (i * 7 + salt * 13) % 150;
  a->request = (EngineRequest){.ids = a->ids,
                               .n_ids = n,
                               .sampler = &warm,
                               .generate = {.max_tokens = N_ANSWER},
                               .sink = hear,
                               .log_p = a->log_p,
                               .alone = alone,
                               .turn = turn,
                               .user = a};
}

static Status run_all(Engine *engine, Run *run) {
  Error err = {{0}};
  current = run;
  run->engine = engine;
  const EngineJob job = {.next = next,
                         .done = done,
                         .interrupted = &run->interrupted,
                         .user = run,
                         .progress = progress,
                         .listen = listen};
  const Status status = engine_run(engine, &job, &err);
  assert_null(engine_in_session(engine));
  assert_int_equal(engine_pages_used(engine), 0);
  if (status == STATUS_OK)
    for (int i = 0; i < run->n; i++) assert_int_equal(run->asked[i].n_done, 1);
  return status;
}

static Engine *open_engine(const Backend *backend, bool session, int n_sequences, PromptStore store) {
  Error err = {{0}};
  Engine *engine;
  const SessionOptions one = {.n_ctx = N_CTX, .chunk = 8, .sampler = warm};
  const BatchOptions many = {.n_sequences = n_sequences, .n_ctx = N_CTX};
  const EngineOptions options = {session ? &one : NULL, store, n_sequences ? &many : NULL};
  if (engine_open(backend, loaded, model, &options, &engine, &err)) fail_msg("%s", err.text);
  return engine;
}

static Engine *open_cpu(bool session, int n_sequences) {
  return open_engine(&cpu_backend, session, n_sequences, (PromptStore){0});
}

/* Answers as each request gets them in a session of its own. */
static void answer_each(Asked *asked, int n) {
  for (int i = 0; i < n; i++) {
    Engine *engine = open_cpu(true, 0);
    Run run = {.asked = &asked[i], .n = 1, .at_once = 1};
    assert_int_equal(run_all(engine, &run), STATUS_OK);
    engine_close(engine);
  }
}

/* The first lone one among requests that come together gets the session, if nothing else is computed, and its
 * steps alternate with those of the batch. All get what they get by themselves. */
TEST(a_lone_request_gets_the_session_if_nothing_else_is_computed) {
  enum { N = 5 };
  for (int first_alone = 0; first_alone < 2; first_alone++)
    for (int at_once = 1; at_once <= N; at_once += N - 1) {
      Asked asked[N], expected[N];
      Engine *engine = open_cpu(true, 3);
      Run run = {.asked = asked, .n = N, .at_once = at_once};
      for (int i = 0; i < N; i++) {
        const bool alone = i > 0 || first_alone;
        ask(&asked[i], i, 5 + 9 * i, alone);
        ask(&expected[i], i, 5 + 9 * i, alone);
      }
      answer_each(expected, N);
      assert_int_equal(run_all(engine, &run), STATUS_OK);
      for (int i = 0; i < N; i++) {
        assert_int_equal(asked[i].result.status, STATUS_OK);
        assert_int_equal(asked[i].n_answer, N_ANSWER);
        assert_memory_equal(asked[i].answer, expected[i].answer, sizeof expected[i].answer);
        if (at_once == 1 || i < 3) /* those that come later may find the engine empty */
          assert_int_equal(asked[i].in_session, at_once == 1 ? i > 0 || first_alone : i == 0 && first_alone);
      }
      engine_close(engine);
    }
}

/* The caller is asked to wait only once no sequence of either schedule has anything to do. */
TEST(the_run_waits_if_all_of_its_sequences_wait) {
  static const struct {
    int first, second, n_waits;
  } cases[] = {{0, 0, 0}, {4, 0, 0}, {0, 4, 0}, {30, 0, 30 - 16}, {0, 30, 30 - 16}, {5, 5, 4}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Asked asked[2];
    Engine *engine = open_cpu(true, 2);
    Run run = {.asked = asked, .n = 2, .at_once = 2};
    for (int i = 0; i < 2; i++) ask(&asked[i], i, 4, true);
    asked[0].waits = cases[c].first;
    asked[1].waits = cases[c].second;
    assert_int_equal(run_all(engine, &run), STATUS_OK);
    assert_true(asked[0].in_session && !asked[1].in_session);
    if (cases[c].n_waits == 0)
      assert_int_equal(run.n_waits, 0);
    else
      assert_in_range(run.n_waits, cases[c].n_waits, 30);
    engine_close(engine);
  }
}

/* A run that is stopped gives no results of what had not ended, and its sequences are free for the next. */
TEST(a_stopped_run_leaves_nothing) {
  enum { N = 4 };
  for (int session = 0; session < 2; session++)
    for (int batch = !session; batch < 2; batch++)
      for (int stop_after = 1; stop_after < 2 * N_ANSWER; stop_after += 5) {
        Asked asked[N], expected[N];
        Engine *engine = open_cpu(session, 2 * batch);
        Run run = {.asked = asked, .n = N, .at_once = N, .stop_after = stop_after};
        for (int i = 0; i < N; i++) ask(&asked[i], i, 20, true);
        assert_int_equal(run_all(engine, &run), STATUS_INTERRUPTED);
        for (int i = 0; i < N; i++) assert_int_equal(asked[i].n_done, asked[i].n_answer == N_ANSWER);
        for (int i = 0; i < N; i++) ask(&asked[i], i, 20, true), ask(&expected[i], i, 20, true);
        run = (Run){.asked = asked, .n = N, .at_once = N};
        assert_int_equal(run_all(engine, &run), STATUS_OK);
        answer_each(expected, N);
        for (int i = 0; i < N; i++)
          assert_memory_equal(asked[i].answer, expected[i].answer, sizeof expected[i].answer);
        engine_close(engine);
      }
}

/* An interruption between the look at it and the first step is no result: a file of results would keep it. */
TEST(what_was_interrupted_before_its_first_step_has_no_result) {
  for (int n_scored = 0; n_scored < 3; n_scored += 2) {
    Asked asked;
    Engine *engine = open_cpu(true, 0);
    Run run = {.asked = &asked, .n = 1, .at_once = 1, .stops_at_ask = true};
    ask(&asked, 1, 20, true);
    asked.request.n_scored = n_scored;
    assert_int_equal(run_all(engine, &run), STATUS_INTERRUPTED);
    assert_int_equal(asked.n_done, 0);
    engine_close(engine);
  }
}

/* A request that is gone ends with no token more, in its prompt as well. */
TEST(a_request_may_end_itself) {
  Asked asked[2];
  Engine *engine = open_cpu(true, 2);
  Run run = {.asked = asked, .n = 2, .at_once = 2};
  for (int i = 0; i < 2; i++) ask(&asked[i], i, 30, true), asked[i].gone = true;
  assert_int_equal(run_all(engine, &run), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(asked[i].result.status, STATUS_OK);
    assert_int_equal(asked[i].result.generated.reason, FINISH_INTERRUPTED);
    assert_int_equal(asked[i].n_answer, 0);
  }
  engine_close(engine);
}

TEST(an_invalid_request_fails_alone) {
  static const struct {
    int n, n_scored;
    int32_t id;
  } cases[] = {{0, 0, 1}, {N_CTX + 1, 0, 1}, {N_CTX + 2, 1, 1}, {3, 3, 1}, {3, 0, -1}, {3, 0, 1 << 20}};
  for (int session = 0; session < 2; session++)
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
      Asked asked[2];
      int32_t ids[N_CTX + 2];
      Engine *engine = open_cpu(session, session ? 0 : 2);
      Run run = {.asked = asked, .n = 2, .at_once = 1};
      for (int i = 0; i < N_CTX + 2; i++) ids[i] = 300;
      ids[0] = cases[c].id;
      for (int i = 0; i < 2; i++) ask(&asked[i], 1, 10, true);
      asked[0].request.ids = ids;
      asked[0].request.n_ids = cases[c].n;
      asked[0].request.n_scored = cases[c].n_scored;
      assert_int_equal(run_all(engine, &run), STATUS_OK);
      assert_int_equal(asked[0].result.status, STATUS_USAGE);
      assert_int_equal(asked[1].n_answer, N_ANSWER);
      engine_close(engine);
    }
}

/* --- what the session keeps */

static Status no_memory(const Model *of, const BackendOptions *options, DeviceMemory *memory, Error *err) {
  (void)of, (void)options, (void)memory;
  return error_set(err, STATUS_FAILED, "not asked for");
}

static int reused(Engine *engine, int salt, int n, const void *owner) {
  Asked asked;
  Run run = {.asked = &asked, .n = 1, .at_once = 1};
  ask(&asked, salt, n, true);
  asked.request.owner = owner;
  assert_int_equal(run_all(engine, &run), STATUS_OK);
  return asked.result.n_reused;
}

/* On a device that rounds by rows, an owner that is new, or that was disowned meanwhile, reuses whole chunks
 * of a prompt alone. */
TEST(tokens_of_others_are_reused_in_whole_chunks) {
  const char anna = 0, ben = 0;
  Backend other = cpu_backend;
  other.memory = no_memory, other.chunk = 8;
  Engine *engine = open_engine(&other, true, 0, (PromptStore){0});
  assert_int_equal(reused(engine, 1, 30, &anna), 0);
  assert_int_equal(reused(engine, 1, 30, &anna), 29);
  assert_int_equal(reused(engine, 1, 30, &ben), 24);
  assert_int_equal(reused(engine, 1, 30, &ben), 29);
  engine_disown(engine, &anna); /* owns nothing: no change */
  assert_int_equal(reused(engine, 1, 30, &ben), 29);
  engine_disown(engine, &ben);
  assert_int_equal(reused(engine, 1, 30, &ben), 24);
  engine_close(engine);
}

/* The base is computed by itself, and only once; what other requests left beyond it is not used. */
TEST(a_base_is_all_that_is_kept) {
  int32_t base[12];
  Engine *engine = open_cpu(true, 0);
  Asked first, again;
  for (int round = 0; round < 3; round++) {
    Asked *a = round == 2 ? &again : &first;
    Run run = {.asked = a, .n = 1, .at_once = 1};
    ask(a, 1, 40, false);
    memcpy(base, a->ids, sizeof base);
    a->request.base = base;
    a->request.n_base = 12;
    if (round == 1) a->ids[5] = 7, a->request.ids = a->ids;
    assert_int_equal(run_all(engine, &run), STATUS_OK);
    assert_int_equal(a->result.n_reused, round == 1 ? 5 : 12);
    if (round == 1) assert_int_equal(reused(engine, 2, 30, NULL), 0);
  }
  engine_close(engine);
}

typedef struct {
  int n_restored, n_prefilled;
} Store;

static void restore(void *user, Session *session, const int32_t *ids, int n) {
  Store *store = user;
  (void)session, (void)ids;
  assert_in_range(n, 1, N_CTX);
  store->n_restored++;
}

static void prefilled(void *user, int n) {
  Store *store = user;
  assert_int_equal(n, 20);
  store->n_prefilled++;
}

/* Continuations of one prompt are scored after it was computed once; an answer between them ends that. */
TEST(continuations_share_their_prompt) {
  Store store = {0, 0};
  Engine *engine = open_engine(&cpu_backend, true, 0, (PromptStore){&store, restore, prefilled});
  double log_p[3][3];
  for (int i = 0; i < 3; i++) {
    Asked a;
    Run run = {.asked = &a, .n = 1, .at_once = 1};
    if (i == 2) assert_int_equal(reused(engine, 1, 20, NULL), 19);
    ask(&a, 1, 23, true);
    if (i == 1) a.ids[21] = 9;
    a.request.n_scored = 3;
    assert_int_equal(run_all(engine, &run), STATUS_OK);
    assert_int_equal(a.result.n_reused, i == 0 ? 0 : i == 1 ? 20 : 19);
    assert_int_equal(store.n_restored, i == 2 ? 3 : 1);
    assert_int_equal(store.n_prefilled, i == 2 ? 3 : 1);
    memcpy(log_p[i], a.log_p, sizeof log_p[i]);
  }
  assert_memory_equal(log_p[0], log_p[2], sizeof log_p[0]);
  assert_true(log_p[0][0] == log_p[1][0] && log_p[0][1] != log_p[1][1]);
  engine_close(engine);
}

static Status allow_one(void *user, const uint64_t **mask, Error *err) {
  static const uint64_t words[64] = {[5] = 1};
  (void)user, (void)err;
  *mask = words;
  return STATUS_OK;
}

/* After a request with a mask, with a limit of its context, or with scores of another prompt of the same
 * length, a request gets what it gets by itself. */
TEST(nothing_of_a_request_holds_for_the_next) {
  for (int what = 0; what < 3; what++) {
    Asked asked[2], expected;
    Engine *engine = open_cpu(true, 0);
    Run run = {.asked = asked, .n = 2, .at_once = 1};
    for (int i = 0; i < 2; i++) ask(&asked[i], i, 20, true);
    ask(&expected, 1, 20, true);
    if (what == 0) asked[0].request.generate.allow = allow_one;
    if (what == 1) asked[0].request.n_ctx = 22;
    if (what == 2) asked[0].request.n_scored = asked[1].request.n_scored = expected.request.n_scored = 3;
    answer_each(&expected, 1);
    assert_int_equal(run_all(engine, &run), STATUS_OK);
    assert_int_equal(asked[1].result.status, STATUS_OK);
    assert_int_equal(asked[1].n_answer, what == 2 ? 0 : N_ANSWER);
    assert_memory_equal(asked[1].answer, expected.answer, sizeof expected.answer);
    assert_memory_equal(asked[1].log_p, expected.log_p, sizeof expected.log_p);
    engine_close(engine);
  }
}

/* A prompt in the session is reported from the tokens that are there already on, by at most a chunk at a
 * time, until it is complete. */
TEST(a_prompt_is_reported_chunk_by_chunk) {
  static const struct {
    int salt, n, n_reused;
  } asks[] = {{1, 30, 0}, {1, 30, 29}, {1, 47, 30}, {1, 20, 19}, {2, 9, 0}, {2, 1, 0}, {2, 8, 1}, {3, 64, 0}};
  Engine *engine = open_cpu(true, 0);
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
    Asked asked;
    Run run = {.asked = &asked, .n = 1, .at_once = 1};
    ask(&asked, asks[i].salt, asks[i].n, true);
    assert_int_equal(run_all(engine, &run), STATUS_OK);
    assert_int_equal(asked.result.n_reused, asks[i].n_reused);
    assert_true(asked.result.prefill_ms > 0 && asked.n_reported > 1);
    assert_int_equal(asked.total, asks[i].n);
    assert_int_equal(asked.reported[0], asks[i].n_reused);
    for (int k = 1; k < asked.n_reported; k++)
      assert_in_range(asked.reported[k] - asked.reported[k - 1], 0, 8);
    assert_int_equal(asked.reported[asked.n_reported - 1], asks[i].n);
  }
  engine_close(engine);
}

static CMFixtureFunction before_all = load, after_all = unload;
