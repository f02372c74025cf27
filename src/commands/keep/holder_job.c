/* holder_job.c - the requests of clients (connected auk processes), on their way into the engine and
 * back.
 *
 * Called by: holder.c.
 * Always true: a cancelled request has `caller` NULL; it leaves the engine before the next step. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "commands/keep/holder_internal.h"

static void free_request(Request *r) {
  free(r->ids);
  free(r->mask);
  free(r->scores);
  free(r->log_p);
  id_list_release(&r->forced);
  free(r);
}

static void remove_request(Holder *h, Request *r) {
  size_t i = 0;
  while (h->requests[i] != r) i++;
  memmove(h->requests + i, h->requests + i + 1, (--h->n_requests - i) * sizeof *h->requests);
  free_request(r);
}

static void await_reply(Request *r) {
  r->awaits = true;
  r->asked_ms = clock_ms();
}

/* --- messages */

static bool counts_fit(const WireAsk *ask, size_t size) {
  const int32_t counts[] = {ask->n_ids, ask->n_eos, ask->n_forced};
  size_t all = 0;
  for (int i = 0; i < 3; i++) {
    if (counts[i] < 0) return false;
    all += (size_t)counts[i] * sizeof(int32_t);
  }
  return all == size && ask->n_best >= 0 && ask->n_best <= MOST_BEST && ask->n_scored >= 0 &&
         ask->n_scored <= ask->n_ids && ask->n_ids > 0;
}

/* True if all n ids are tokens of the model. */
static bool ids_fit(const Holder *h, const char *bytes, size_t n) {
  bool fit = true;
  for (size_t i = 0; i < n; i++) {
    int32_t id;
    memcpy(&id, bytes + i * sizeof id, sizeof id);
    fit &= id >= 0 && id < h->assistant->model->config.vocab_size;
  }
  return fit;
}

RELEASE_BY(request_release, Request, free_request)

static Status take_ask(Holder *h, Caller *caller, const char *body, size_t size, bool *broken, Error *err) {
  const ModelConfig *config = &h->assistant->model->config;
  WireAsk ask;
  *broken = size < sizeof ask;
  if (*broken) return STATUS_OK;
  memcpy(&ask, body, sizeof ask);
  size -= sizeof ask;
  const char *ids = body + sizeof ask, *end = ids + size;
  /* The end tokens, between prompt and forced ids, are not checked: the model may lack one. */
  *broken = !counts_fit(&ask, size) || !ids_fit(h, ids, (size_t)ask.n_ids) ||
            !ids_fit(h, end - (size_t)ask.n_forced * sizeof(int32_t), (size_t)ask.n_forced);
  if (*broken) return STATUS_OK;
  TRY(mem_grow(&h->requests, &h->requests_capacity, h->n_requests + 1, sizeof(Request *), "requests", err));
  OWNED(request_release) Request *r = NULL;
  TRY(NEW(r, 1, "a request", err));
  *r = (Request){.holder = h, .caller = caller, .ask = ask, .n_forced = ask.n_forced};
  r->ids = mem_alloc(size, 1, "a request", err);
  if (!r->ids) return STATUS_FAILED;
  TRY(NEW(r->mask, (size_t)(config->vocab_size + 63) / 64, "a request", err));
  TRY(NEW(r->scores, (size_t)ask.n_best + 1, "a request", err));
  TRY(NEW(r->log_p, (size_t)ask.n_scored, "a request", err));
  memcpy(r->ids, ids, size);
  if (ask.lockstep && ask.n_scored == 0 && ask.n_forced == 0) await_reply(r);
  h->requests[h->n_requests++] = TAKE(r);
  return STATUS_OK;
}

static Request *find(Holder *h, const Caller *caller, uint32_t id) {
  for (size_t i = 0; i < h->n_requests; i++)
    if (h->requests[i]->caller == caller && h->requests[i]->ask.id == id) return h->requests[i];
  return NULL;
}

static Status take_reply(Request *r, const char *body, size_t size, bool *broken, Error *err) {
  const size_t mask_bytes =
      (size_t)(r->holder->assistant->model->config.vocab_size + 63) / 64 * sizeof *r->mask;
  WireReply reply;
  *broken = size < sizeof reply || !r->awaits;
  if (*broken) return STATUS_OK;
  memcpy(&reply, body, sizeof reply);
  const size_t forced = reply.n_forced > 0 ? (size_t)reply.n_forced * sizeof(int32_t) : 0;
  *broken = reply.n_forced < 0 || size != sizeof reply + forced + (reply.has_mask ? mask_bytes : 0) ||
            !ids_fit(r->holder, body + sizeof reply, forced / sizeof(int32_t));
  if (*broken) return STATUS_OK;
  r->forced.count = 0;
  for (int i = 0; i < reply.n_forced; i++) {
    int32_t id;
    memcpy(&id, body + sizeof reply + (size_t)i * sizeof id, sizeof id);
    TRY(id_list_append(&r->forced, id, err));
  }
  r->has_forced = reply.n_forced > 0;
  r->has_mask = reply.has_mask;
  if (reply.has_mask) memcpy(r->mask, body + sizeof reply + forced, mask_bytes);
  r->awaits = false;
  return STATUS_OK;
}

static void cancel(Holder *h, Request *r) {
  if (r->running && r->caller) r->caller->n_running--;
  r->caller = NULL;
  if (!r->running) remove_request(h, r);
}

Status holder_take_request(Holder *h, Caller *caller, WireKind kind, const char *body, size_t size,
                           bool *broken, Error *err) {
  uint32_t id;
  if (kind == WIRE_ASK) return take_ask(h, caller, body, size, broken, err);
  *broken = size < sizeof id;
  if (*broken) return STATUS_OK;
  memcpy(&id, body, sizeof id);
  Request *r = find(h, caller, id);
  if (!r) return STATUS_OK; /* the request was done while the message was on its way */
  if (kind == WIRE_REPLY) return take_reply(r, body, size, broken, err);
  cancel(h, r);
  return STATUS_OK;
}

void holder_drop(Holder *h, const Caller *caller) {
  if (h->assistant->engine) engine_disown(h->assistant->engine, caller);
  for (size_t i = h->n_requests; i-- > 0;)
    if (h->requests[i]->caller == caller) cancel(h, h->requests[i]);
}

/* --- the engine */

static Status put(const Request *r, WireKind kind, const void *body, size_t size, const void *more,
                  size_t more_size, Error *err) {
  if (!r->caller || r->caller->wire.ended) return STATUS_OK;
  return wire_put(&r->caller->wire, kind, body, size, more, more_size, err);
}

static Status take_token(void *user, int32_t id, TokenReply *reply, Error *err) {
  Request *r = user;
  WireToken message;
  memset(&message, 0, sizeof message);
  message.id = r->ask.id;
  message.token = id;
  message.forced = r->n_forced > 0;
  reply->stop = !r->caller;
  if (message.forced) r->n_forced--;
  if (r->ask.lockstep && r->n_forced == 0) await_reply(r);
  return put(r, WIRE_TOKEN, &message, sizeof message, r->scores,
             r->ask.scores ? ((size_t)r->ask.n_best + 1) * sizeof *r->scores : 0, err);
}

static Status allow(void *user, const uint64_t **mask, Error *err) {
  const Request *r = user;
  *mask = r->has_mask ? r->mask : NULL;
  return STATUS_OK;
}

static Status score(void *user, const TokenScore *scores, Error *err) {
  Request *r = user;
  memcpy(r->scores, scores, ((size_t)r->ask.n_best + 1) * sizeof *scores);
  return STATUS_OK;
}

static EngineTurn turn(void *user, TokenReply *reply) {
  Request *r = user;
  if (!r->caller) return TURN_END;
  if (r->awaits) return TURN_WAIT;
  if (!r->has_forced) return TURN_GO;
  r->has_forced = false;
  reply->forced = r->forced.ids;
  reply->n_forced = r->n_forced = (int)r->forced.count;
  return TURN_GO;
}

static EngineRequest engine_request(Request *r) {
  const WireAsk *ask = &r->ask;
  const GenerateOptions generate = {.max_tokens = ask->max_tokens,
                                    .eos = r->ids + ask->n_ids,
                                    .n_eos = ask->n_eos,
                                    .ignore_eos = ask->ignore_eos,
                                    .may_force = ask->lockstep,
                                    .forced = r->ids + ask->n_ids + ask->n_eos,
                                    .n_forced = ask->n_forced,
                                    .allow = ask->lockstep ? allow : NULL,
                                    .score = ask->scores ? score : NULL,
                                    .n_best = ask->n_best};
  return (EngineRequest){.ids = r->ids,
                         .n_ids = ask->n_ids,
                         .sampler = &r->ask.sampler,
                         .generate = generate,
                         .sink = take_token,
                         .log_p = r->log_p,
                         .n_scored = ask->n_scored,
                         .n_ctx = ask->n_ctx,
                         .alone = ask->alone,
                         .owner = r->caller,
                         .turn = turn,
                         .user = r};
}

static EngineRequest begin(Holder *h, Request *r) {
  r->running = true;
  r->caller->n_running++;
  h->n_running++;
  return engine_request(r);
}

/* True if the request needs the session (`alone`) while another request has it: one of the same client, which
 * expects its answers one after the other, or a cancelled one, which is about to end. */
static bool waits_for_session(const Holder *h, const Request *r) {
  const EngineRequest *other = engine_in_session(h->assistant->engine);
  const Caller *caller = other ? ((const Request *)other->user)->caller : NULL;
  return r->ask.alone && other && (!caller || caller == r->caller);
}

/* Gives the engine the oldest waiting request of the clients with the fewest running requests. */
static Status next(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Holder *h = user;
  Request *best = NULL;
  for (size_t i = 0; i < h->n_requests; i++) {
    Request *r = h->requests[i];
    if (r->running || !r->caller || waits_for_session(h, r)) continue;
    if (!best || r->caller->n_running < best->caller->n_running) best = r;
  }
  *found = best != NULL;
  if (!best) return STATUS_OK;
  *request = begin(h, best);
  return STATUS_OK;
}

static Status put_result(const Request *r, WireKind kind, int n_done, int total, const EngineResult *result,
                         Error *err) {
  WireResult message;
  const size_t log_p_bytes = kind == WIRE_DONE ? (size_t)r->ask.n_scored * sizeof *r->log_p : 0;
  memset(&message, 0, sizeof message);
  message.id = r->ask.id;
  message.done = n_done;
  message.total = total;
  message.result = *result;
  return put(r, kind, &message, sizeof message, r->log_p, log_p_bytes, err);
}

/* Sends the result of a request to its client. */
static Status done(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  Holder *h = user;
  Request *r = request->user;
  const Status status = put_result(r, WIRE_DONE, 0, 0, result, err);
  h->n_running--;
  h->n_answered++;
  if (r->caller) r->caller->n_running--;
  remove_request(h, r);
  return status;
}

static void progress(void *user, const EngineRequest *request, const EngineResult *result, int n_done,
                     int total) {
  /* A progress message that is lost does no harm. */
  put_result(request->user, WIRE_PROGRESS, n_done, total, result, NULL);
}

/* True if a client in lockstep owes a reply for less than PATIENCE_MS: it is worth waiting for, so that the
 * client's sequence is in the next step. */
static bool expects_reply(const Holder *h) {
  enum { PATIENCE_MS = 2 };
  const double now = clock_ms();
  for (size_t i = 0; i < h->n_requests; i++) {
    const Request *r = h->requests[i];
    if (r->running && r->caller && r->awaits && now - r->asked_ms < PATIENCE_MS) return true;
  }
  return false;
}

/* True if another client waits for the session or sequence that this request has. */
static bool is_in_the_way(const Holder *h, const Request *r) {
  const EngineRequest *in_session = engine_in_session(h->assistant->engine);
  const int n_in_batch = h->n_running - (in_session != NULL);
  const bool is_in_session = in_session && in_session->user == r;
  const bool is_full = !is_in_session && n_in_batch == h->assistant->batch_options.n_sequences;
  if (engine_has_batch(h->assistant->engine) && !is_full) return false;
  for (size_t i = 0; i < h->n_requests; i++)
    if (!h->requests[i]->running && h->requests[i]->caller != r->caller) return true;
  return false;
}

/* Disconnects clients in lockstep that have not replied for SLEEP_MS (they may be stopped), if another client
 * waits for their session or sequence. */
static Status drop_sleepers(Holder *h, Error *err) {
  enum { SLEEP_MS = 5000 };
  static const char reason[] =
      "did not hear from it for 5 seconds and gave the places of this call to others";
  const double now = clock_ms();
  for (size_t i = 0; i < h->n_requests; i++) {
    Request *r = h->requests[i];
    if (!r->running || !r->caller || !r->awaits || now - r->asked_ms < SLEEP_MS) continue;
    Wire *wire = &r->caller->wire;
    if (wire->ended || !is_in_the_way(h, r)) continue;
    TRY(wire_put(wire, WIRE_REFUSED, reason, sizeof reason - 1, NULL, 0, err));
    wire_send(wire);
    wire->ended = true;
  }
  return STATUS_OK;
}

static Status listen(void *user, bool may_wait, Error *err) {
  Holder *h = user;
  enum { WAIT_MS = 1000 };
  TRY(drop_sleepers(h, err));
  TRY(holder_listen(h, may_wait ? WAIT_MS : 0, err));
  while (expects_reply(h)) TRY(holder_listen(h, 1, err));
  return STATUS_OK;
}

/* Drops all requests. Their clients get the failure, unless it is an interruption. */
static void drop_all(Holder *h, Status status, const Error *reason) {
  const EngineResult failed = {.status = status, .error = *reason};
  while (h->n_requests > 0) {
    Request *r = h->requests[h->n_requests - 1];
    if (status != STATUS_INTERRUPTED && !put_result(r, WIRE_DONE, 0, 0, &failed, NULL) && r->caller)
      wire_send(&r->caller->wire);
    remove_request(h, r);
  }
  for (size_t i = 0; i < h->n_callers; i++) h->callers[i]->n_running = 0;
  h->n_running = 0;
}

Status holder_compute(Holder *h, Error *err) {
  const EngineJob job = {.next = next,
                         .done = done,
                         .interrupted = h->assistant->interrupted,
                         .user = h,
                         .progress = progress,
                         .listen = listen};
  const Status status = engine_run(h->assistant->engine, &job, err);
  if (status) drop_all(h, status, err);
  return status;
}
