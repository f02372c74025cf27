/* test_holder.c - a process that keeps a model, and calls whose requests are drawn at random: each gets what
 * a batch of its own gives it, whatever the others do; and what the process says of itself meanwhile. */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands/keep/holder.h"
#include "commands/keep/start.h"
#include "test/unit.h"

enum { N_CTX = 60, N_CALLERS = 3, N_TRIALS = 30, MOST_IDS = 48, MOST_FORCED = 4 };

static AssistantFlags flags;
static Assistant own; /* computes what is expected */
static pid_t holder;
static char *folder;

static uint32_t random_of(uint32_t *seed, uint32_t below) {
  *seed = *seed * 1664525 + 1013904223;
  return (uint32_t)(((uint64_t)(*seed ^ *seed >> 15) * below) >> 32);
}

/* A request, what its callbacks do, and all that they hear. */
typedef struct {
  uint32_t seed;
  int32_t ids[MOST_IDS], eos[2], first[MOST_FORCED], forced[MOST_FORCED];
  SamplerSettings sampler;
  EngineRequest request;
  volatile int interrupted;
  int n_taken, n_coming, fails_at, stops_at, interrupted_at, n_done;
  bool is_wrong;
  double log_p[4];
  uint64_t mask[16];
  TokenScore scores[4]; /* of the next token; of an end token none come from another process */
  char said[1 << 14];
  size_t size;
} Trial;

static void say(Trial *t, const char *format, ...) {
  va_list rest;
  va_start(rest, format);
  t->size += (size_t)vsnprintf(t->said + t->size, sizeof t->said - t->size, format, rest);
  va_end(rest);
  if (t->size > sizeof t->said - 512) abort();
}

static uint32_t drawn_here(const Trial *t, uint32_t what, uint32_t below) {
  uint32_t seed = t->seed * 31 + (uint32_t)t->n_taken * 7919 + what;
  random_of(&seed, 2);
  return random_of(&seed, below);
}

static int32_t any_id(uint32_t *seed) {
  return (int32_t)random_of(seed, (uint32_t)own.model->config.vocab_size);
}

static Status sink(void *user, int32_t id, TokenReply *reply, Error *err) {
  Trial *t = user;
  say(t, " %d", id);
  for (int i = 0; t->request.generate.score && i <= t->request.generate.n_best; i++)
    say(t, " (%d %a)", t->scores[i].id, t->scores[i].log_p);
  t->n_taken++;
  if (t->n_taken == t->fails_at) return error_set(err, STATUS_FAILED, "the sink fails at %d", t->n_taken);
  reply->stop = t->n_taken == t->stops_at;
  if (t->n_coming > 0 && --t->n_coming > 0) return STATUS_OK;
  t->interrupted |= t->interrupted_at > 0 && t->n_taken >= t->interrupted_at;
  if (!t->request.generate.may_force || t->interrupted || drawn_here(t, 1, 4)) return STATUS_OK;
  uint32_t seed = t->seed + (uint32_t)t->n_taken;
  t->n_coming = reply->n_forced = 1 + (int)random_of(&seed, MOST_FORCED);
  for (int i = 0; i < reply->n_forced; i++) t->forced[i] = any_id(&seed);
  reply->forced = t->forced;
  return STATUS_OK;
}

static Status allow(void *user, const uint64_t **mask, Error *err) {
  Trial *t = user;
  uint32_t seed = t->seed * 3 + (uint32_t)t->n_taken;
  const int n = own.model->config.vocab_size;
  const int n_ctx =
      t->request.n_ctx ? t->request.n_ctx : N_CTX; /* at its end a mask may be asked for, or not */
  if (t->n_taken + 1 == t->fails_at && t->seed % 2 && t->request.n_ids + t->n_taken < n_ctx)
    return error_set(err, STATUS_FAILED, "no mask");
  memset(t->mask, 0, sizeof t->mask);
  for (int i = 0; i < 9; i++) {
    const int id = (int)random_of(&seed, (uint32_t)n);
    t->mask[id / 64] |= UINT64_C(1) << id % 64;
  }
  t->mask[(n - 1) / 64] |= UINT64_C(1) << (n - 1) % 64;
  *mask = drawn_here(t, 2, 3) ? t->mask : NULL;
  return STATUS_OK;
}

static Status score(void *user, const TokenScore *scores, Error *err) {
  Trial *t = user;
  (void)err;
  memcpy(t->scores, scores, ((size_t)t->request.generate.n_best + 1) * sizeof *scores);
  return STATUS_OK;
}

/* Prompts begin alike, so that keys of others serve. */
static void draw(Trial *t, uint32_t seed) {
  uint32_t s = seed, shared = seed % 3;
  *t = (Trial){.seed = seed, .fails_at = -1, .stops_at = -1, .interrupted_at = -1};
  EngineRequest *r = &t->request;
  r->n_ids = 1 + (int)random_of(&s, MOST_IDS);
  if (random_of(&s, 20) == 0) r->n_ids = MOST_IDS;
  const int n_shared = (int)random_of(&s, MOST_IDS);
  for (int i = 0; i < MOST_IDS; i++) t->ids[i] = any_id(i < n_shared ? &shared : &s);
  for (int i = 0; i < 2; i++) t->eos[i] = any_id(&s);
  for (int i = 0; i < MOST_FORCED; i++) t->first[i] = any_id(&s);
  t->sampler = (SamplerSettings){.temperature = random_of(&s, 2) ? 1.5 : 0,
                                 .top_k = random_of(&s, 3) ? 0 : 5,
                                 .top_p = random_of(&s, 3) ? 1 : 0.9,
                                 .min_p = random_of(&s, 3) ? 0 : 0.01,
                                 .repetition_penalty = random_of(&s, 3) ? 1 : 1.3,
                                 .presence_penalty = random_of(&s, 3) ? 0 : 0.5,
                                 .frequency_penalty = random_of(&s, 3) ? 0 : 0.25,
                                 .seed = s};
  GenerateOptions *g = &r->generate;
  const bool lockstep = random_of(&s, 2);
  *g = (GenerateOptions){.max_tokens = (int)random_of(&s, 14) - 1,
                         .eos = t->eos,
                         .n_eos = (int)random_of(&s, 3),
                         .ignore_eos = random_of(&s, 4) == 0,
                         .may_force = lockstep && random_of(&s, 2),
                         .allow = lockstep && random_of(&s, 2) ? allow : NULL,
                         .forced = t->first,
                         .n_forced = random_of(&s, 3) ? 0 : 1 + (int)random_of(&s, MOST_FORCED),
                         .score = random_of(&s, 3) ? NULL : score,
                         .n_best = (int)random_of(&s, 4),
                         .interrupted = &t->interrupted};
  if (g->max_tokens >= 0 && g->n_forced > g->max_tokens) g->n_forced = g->max_tokens;
  t->n_coming = g->n_forced;
  if (random_of(&s, 5) == 0 && r->n_ids > 4) {
    r->n_scored = 1 + (int)random_of(&s, 4);
    *g = (GenerateOptions){.max_tokens = 0};
  }
  if (random_of(&s, 3) == 0) { /* the same prompt again, to be scored or gone on from */
    memcpy(t->ids, (const int32_t[]){9, 8, 7, 6, 5, 4, 3, 2}, 8 * sizeof *t->ids);
    r->n_ids = 8 + r->n_scored;
  }
  if (random_of(&s, 4) == 0) t->fails_at = 1 + (int)random_of(&s, 6);
  if (random_of(&s, 4) == 0) t->stops_at = 1 + (int)random_of(&s, 6);
  if (random_of(&s, 4) == 0 && (g->allow || g->may_force)) t->interrupted_at = 1 + (int)random_of(&s, 6);
  if (random_of(&s, 4) == 0) r->n_ctx = 10 + (int)random_of(&s, 30);
  r->ids = t->ids, r->sampler = &t->sampler, r->sink = sink, r->log_p = t->log_p, r->user = t;
}

/* Requests of one caller, in their order. */
typedef struct {
  Trial *trials;
  int n, n_next, n_at_once;
} Requests;

static Status next(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Requests *r = user;
  (void)may_wait, (void)err;
  *found = r->n_next < r->n;
  if (!*found) return STATUS_OK;
  Trial *t = r->trials + r->n_next++;
  int n_running = 1;
  for (int i = 0; i + 1 < r->n_next; i++) n_running += r->trials[i].n_done == 0;
  t->is_wrong |= r->n_at_once && n_running > r->n_at_once;
  *request = t->request;
  request->alone = r->n_at_once == 1;
  return STATUS_OK;
}

static Status done(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  Trial *t = request->user;
  (void)user, (void)err;
  say(t, "\nstatus %d reason %d tokens %d %s", result->status,
      result->status ? FINISH_LENGTH : result->generated.reason, result->generated.n_generated,
      result->status ? result->error.text : "");
  for (int i = 0; result->status == STATUS_OK && i < request->n_scored; i++) say(t, " %a", t->log_p[i]);
  t->is_wrong |= result->n_reused < 0 || result->n_reused > request->n_ids ||
                 (t->n_taken > MOST_FORCED && result->prefill_ms <= 0) || result->generated.decode_ms < 0;
  t->n_done++;
  return STATUS_OK;
}

static Status done_alone(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  (void)user, (void)request, (void)err;
  assert_int_equal(result->status, STATUS_OK);
  assert_int_equal(result->generated.reason, FINISH_LENGTH);
  return STATUS_OK;
}

static void progress(void *user, const EngineRequest *request, const EngineResult *result, int n, int total) {
  Trial *t = request->user;
  (void)user;
  t->is_wrong |= n > total || n < 0 || total > request->n_ids + t->n_taken || result->prefill_ms < 0;
}

static Remote *greet(int n_ctx, int seconds) {
  Error err = {{0}};
  bool silent;
  Remote *remote;
  if (keep_find(&flags, own.model, n_ctx, seconds, &remote, &silent, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  assert_false(silent);
  return remote;
}

/* Starts the process, before this one has any threads; and what it is to be compared with. */
static void start(const char *model, int keep_seconds) {
  Error err = {{0}};
  flags = (AssistantFlags)ASSISTANT_DEFAULTS;
  flags.model.path = model;
  flags.answer.context = N_CTX;
  flags.device.threads = 1;
  flags.keep.time = "0";
  holder = fork();
  assert_true(holder >= 0);
  if (holder == 0) {
    const HolderOptions options = {.keep_seconds = keep_seconds};
    Assistant assistant = {0};
    if (!freopen("/dev/null", "w", stderr) || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) _exit(99);
    const Status status = holder_run(&flags, &options, &assistant, &err);
    assistant_release(&assistant);
    _exit((int)status);
  }
  if (assistant_open(&flags, &own, &err) || assistant_start_many(&own, 4, &err)) fail_msg("%s", err.text);
  const double began = clock_ms();
  Remote *remote;
  while (!(remote = greet(0, -1))) {
    assert_true(clock_ms() - began < 30000);
    usleep(10000);
  }
  remote_close(remote);
}

/* Waits for the process, which ends with this status. */
static void await_end_of_holder(int expected) {
  int status;
  assert_int_equal(waitpid(holder, &status, 0), holder);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), expected);
  assert_null(greet(0, -1));
  assistant_release(&own);
  own = (Assistant){0};
}

/* The one process's answer. */
typedef struct {
  WireKind kind;
  WireStop stop;
  WireState state;
  int n;
  bool ended;
} Told;

static Status tell_one(void *user, const char *path, int socket, Error *err) {
  Told *told = user;
  Wire wire = wire_on(socket);
  KeepReply reply;
  (void)path;
  const Status status =
      keep_tell(&wire, told->kind, told->kind == WIRE_STOP ? &told->stop : NULL, &told->state, &reply, err);
  if (reply == KEEP_REPLIED) told->n++;
  wire_close(&wire);
  return status;
}

static WireState tell(WireKind kind, bool if_idle) {
  Told told = {.kind = kind, .stop = {.if_idle = if_idle}};
  Error err = {{0}};
  assert_int_equal(keep_each(tell_one, &told, &err), STATUS_OK);
  assert_int_equal(told.n, 1);
  return told.state;
}

/* Its state once it has noticed how many calls are connected. */
static WireState tell_of_calls(int n_calls) {
  const double began = clock_ms();
  WireState said;
  while ((said = tell(WIRE_LOOK, false)).n_calls != n_calls || (n_calls == 0 && said.n_running)) {
    assert_true(clock_ms() - began < 10000);
    usleep(5000);
  }
  return said;
}

typedef struct {
  Trial *trials;
  int index;
  bool alone;
  Error err;
} Caller;

static void *call(void *user) {
  Caller *caller = user;
  uint32_t seed = (uint32_t)caller->index;
  Remote *remote = greet(0, -1);
  for (int i = 0; i < N_TRIALS && !*caller->err.text;) {
    Requests requests = {.trials = caller->trials + i, .n = 1 + (int)random_of(&seed, 8)};
    if (i + requests.n > N_TRIALS) requests.n = N_TRIALS - i;
    const EngineJob job = {.next = next, .done = done, .progress = progress, .user = &requests};
    const int n_at_once = caller->alone && random_of(&seed, 2) ? 1 : 1 + (int)random_of(&seed, 5);
    requests.n_at_once = n_at_once;
    (void)remote_run(remote, n_at_once, &job, &caller->err);
    i += requests.n;
  }
  remote_close(remote);
  return NULL;
}

static void expect_same(const Trial *t, uint32_t seed) {
  static Trial expected;
  Error err = {{0}};
  draw(&expected, seed);
  Requests requests = {.trials = &expected, .n = 1};
  const EngineJob job = {.next = next, .done = done, .progress = progress, .user = &requests};
  if (engine_run(own.engine, &job, &err)) fail_msg("%s", err.text);
  if (strcmp(t->said, expected.said) != 0)
    fail_msg("request %u: %s\nexpected %s", seed, t->said, expected.said);
  assert_int_equal(t->n_done, 1);
  assert_false(t->is_wrong);
}

static void random_calls_get_what_they_would_by_themselves(void **state) {
  static const char *const models[] = {"test/data/stories260K-awq", "test/data/miniatures/lfm2-awq"};
  static Trial trials[N_CALLERS][N_TRIALS];
  for (int m = 0; m < 2; m++) {
    start(models[m], 60);
    for (int n_callers = 1; n_callers <= N_CALLERS; n_callers += N_CALLERS - 1) {
      pthread_t threads[N_CALLERS];
      Caller callers[N_CALLERS];
      const uint64_t before = tell(WIRE_LOOK, false).n_answered;
      for (int c = 0; c < n_callers; c++) {
        for (int i = 0; i < N_TRIALS; i++)
          draw(&trials[c][i], (uint32_t)(n_callers * 1000 + c * N_TRIALS + i));
        callers[c] = (Caller){.trials = trials[c], .index = c, .alone = c < 2};
        assert_int_equal(pthread_create(&threads[c], NULL, call, &callers[c]), 0);
      }
      for (int c = 0; c < n_callers; c++) assert_int_equal(pthread_join(threads[c], NULL), 0);
      for (int c = 0; c < n_callers; c++) {
        assert_string_equal(callers[c].err.text, "");
        for (int i = 0; i < N_TRIALS; i++)
          expect_same(&trials[c][i], (uint32_t)(n_callers * 1000 + c * N_TRIALS + i));
      }
      const WireState said = tell_of_calls(0);
      assert_true(said.n_answered - before <= (uint64_t)n_callers * N_TRIALS && said.n_answered > before);
    }
    assert_true(tell(WIRE_STOP, true).stops);
    await_end_of_holder(STATUS_OK);
  }
}

/* --- what it says of itself */

static void others_are_refused(const WireState *facts) {
  Error err = {{0}};
  assert_int_equal(facts->pid, holder);
  assert_int_equal(facts->n_ctx, N_CTX);
  assert_int_equal(facts->vocab_size, own.model->config.vocab_size);
  assert_int_equal(facts->guesses, own.session_options.n_guesses > 0);
  assert_string_equal(facts->backend, "cpu");
  assert_null(greet(N_CTX + 1, -1));
  flags.device.kv = !flags.device.kv;
  assert_null(greet(0, -1));
  flags.device.kv = !flags.device.kv;
  /* another key whose hash is the same */
  char *directory, *path;
  Buffer key = {0};
  int socket;
  bool silent;
  Remote *remote;
  assert_int_equal(keep_directory(false, &directory, &err), STATUS_OK);
  assert_int_equal(keep_key(&flags, own.model, &key, &err), STATUS_OK);
  assert_int_equal(keep_path(directory, &key, ".sock", &path, &err), STATUS_OK);
  for (int i = 0; i < 3; i++) {
    const Buffer other = {.data = key.data, .size = key.size - (i == 1)};
    if (i == 2) key.data[key.size - 1]++;
    assert_int_equal(keep_connect(path, &socket, &err), STATUS_OK);
    assert_int_equal(remote_open(socket, &other, &(WireHello){-1, 0}, &remote, &silent, &err), STATUS_OK);
    assert_int_equal(remote != NULL, i == 0);
    remote_close(remote);
  }
  assert_int_equal(keep_holder(path), holder);
  free(path);
  free(directory);
  buffer_release(&key);
}

/* In the middle of the only answer: another call asks how the process is, and ends it, after that answer. */
static Status ask_in_the_middle(void *user, int32_t id, TokenReply *reply, Error *err) {
  int *n_taken = user;
  (void)id, (void)reply, (void)err;
  if (++*n_taken != 2) return STATUS_OK;
  const WireState before = tell(WIRE_STOP, true);
  assert_false(before.stops); /* it has a call */
  assert_int_equal(before.n_calls, 1);
  assert_int_equal(before.n_running, 1);
  assert_int_equal(before.n_answered, 0);
  assert_int_equal(before.left_seconds, -1);
  assert_true(tell(WIRE_STOP, false).stops);
  assert_true(tell(WIRE_LOOK, false).stops);
  assert_null(greet(0, -1));
  return STATUS_OK;
}

static void it_says_how_it_is_and_ends_after_its_answers(void **state) {
  static const int32_t ids[] = {1, 2, 3};
  static const SamplerSettings greedy = {.top_p = 1, .repetition_penalty = 1};
  int n_taken = 0;
  Error err = {{0}};
  const int64_t began = (int64_t)time(NULL);
  start("test/data/stories260K-awq", 60);
  Remote *remote = greet(N_CTX, -1);
  assert_non_null(remote);
  others_are_refused(remote_facts(remote));
  struct stat image;
  assert_int_equal(fstat(remote_image(remote), &image), 0);
  assert_true(image.st_size > 0);
  WireState said = tell_of_calls(1);
  assert_int_equal(said.keep_seconds, 60);
  assert_int_equal(said.n_ctx, N_CTX);
  assert_int_equal(said.n_sequences, remote_facts(remote)->n_sequences);
  assert_true(said.since >= began && said.since <= (int64_t)time(NULL));
  assert_true(said.memory_bytes > 1 << 20 && said.memory_bytes < UINT64_C(1) << 31);
  assert_string_equal(said.backend, "cpu");
  assert_string_equal(said.model, own.place.name);
  Remote *second = greet(0, 0);
  assert_int_equal(tell_of_calls(2).keep_seconds, 0);
  remote_close(second);
  remote_close(greet(0, 77));
  said = tell_of_calls(1);
  assert_int_equal(said.keep_seconds, 77);
  assert_true(remote_is_alive(remote));
  remote_close(remote);
  said = tell_of_calls(0);
  assert_true(said.left_seconds >= 70 && said.left_seconds <= 77);
  assert_false(said.stops);
  remote = greet(0, -1);
  tell_of_calls(1);
  Trial trial = {.request = {.ids = ids,
                             .n_ids = 3,
                             .sampler = &greedy,
                             .generate = {.max_tokens = 4, .ignore_eos = true, .may_force = true},
                             .sink = ask_in_the_middle,
                             .user = &n_taken}};
  Requests requests = {.trials = &trial, .n = 1};
  const EngineJob job = {.next = next, .done = done_alone, .user = &requests};
  assert_int_equal(remote_run(remote, 1, &job, &err), STATUS_OK);
  assert_int_equal(n_taken, 4);
  await_end_of_holder(STATUS_OK);
  assert_false(remote_is_alive(remote));
  remote_close(remote);
}

/* Unused from its beginning, or after its last call, which may say how long. */
static void it_ends_when_it_is_unused(void **state) {
  for (int again = 0; again < 2; again++) {
    start("test/data/stories260K-awq", again ? 60 : 1);
    const double began = clock_ms();
    if (again) remote_close(greet(0, 1));
    await_end_of_holder(STATUS_OK);
    const double took = clock_ms() - began;
    assert_true(took > 500 && took < 8000);
  }
}

/* At its end the process removes its name, unless another one has it by then. */
static void a_name_that_is_another_s_stays(void **state) {
  for (int replaced = 0; replaced < 2; replaced++) {
    char *directory, *path, other[200];
    Buffer key = {0};
    Error err = {{0}};
    start("test/data/stories260K-awq", 60);
    Remote *remote = greet(0, 0);
    assert_non_null(remote);
    assert_int_equal(keep_directory(false, &directory, &err), STATUS_OK);
    assert_int_equal(keep_key(&flags, own.model, &key, &err), STATUS_OK);
    assert_int_equal(keep_path(directory, &key, ".sock", &path, &err), STATUS_OK);
    assert_int_equal(access(path, F_OK), 0);
    if (replaced) {
      snprintf(other, sizeof other, "%s/other", folder);
      FILE *file = fopen(other, "w");
      assert_non_null(file);
      fclose(file);
      assert_int_equal(rename(other, path), 0);
    }
    remote_close(remote);
    int status;
    assert_int_equal(waitpid(holder, &status, 0), holder);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_OK);
    assert_int_equal(access(path, F_OK) == 0, replaced);
    unlink(path);
    assistant_release(&own);
    own = (Assistant){0};
    free(path);
    free(directory);
    buffer_release(&key);
  }
}

int main(void) {
  char text[] = "/tmp/aukXXXXXX";
  folder = mkdtemp(text);
  if (!folder || setenv("XDG_RUNTIME_DIR", folder, 1) != 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_calls_get_what_they_would_by_themselves),
      cmocka_unit_test(it_says_how_it_is_and_ends_after_its_answers),
      cmocka_unit_test(it_ends_when_it_is_unused),
      cmocka_unit_test(a_name_that_is_another_s_stays),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) ? 1 : failed;
}
