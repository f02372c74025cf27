/* remote.c - see remote.h. Called by: answer/assistant.c, start.c, keep.c.
 * Always true: each request that was sent and has not ended has an entry in `asked`. Messages about other
 *              requests are ignored: this client has cancelled those requests. */
#include "commands/keep/remote.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "commands/keep/watch.h"

typedef struct {
  uint32_t id;
  Running run;
  int n_coming; /* forced tokens that the holder was given and has not sent back */
} Asked;

struct Remote {
  Wire wire;
  WireState facts;
  uint32_t n_asked;
  Asked *asked; /* [n] */
  size_t n, capacity;
  Buffer body;
};

const WireState *remote_facts(const Remote *remote) {
  return &remote->facts;
}

bool remote_is_alive(Remote *remote) {
  return wire_receive(&remote->wire, NULL) == STATUS_OK && !remote->wire.ended;
}

int remote_image(const Remote *remote) {
  return remote->wire.descriptor;
}

void remote_close(Remote *remote) {
  if (!remote) return;
  wire_close(&remote->wire);
  buffer_release(&remote->body);
  free(remote->asked);
  free(remote);
}

/* --- greeting */

static Status await_welcome(Remote *r, bool *welcome, bool *silent, Error *err) {
  WireKind kind;
  const char *body;
  size_t size;
  *welcome = false;
  TRY(wire_await(&r->wire, &kind, &body, &size, welcome, silent, err));
  *welcome = *welcome && kind == WIRE_WELCOME && size == sizeof r->facts;
  if (!*welcome) return STATUS_OK;
  memcpy(&r->facts, body, sizeof r->facts);
  r->facts.backend[sizeof r->facts.backend - 1] = 0;
  r->facts.model[sizeof r->facts.model - 1] = 0;
  return STATUS_OK;
}

Status remote_open(int socket, const Buffer *key, const WireHello *hello, Remote **out, bool *silent,
                   Error *err) {
  bool welcome = false;
  *out = NULL;
  *silent = false;
  OWNED(wire_close) Wire wire = wire_on(socket);
  OWNED(remote_release) Remote *r = NULL;
  TRY(NEW(r, 1, "a connection", err));
  r->wire = wire;
  wire = wire_on(-1);
  TRY(wire_put(&r->wire, WIRE_HELLO, hello, sizeof *hello, key->data, key->size, err));
  TRY(await_welcome(r, &welcome, silent, err));
  if (welcome) *out = TAKE(r);
  return STATUS_OK;
}

/* --- asking */

static Status add(Buffer *body, const void *bytes, size_t n, size_t size, Error *err) {
  return n ? buffer_append(body, bytes, n * size, err) : STATUS_OK;
}

/* Sends the forced tokens that the sink has asked for; if there are none, the mask of the next token. */
static Status send_turn(Remote *r, Asked *a, Error *err) {
  const EngineRequest *request = &a->run.request;
  WireReply reply;
  const uint64_t *mask = NULL;
  memset(&reply, 0, sizeof reply);
  reply.id = a->id;
  reply.n_forced = a->run.n_forced;
  if (reply.n_forced == 0 && request->generate.allow) TRY(request->generate.allow(request->user, &mask, err));
  reply.has_mask = mask != NULL;
  r->body.size = 0;
  TRY(add(&r->body, &reply, 1, sizeof reply, err));
  TRY(add(&r->body, a->run.forced, (size_t)reply.n_forced, sizeof(int32_t), err));
  if (mask) TRY(add(&r->body, mask, (size_t)(r->facts.vocab_size + 63) / 64, sizeof *mask, err));
  a->n_coming = reply.n_forced;
  return wire_put(&r->wire, WIRE_REPLY, r->body.data, r->body.size, NULL, 0, err);
}

static bool in_lockstep(const GenerateOptions *options) {
  return options->allow || options->may_force;
}

static Status send_request(Remote *r, const Asked *a, Error *err) {
  static const SamplerSettings greedy = {.top_p = 1, .repetition_penalty = 1};
  const EngineRequest *request = &a->run.request;
  const GenerateOptions *g = &request->generate;
  WireAsk ask;
  memset(&ask, 0, sizeof ask);
  ask.id = a->id;
  ask.n_ids = request->n_ids;
  ask.n_eos = g->n_eos;
  ask.n_forced = g->n_forced;
  ask.n_scored = request->n_scored;
  ask.n_ctx = request->n_ctx;
  ask.max_tokens = g->max_tokens;
  ask.n_best = g->n_best;
  ask.ignore_eos = g->ignore_eos;
  ask.scores = g->score != NULL;
  ask.lockstep = in_lockstep(g);
  ask.alone = request->alone;
  ask.sampler = request->sampler ? *request->sampler : greedy;
  r->body.size = 0;
  TRY(add(&r->body, &ask, 1, sizeof ask, err));
  TRY(add(&r->body, request->ids, (size_t)ask.n_ids, sizeof(int32_t), err));
  TRY(add(&r->body, g->eos, (size_t)ask.n_eos, sizeof(int32_t), err));
  TRY(add(&r->body, g->forced, (size_t)ask.n_forced, sizeof(int32_t), err));
  return wire_put(&r->wire, WIRE_ASK, r->body.data, r->body.size, NULL, 0, err);
}

/* Ends a request and removes its entry; cancel: sends WIRE_CANCEL too. */
static Status end(Remote *r, Asked *a, const EngineJob *job, bool cancel, Error *err) {
  const WireCancel message = {a->id};
  Running ended = a->run;
  GenerateResult *generated = &ended.result.generated;
  running_done(&ended);
  /* The holder does not report the steps of a cancelled request. One step per token is assumed here, with
   * `alone` none for the first token. */
  if (cancel && r->facts.guesses && generated->n_generated > 0)
    generated->guesses.n_steps = generated->n_generated - ended.request.alone;
  *a = r->asked[--r->n];
  if (cancel) TRY(wire_put(&r->wire, WIRE_CANCEL, &message, sizeof message, NULL, 0, err));
  return job->done(job->user, &ended.request, &ended.result, err);
}

/* Sends a request. Errors of its sink and masks end this request alone, as in a batch. */
static Status ask(Remote *r, const EngineRequest *request, const EngineJob *job, Error *err) {
  TRY(mem_grow(&r->asked, &r->capacity, r->n + 1, sizeof *r->asked, "requests", err));
  Asked *a = &r->asked[r->n++];
  *a = (Asked){.id = ++r->n_asked, .n_coming = request->generate.n_forced};
  running_begin(&a->run, request);
  TRY(send_request(r, a, err));
  if (request->n_scored || !in_lockstep(&request->generate) || a->n_coming) return STATUS_OK;
  a->run.result.status = send_turn(r, a, &a->run.result.error);
  return a->run.result.status ? end(r, a, job, true, err) : STATUS_OK;
}

/* --- what comes back */

static Asked *find(Remote *r, uint32_t id) {
  for (size_t i = 0; i < r->n; i++)
    if (r->asked[i].id == id) return &r->asked[i];
  return NULL;
}

static Status broken(Error *err) {
  return error_set(err, STATUS_FAILED,
                   "the process that keeps the model breaks the rules between it and a call");
}

static Status take_token(Remote *r, Asked *a, const char *body, size_t size, Error *err) {
  WireToken message;
  int32_t expected;
  TokenScore scores[MOST_BEST + 1];
  const GenerateOptions *options = &a->run.request.generate;
  const size_t n_scores = options->score ? (size_t)options->n_best + 1 : 0;
  if (size != sizeof message + n_scores * sizeof *scores) return broken(err);
  memcpy(&message, body, sizeof message);
  if (n_scores) memcpy(scores, body + sizeof message, n_scores * sizeof *scores);
  if (message.forced &&
      (a->n_coming-- <= 0 || !running_forced(&a->run, &expected) || expected != message.token))
    return broken(err);
  if (a->run.result.generated.n_generated == 0) a->run.first_ms = clock_ms();
  if (n_scores) TRY(options->score(a->run.request.user, scores, err));
  TRY(running_take(&a->run, message.token, message.forced, true));
  return a->run.state == RUN_ENDED || !in_lockstep(options) || a->n_coming ? STATUS_OK : send_turn(r, a, err);
}

static Status take_result(Remote *r, Asked *a, const EngineJob *job, bool done, const char *body, size_t size,
                          Error *err) {
  WireResult message;
  const size_t log_p_bytes = done ? (size_t)a->run.request.n_scored * sizeof(double) : 0;
  if (size != sizeof message + log_p_bytes) return broken(err);
  memcpy(&message, body, sizeof message);
  message.result.error.text[sizeof message.result.error.text - 1] = 0;
  a->run.result = message.result;
  if (log_p_bytes) memcpy(a->run.request.log_p, body + sizeof message, log_p_bytes);
  if (done) return end(r, a, job, false, err);
  if (job->progress) job->progress(job->user, &a->run.request, &a->run.result, message.done, message.total);
  return STATUS_OK;
}

static Status take(Remote *r, const EngineJob *job, WireKind kind, const char *body, size_t size,
                   Error *err) {
  uint32_t id;
  if (kind == WIRE_REFUSED)
    return error_set(err, STATUS_FAILED, "the process that keeps the model (%d) %.*s", (int)r->facts.pid,
                     (int)size, body);
  if (kind == WIRE_STATE) return STATUS_OK; /* hear_or_fail() asked for the state */
  if (size < sizeof id) return broken(err);
  memcpy(&id, body, sizeof id);
  Asked *a = find(r, id);
  if (!a) return STATUS_OK;
  if (kind == WIRE_PROGRESS || kind == WIRE_DONE)
    return take_result(r, a, job, kind == WIRE_DONE, body, size, err);
  if (kind != WIRE_TOKEN) return broken(err);
  a->run.result.status = take_token(r, a, body, size, &a->run.result.error);
  /* At the length limit the holder ends it. */
  const bool ended = a->run.state == RUN_ENDED && a->run.result.generated.reason != FINISH_LENGTH;
  return a->run.result.status || ended ? end(r, a, job, true, err) : STATUS_OK;
}

/* --- all requests */

typedef struct {
  double heard_ms; /* when the holder's last message came */
  bool asked;      /* the holder's state was asked for since then */
  Watch watch;     /* begun when the state was asked for */
} Hearing;

static Status end_interrupted(Remote *r, const EngineJob *job, Error *err) {
  for (size_t i = r->n; i-- > 0;) {
    Asked *a = &r->asked[i];
    const volatile int *interrupted = a->run.request.generate.interrupted;
    if (!interrupted || !*interrupted) continue;
    a->run.result.generated.reason = FINISH_INTERRUPTED;
    TRY(end(r, a, job, true, err));
  }
  return STATUS_OK;
}

/* To be called when no message came. After a second without a message, asks the holder for its state, which
 * the holder sends between two steps. If the holder is silent even then, fails and treats it as ended. */
static Status hear_or_fail(Remote *r, Hearing *hearing, Error *err) {
  enum { ASK_MS = 1000 };
  if (hearing->asked && watch_is_silent(&hearing->watch, 0)) {
    r->wire.ended = true;
    return watch_failure(hearing->watch.pid, err);
  }
  if (hearing->asked || clock_ms() - hearing->heard_ms < ASK_MS) return STATUS_OK;
  *hearing = (Hearing){.asked = true, .watch = watch_begin(r->wire.socket)};
  return wire_put(&r->wire, WIRE_LOOK, NULL, 0, NULL, 0, err);
}

static Status run(Remote *r, int n_at_once, const EngineJob *job, Error *err) {
  enum { POLL_MS = 100 }; /* a signal between check and wait is noticed this late at most */
  Hearing hearing = {.heard_ms = clock_ms()};
  for (;;) {
    WireKind kind;
    const char *body;
    size_t size;
    bool found = true;
    if (job->interrupted && *job->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    TRY(end_interrupted(r, job, err));
    while (found && r->n < (size_t)n_at_once) {
      EngineRequest request = {0};
      TRY(job->next(job->user, r->n == 0, &request, &found, err));
      if (found) TRY(ask(r, &request, job, err));
    }
    if (r->n == 0) return STATUS_OK;
    bool some = wire_wait(&r->wire, POLL_MS, &kind, &body, &size, err);
    if (some)
      hearing = (Hearing){.heard_ms = clock_ms()};
    else if (!r->wire.ended)
      TRY(hear_or_fail(r, &hearing, err));
    for (; some; some = wire_take(&r->wire, &kind, &body, &size)) TRY(take(r, job, kind, body, size, err));
    if (r->n > 0 && r->wire.ended)
      return error_set(err, STATUS_FAILED,
                       "the process that keeps the model (%d) has ended in the middle of an answer",
                       (int)r->facts.pid);
  }
}

Status remote_run(Remote *r, int n_at_once, const EngineJob *job, Error *err) {
  Status status = run(r, n_at_once, job, err);
  while (r->n > 0) {
    const WireCancel message = {r->asked[--r->n].id};
    wire_put(&r->wire, WIRE_CANCEL, &message, sizeof message, NULL, 0, NULL);
  }
  wire_send(&r->wire);
  return status;
}
