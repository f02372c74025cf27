/* holder_session.c - the request of a call that is alone, in the session of a holder: with the same steps,
 * guesses and bits as in a process of the call's own.
 *
 * Called by: holder_job.c.   Calls: session.c, generate.c.
 * There is a session where a batch differs from that: on a device whose kernels for several rows round
 * otherwise, and for models with a recurrent state, which a batch does not keep for later requests.
 * Always true: the session has at most one request. While it has one, the batch takes the others, and steps
 * of session and batch alternate. */
#include <string.h>

#include "base/clock.h"
#include "commands/common.h"
#include "commands/keep/holder_internal.h"

/* --- the part of a prompt that is computed already */

/* True if the bits of a row depend on the number of rows in its step. */
static bool rounds_by_rows(const Holder *h) {
  return h->assistant->device.backend->memory != NULL;
}

/* Keeps only those tokens of the session that this call, by itself, would have computed in the same steps:
 * all if the call owns them, else those of a prompt, in whole chunks from the first token on. */
static void keep_what_is_same(Holder *h, const Request *r, int n) {
  Alone *alone = &h->alone;
  Session *session = h->assistant->session;
  if (alone->owner != r->caller && rounds_by_rows(h)) {
    const int chunk = h->assistant->device.backend->chunk;
    int common = session_common(session, r->ids, n);
    if (common > alone->n_plain) common = alone->n_plain;
    session_keep(session, common - common % chunk);
    /* a recurrent state amid a chunk */
    if (session_common(session, r->ids, n) % chunk) session_keep(session, 0);
  }
  if (alone->owner != r->caller) session_forget_guesses(session);
  alone->owner = r->caller;
}

/* Notes that tokens from `start` to n were computed as a prompt. */
static void note_plain(Holder *h, int start, int n) {
  Alone *alone = &h->alone;
  const int chunk = h->assistant->device.backend->chunk;
  if (start <= alone->n_plain && start % chunk == 0)
    alone->n_plain = n - 1; /* the last token may have had a step of its own */
  else if (start < alone->n_plain)
    alone->n_plain = start;
}

void holder_session_disown(Holder *h, const Caller *caller) {
  if (h->alone.owner == caller) h->alone.owner = NULL;
}

/* --- the prompt */

static int n_prompt(const Request *r) {
  return r->ask.n_ids - r->ask.n_scored;
}

static bool others_wait(const Holder *h) {
  return h->n_requests > 1;
}

/* Reports a step of the prompt; it also runs once before the first step. False ends this part of the prompt:
 * the call is gone, or other requests have the next step. */
static bool prefilling(void *user, int done, int total) {
  Holder *h = user;
  Alone *alone = &h->alone;
  Request *r = alone->request;
  alone->result.prefill_ms = clock_ms() - alone->start_ms;
  if (alone->n_calls++ > 0) holder_put_progress(r, &alone->result, done, total);
  if (alone->n_calls > 1 && done < total) alone->listened = holder_listen(h, 0, &alone->err);
  if (alone->listened != STATUS_OK || *h->assistant->interrupted || !r->caller) return false;
  return alone->n_calls == 1 || !others_wait(h);
}

/* True if the session has scored another continuation of this prompt for this call, and has the logits. */
static bool is_scored_again(const Holder *h, const Request *r) {
  const Session *session = h->assistant->session;
  const size_t n = (size_t)n_prompt(r);
  return h->alone.scored && r->ask.n_scored > 0 && h->alone.owner == r->caller &&
         (size_t)session_length(session) == n &&
         memcmp(session_ids(session), r->ids, n * sizeof *r->ids) == 0;
}

static Status begin(Holder *h, Error *err) {
  Alone *alone = &h->alone;
  Request *r = alone->request;
  Session *session = h->assistant->session;
  const int n = n_prompt(r);
  session_limit(session, r->ask.n_ctx);
  TRY(session_set_sampler(session, &r->ask.sampler, err));
  alone->has_prompt = is_scored_again(h, r);
  if (!alone->has_prompt) keep_what_is_same(h, r, n);
  alone->first = alone->has_prompt ? n : session_common(session, r->ids, n);
  alone->result.n_reused = alone->first;
  alone->scored = false;
  return STATUS_OK;
}

static Status compute_prompt(Holder *h, Error *err) {
  Alone *alone = &h->alone;
  Request *r = alone->request;
  Session *session = h->assistant->session;
  const int n = n_prompt(r);
  alone->n_calls = 0;
  alone->listened = STATUS_OK;
  Status status = session_sync(session, r->ids, n, prefilling, h, err);
  if (alone->listened) return error_set(err, alone->listened, "%s", alone->err.text);
  if (status == STATUS_INTERRUPTED) return STATUS_OK;
  TRY(status);
  note_plain(h, alone->first, n);
  alone->has_prompt = true;
  alone->generates = r->ask.n_scored == 0;
  if (alone->generates)
    generating_begin(&alone->generating, session, &alone->asked.generate, alone->asked.sink, r,
                     &alone->result.generated);
  return STATUS_OK;
}

/* --- the answer */

static Status score(Holder *h, bool *ended, Error *err) {
  Alone *alone = &h->alone;
  const Request *r = alone->request;
  const double start = clock_ms();
  *ended = true;
  TRY(session_score(h->assistant->session, r->ids + n_prompt(r), r->ask.n_scored, r->log_p, err));
  alone->result.generated.decode_ms = clock_ms() - start;
  alone->scored = true;
  return STATUS_OK;
}

/* Computes a token of the answer, unless the call has yet to say what comes next. */
static Status compute_token(Holder *h, bool *ended, Error *err) {
  Alone *alone = &h->alone;
  TokenReply reply = {0};
  const BatchTurn turn = alone->asked.turn(alone->request, &reply);
  if (turn == TURN_WAIT) return STATUS_OK;
  if (reply.n_forced > 0) {
    alone->generating.generation.forced = reply.forced;
    alone->generating.generation.n_forced = reply.n_forced;
  }
  return generating_step(&alone->generating, h->assistant->session, ended, err);
}

static Status step(Holder *h, bool *ended, Error *err) {
  Alone *alone = &h->alone;
  if (!alone->request->caller) {
    *ended = true;
    return STATUS_OK;
  }
  if (!alone->has_prompt) return compute_prompt(h, err);
  return alone->request->ask.n_scored > 0 ? score(h, ended, err) : compute_token(h, ended, err);
}

/* --- for holder_job.c */

static Status end(Holder *h, Error *err) {
  Alone *alone = &h->alone;
  BatchResult *result = &alone->result;
  if (alone->generates)
    result->status =
        generating_end(&alone->generating, h->assistant->session, result->status, &result->error);
  if (result->status && result->status != STATUS_USAGE) {
    print_note("%s", result->error.text);
    h->stops = true;
  }
  alone->request = NULL;
  return holder_done(h, &alone->asked, result, err);
}

bool holder_session_may_go(const Holder *h) {
  const Request *r = h->alone.request;
  return r && (!r->caller || !h->alone.has_prompt || !r->awaits);
}

Status holder_session_take(Holder *h, Request *r, const BatchRequest *request, Error *err) {
  Alone *alone = &h->alone;
  alone->request = r;
  alone->asked = *request;
  alone->result = (BatchResult){.status = STATUS_OK, .generated = {.reason = FINISH_LENGTH}};
  alone->start_ms = clock_ms();
  alone->generates = false;
  alone->result.status = begin(h, &alone->result.error);
  return alone->result.status ? end(h, err) : STATUS_OK;
}

Status holder_session_step(Holder *h, Error *err) {
  Alone *alone = &h->alone;
  bool ended = false;
  BatchResult *result = &alone->result;
  if (!alone->request) return STATUS_OK;
  result->status = step(h, &ended, &result->error);
  return ended || result->status ? end(h, err) : STATUS_OK;
}
