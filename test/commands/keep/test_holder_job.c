/* test_holder_job.c - requests of calls to a process that keeps a model, here in one process: which messages
 * are refused, whose request is next, and whose places are given to others. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands/keep/holder_internal.h"
#include "test/tests.h"

enum { LONG_AGO_MS = 6000 };

static AssistantFlags flags;
static Assistant assistant;
static Holder holder;
static volatile int interrupted;
static int vocab_size;

static void interrupt(int number) {
  (void)number;
  interrupted = 1;
}

static int open_holder(void **state) {
  Error err = {{0}};
  flags = (AssistantFlags)ASSISTANT_DEFAULTS;
  flags.model.path = "test/data/stories260K-awq";
  flags.answer.context = 200;
  flags.device.threads = 1;
  if (assistant_open(&flags, &assistant, &err) || assistant_start_holder(&assistant, &err))
    fail_msg("%s", err.text);
  assistant_heed(&assistant, &interrupted);
  vocab_size = assistant.model->config.vocab_size;
  signal(SIGALRM, interrupt);
  return 0;
}

static int close_holder(void **state) {
  assistant_release(&assistant);
  return 0;
}

/* Begins anew with calls whose other ends are sockets[i]; a socket may serve several. */
static void begin(int n_callers, const int sockets[]) {
  interrupted = 0;
  holder = (Holder){.assistant = &assistant, .listener = -1, .image = -1};
  holder.callers = calloc((size_t)n_callers, sizeof(Caller *));
  assert_non_null(holder.callers);
  for (int i = 0; i < n_callers; i++) {
    Caller *caller = holder.callers[i] = calloc(1, sizeof *caller);
    assert_non_null(caller);
    caller->wire = wire_on(dup(sockets[i]));
    caller->greeted = true;
    holder.n_callers++;
  }
}

static void end(void) {
  while (holder.n_callers > 0) {
    Caller *caller = holder.callers[--holder.n_callers];
    holder_drop(&holder, caller);
    wire_close(&caller->wire);
    free(caller);
  }
  assert_int_equal(holder.n_requests, 0);
  free(holder.callers);
  free(holder.requests);
}

/* Gives the holder a message; false: it breaks the rules. */
static bool take(Caller *caller, WireKind kind, const void *body, size_t size) {
  Error err;
  bool broken;
  assert_int_equal(holder_take_request(&holder, caller, kind, body, size, &broken, &err), STATUS_OK);
  return !broken;
}

typedef struct {
  WireAsk ask;
  int32_t ids[4];
} Ask;

static Ask ask_of(uint32_t id, bool lockstep) {
  Ask made;
  memset(&made, 0, sizeof made);
  made.ask = (WireAsk){.id = id,
                       .n_ids = 3,
                       .max_tokens = 4,
                       .ignore_eos = true,
                       .lockstep = lockstep,
                       .sampler = {.top_p = 1, .repetition_penalty = 1}};
  for (int i = 0; i < 3; i++) made.ids[i] = 1 + i;
  return made;
}

static void ask(Caller *caller, uint32_t id, bool lockstep) {
  const Ask made = ask_of(id, lockstep);
  assert_true(take(caller, WIRE_ASK, &made, sizeof made.ask + 3 * sizeof *made.ids));
}

TEST(counts_of_a_request_fit_its_ids) {
  static const struct {
    int n_ids, n_eos, n_forced, n_scored, n_best, n_sent;
    bool fits;
  } cases[] = {
      {3, 0, 0, 0, 0, 3, true},         {1, 1, 1, 0, 0, 3, true},   {3, 0, 0, 3, 0, 3, true},
      {3, 0, 0, 0, MOST_BEST, 3, true}, {3, 0, 0, 0, 0, 4, false},  {3, 0, 0, 0, 0, 2, false},
      {0, 3, 0, 0, 0, 3, false},        {4, -1, 0, 0, 0, 3, false}, {4, 0, -1, 0, 0, 3, false},
      {3, 0, 0, 4, 0, 3, false},        {3, 0, 0, -1, 0, 3, false}, {3, 0, 0, 0, MOST_BEST + 1, 3, false},
      {3, 0, 0, 0, -1, 3, false},
  };
  const int none[] = {-1};
  begin(1, none);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Ask made = ask_of((uint32_t)i, false);
    made.ask.n_ids = cases[i].n_ids, made.ask.n_eos = cases[i].n_eos, made.ask.n_forced = cases[i].n_forced;
    made.ask.n_scored = cases[i].n_scored, made.ask.n_best = cases[i].n_best;
    const size_t size = sizeof made.ask + (size_t)cases[i].n_sent * sizeof *made.ids;
    assert_int_equal(take(holder.callers[0], WIRE_ASK, &made, size), cases[i].fits);
  }
  assert_int_equal(holder.n_requests, 4);
  assert_false(take(holder.callers[0], WIRE_ASK, &(WireAsk){.n_ids = 1}, sizeof(WireAsk) - 1));
  end();
}

TEST(a_request_has_tokens_of_the_model) {
  const int none[] = {-1};
  const int32_t tokens[] = {-1, 0, vocab_size - 1, vocab_size, INT32_MIN, INT32_MAX};
  begin(1, none);
  for (int place = 0; place < 3; place++)
    for (int i = 0; i < 6; i++) {
      Ask made = ask_of((uint32_t)i, false);
      made.ask.n_ids = made.ask.n_eos = made.ask.n_forced = 1;
      made.ids[place] = tokens[i];
      assert_int_equal(take(holder.callers[0], WIRE_ASK, &made, sizeof made.ask + 3 * sizeof *made.ids),
                       place == 1 || (tokens[i] >= 0 && tokens[i] < vocab_size)); /* 1: an end token */
    }
  end();
}

TEST(a_reply_has_tokens_of_the_model) {
  const int none[] = {-1};
  const int32_t tokens[] = {-1, 0, vocab_size - 1, vocab_size};
  struct {
    WireReply reply;
    int32_t ids[2];
  } sent;
  begin(1, none);
  memset(&sent, 0, sizeof sent);
  for (uint32_t i = 0; i < 4; i++) {
    ask(holder.callers[0], i, true);
    sent.reply = (WireReply){.id = i, .n_forced = 1};
    sent.ids[0] = tokens[i];
    const size_t size = sizeof sent.reply + sizeof *sent.ids;
    assert_false(take(holder.callers[0], WIRE_REPLY, &sent, size + sizeof *sent.ids));
    assert_int_equal(take(holder.callers[0], WIRE_REPLY, &sent, size),
                     tokens[i] >= 0 && tokens[i] < vocab_size);
  }
  sent.reply.id = 1; /* it does not await another */
  assert_false(take(holder.callers[0], WIRE_REPLY, &sent, sizeof sent.reply + sizeof *sent.ids));
  sent.reply.id = 9; /* done before */
  assert_true(take(holder.callers[0], WIRE_REPLY, &sent, sizeof sent.reply));
  end();
}

/* The next message's kind at the other end, and the request that it is of. */
static WireKind hear(int socket, uint32_t *id) {
  char body[4096];
  WireHead head;
  assert_int_equal(recv(socket, &head, sizeof head, MSG_WAITALL), sizeof head);
  assert_true(head.size >= sizeof *id && head.size <= sizeof body);
  assert_int_equal(recv(socket, body, head.size, MSG_WAITALL), head.size);
  memcpy(id, body, sizeof *id);
  return (WireKind)head.kind;
}

/* A call by itself would compute its prompt in a step that a session does not count. */
TEST(the_step_of_a_prompt_is_not_counted_for_a_lone_call) {
  for (int alone = 0; alone < 2; alone++) {
    int sockets[2];
    WireHead head = {0};
    WireResult got = {0};
    Error err = {{0}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    begin(1, sockets);
    Ask made = ask_of(1, false);
    made.ask.alone = alone;
    assert_true(take(holder.callers[0], WIRE_ASK, &made, sizeof made.ask + 3 * sizeof *made.ids));
    if (holder_compute(&holder, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK);
    while (head.kind != WIRE_DONE) {
      assert_int_equal(recv(sockets[1], &head, sizeof head, MSG_WAITALL), sizeof head);
      assert_int_equal(recv(sockets[1], &got, head.size, MSG_WAITALL), head.size);
    }
    assert_int_equal(got.result.status, STATUS_OK);
    assert_int_equal(got.result.generated.guesses.n_steps,
                     4 - got.result.generated.guesses.n_accepted - alone);
    end();
    for (int i = 0; i < 2; i++) close(sockets[i]);
  }
}

/* One call asks for all places and more, then another for one: it has to wait for no more than a place. */
TEST(a_call_with_one_request_waits_for_none_of_many) {
  int sockets[2];
  uint32_t id;
  Error err = {{0}};
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  begin(2, (const int[]){sockets[0], sockets[0]}); /* one socket, so that the order is seen */
  const int n = assistant.batch_options.n_sequences, n_many = 3 * n;
  for (int i = 0; i < n_many; i++) ask(holder.callers[0], (uint32_t)i, false);
  ask(holder.callers[1], 1000, false);
  if (holder_compute(&holder, &err) != STATUS_OK) fail_msg("%s", err.text);
  int n_done = 0, place = -1;
  while (n_done < n_many + 1) {
    assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK); /* sends what is left */
    if (hear(sockets[1], &id) == WIRE_DONE) {
      if (id == 1000) place = n_done;
      n_done++;
    }
  }
  assert_true(place >= 0 && place < n);
  end();
  close(sockets[0]);
  close(sockets[1]);
}

/* Requests that are as good as one another get places in the order in which they came: those of one call, and
 * of calls that take turns. Which of the places ends first is another matter. */
TEST(requests_are_answered_in_their_order) {
  for (int n_callers = 1; n_callers <= 2; n_callers++) {
    int sockets[2];
    uint32_t id;
    Error err = {{0}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    begin(n_callers, (const int[]){sockets[0], sockets[0]});
    const int n = 3 * assistant.batch_options.n_sequences;
    for (int i = 0; i < n; i++) ask(holder.callers[i % n_callers], (uint32_t)i, false);
    if (holder_compute(&holder, &err) != STATUS_OK) fail_msg("%s", err.text);
    for (int i = 0; i < n;) {
      assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK);
      if (hear(sockets[1], &id) == WIRE_DONE) assert_true(abs((int)id - i++) < n / 3);
    }
    end();
    close(sockets[0]);
    close(sockets[1]);
  }
}

/* The other end of a call that cancels each request but the last when it has its first token. Returns the
 * number of requests that are done. */
static int cancel_all_but_one(int socket, int n) {
  uint32_t id;
  for (int n_done = 0;;) {
    const WireKind kind = hear(socket, &id);
    if (kind == WIRE_DONE && ++n_done && id == (uint32_t)n - 1) return n_done;
    if (kind != WIRE_TOKEN || id == (uint32_t)n - 1) continue;
    const WireHead head = {WIRE_CANCEL, sizeof id};
    if (send(socket, &head, sizeof head, MSG_NOSIGNAL) < 0 || send(socket, &id, sizeof id, MSG_NOSIGNAL) < 0)
      return 0;
  }
}

/* Requests that are cancelled while they are computed count no more for their call. */
TEST(cancelled_requests_take_no_place) {
  int sockets[2], status = 0;
  Error err = {{0}};
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  begin(1, sockets);
  const int n = assistant.batch_options.n_sequences < 4 ? assistant.batch_options.n_sequences : 4;
  for (int i = 0; i < n; i++) {
    Ask made = ask_of((uint32_t)i, false);
    made.ask.max_tokens = 150;
    assert_true(take(holder.callers[0], WIRE_ASK, &made, sizeof made.ask + 3 * sizeof *made.ids));
  }
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(cancel_all_but_one(sockets[1], n));
  if (holder_compute(&holder, &err) != STATUS_OK) fail_msg("%s", err.text);
  while (holder.callers[0]->wire.out.size > 0) assert_int_equal(holder_listen(&holder, 10, &err), STATUS_OK);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) >= 1 && WEXITSTATUS(status) < n);
  assert_int_equal(holder.callers[0]->n_running, 0);
  assert_int_equal(holder.n_running, 0);
  end();
  close(sockets[0]);
  close(sockets[1]);
}

/* A call in lockstep that does not reply is dropped where another call needs its places, not for its own
 * requests. */
TEST(places_are_given_to_other_calls) {
  for (int others = 0; others < 2; others++) {
    int sleeper[2], other[2];
    uint32_t id;
    Error err = {{0}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sleeper), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
    begin(2, (const int[]){sleeper[0], other[0]});
    const int n = assistant.batch_options.n_sequences;
    for (int i = 0; i <= n; i++) ask(holder.callers[0], (uint32_t)i, true);
    for (size_t i = 0; i < holder.n_requests; i++) holder.requests[i]->asked_ms -= LONG_AGO_MS;
    for (int i = 0; others && i < n; i++) ask(holder.callers[1], (uint32_t)i, false);
    if (!others) ualarm(300000, 0); /* nothing else ends it */
    assert_int_equal(holder_compute(&holder, &err), others ? STATUS_OK : STATUS_INTERRUPTED);
    assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK);
    assert_int_equal(holder.n_callers, others ? 1 : 2);
    if (others) assert_int_equal(hear(sleeper[1], &id), WIRE_REFUSED);
    if (!others) assert_int_equal(recv(sleeper[1], &id, 1, MSG_DONTWAIT), -1);
    end();
    for (int i = 0; i < 2; i++) close(sleeper[i]), close(other[i]);
  }
}

/* Who does not greet is dropped after two seconds, unless it has ended the process and waits for that. */
TEST(who_ends_the_process_may_wait) {
  for (int stops = 1; stops >= 0; stops--) {
    int sockets[2];
    Error err;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    begin(1, sockets);
    holder.stops = stops;
    holder.callers[0]->greeted = false;
    holder.callers[0]->heard_ms = clock_ms() - 1000;
    assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK);
    assert_int_equal(holder.n_callers, 1);
    holder.callers[0]->heard_ms = clock_ms() - 3000;
    assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK);
    assert_int_equal(holder.n_callers, stops);
    end();
    for (int i = 0; i < 2; i++) close(sockets[i]);
  }
}

static Status no_memory(const Model *model, const BackendOptions *options, DeviceMemory *memory, Error *err) {
  (void)model, (void)options, (void)memory;
  return error_set(err, STATUS_FAILED, "not asked for");
}

/* Where the bits of a row depend on its step, a lone call gets what it would compute by itself: of another
 * call's tokens it reuses only whole chunks that were computed as a prompt, in chunks from the first token
 * on. Calls take turns at random, with prompts that go on from one another's texts. */
TEST(a_lone_call_reuses_what_it_would_compute_itself) {
  enum { CHUNK = 8, LONGEST = 60, N = 150 };
  const Backend *cpu = assistant.device.backend;
  Backend other = *cpu;
  Error err = {{0}};
  int sockets[2], n_plain = 0, owner = -1;
  int32_t held[LONGEST + 8];
  uint32_t seed = 7;
  other.memory = no_memory, other.chunk = CHUNK;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const SessionOptions options = {
      .n_ctx = 200, .chunk = CHUNK, .sampler = {.top_p = 1, .repetition_penalty = 1}};
  Engine *const batch = assistant.engine;
  const EngineOptions with_session = {.session = &options};
  if (engine_open(&other, assistant.device.loaded, assistant.model, &with_session, &assistant.engine, &err))
    fail_msg("%s", err.text);
  begin(2, (const int[]){sockets[0], sockets[0]});
  int n_held = 0;
  for (int i = 0; i < N; i++) {
    struct {
      WireAsk ask;
      int32_t ids[LONGEST];
    } sent;
    WireResult got = {0};
    memset(&sent, 0, sizeof sent);
    seed = seed * 1664525 + 1013904223;
    const int n = 1 + (int)(seed >> 8) % LONGEST, n_same = (int)(seed >> 16) % (n_held + 1),
              who = seed >> 30 & 1;
    const int kept = seed >> 29 & 1 ? n_held : n_same;
    for (int j = 0; j < n; j++) sent.ids[j] = j < kept ? held[j] : 3 + (int)((seed >> j % 20) % 400);
    sent.ask = (WireAsk){.id = (uint32_t)i,
                         .n_ids = n,
                         .max_tokens = 1 + (int)(seed >> 5) % 4,
                         .ignore_eos = true,
                         .alone = true,
                         .sampler = {.top_p = 1, .repetition_penalty = 1}};
    int common = 0;
    while (common < n_held && common < n - 1 && held[common] == sent.ids[common]) common++;
    if (owner != who) common = (common < n_plain ? common : n_plain) / CHUNK * CHUNK;
    if (common <= n_plain && common % CHUNK == 0) n_plain = n - 1;
    if (common < n_plain && common % CHUNK) n_plain = common;
    owner = who;
    assert_true(take(holder.callers[who], WIRE_ASK, &sent, sizeof sent.ask + (size_t)n * sizeof *sent.ids));
    if (holder_compute(&holder, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK);
    for (WireHead head = {0}; head.kind != WIRE_DONE;) {
      assert_int_equal(recv(sockets[1], &head, sizeof head, MSG_WAITALL), sizeof head);
      assert_int_equal(recv(sockets[1], &got, head.size, MSG_WAITALL), head.size);
    }
    assert_int_equal(got.result.status, STATUS_OK);
    if (got.result.n_reused != common)
      fail_msg("%d: %d of %d, expected %d", i, got.result.n_reused, n, common);
    n_held = session_view(engine_session(assistant.engine)).text->n_past;
    memcpy(held, session_view(engine_session(assistant.engine)).text->ids, (size_t)n_held * sizeof *held);
  }
  end();
  engine_close(assistant.engine);
  assistant.engine = batch;
  for (int i = 0; i < 2; i++) close(sockets[i]);
}

/* The tokens of a request that come back until it is done, and which of them are marked as forced. */
static int hear_tokens(int socket, int32_t *tokens, bool *forced) {
  for (int n = 0;;) {
    WireHead head;
    char body[4096];
    WireToken token;
    assert_int_equal(recv(socket, &head, sizeof head, MSG_WAITALL), sizeof head);
    assert_true(head.size <= sizeof body);
    assert_int_equal(recv(socket, body, head.size, MSG_WAITALL), head.size);
    if (head.kind == WIRE_DONE) return n;
    if (head.kind != WIRE_TOKEN) continue;
    memcpy(&token, body, sizeof token);
    tokens[n] = token.token;
    forced[n++] = token.forced;
  }
}

/* Tokens that the request begins with, or that a reply forces, come back marked, and no others. */
TEST(forced_tokens_come_back_marked) {
  enum { MOST = 4 };
  for (int by_reply = 0; by_reply < 2; by_reply++)
    for (int n = 0; n <= 2; n++) {
      int sockets[2];
      int32_t tokens[2 * MOST];
      bool forced[2 * MOST];
      Error err = {{0}};
      if (by_reply && n == 0) continue;
      assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
      begin(1, (const int[]){sockets[0]});
      Ask made = ask_of(1, by_reply);
      made.ask.n_ids = by_reply ? 3 : 3 - n;
      made.ask.n_forced = by_reply ? 0 : n;
      made.ask.max_tokens = by_reply ? n : MOST; /* the end comes before another reply is awaited */
      for (int i = 0; i < 3; i++) made.ids[i] = 11 + i;
      assert_true(take(holder.callers[0], WIRE_ASK, &made, sizeof made.ask + 3 * sizeof *made.ids));
      if (by_reply) {
        struct {
          WireReply reply;
          int32_t ids[2];
        } sent;
        memset(&sent, 0, sizeof sent);
        sent.reply = (WireReply){.id = 1, .n_forced = n};
        sent.ids[0] = 13 - n + 1, sent.ids[1] = 13;
        const size_t size = sizeof sent.reply + (size_t)n * sizeof *sent.ids;
        assert_true(take(holder.callers[0], WIRE_REPLY, &sent, size));
      }
      if (holder_compute(&holder, &err) != STATUS_OK) fail_msg("%s", err.text);
      assert_int_equal(holder_listen(&holder, 0, &err), STATUS_OK);
      assert_int_equal(hear_tokens(sockets[1], tokens, forced), made.ask.max_tokens);
      for (int i = 0; i < made.ask.max_tokens; i++) {
        assert_int_equal(forced[i], i < n);
        if (i < n) assert_int_equal(tokens[i], 13 - n + 1 + i);
      }
      end();
      for (int i = 0; i < 2; i++) close(sockets[i]);
    }
}

static CMFixtureFunction before_all = open_holder, after_all = close_holder;
