/* one.c - see one.h. */
#include "engine/one.h"

#include <string.h>

#include "base/clock.h"

static bool is_interrupted(const One *o) {
  const volatile int *flag = o->job->interrupted ? o->job->interrupted : o->run.request.generate.interrupted;
  return flag && *flag;
}

static int n_prompt(const One *o) {
  return o->run.request.n_ids - o->run.request.n_scored;
}

static const Timeline *text(const One *o) {
  return session_view(o->session).text;
}

/* --- the part of a prompt that is computed already */

/* Keeps only tokens that the request's owner would have computed in the same steps in a session of its own.
 * All tokens stay if they are this owner's, or on a CPU, where a row's bits do not depend on its step.
 * Otherwise whole chunks of a prompt stay, from the first token on. */
static void keep_what_is_same(One *o) {
  Session *session = o->session;
  const Backend *backend = session_view(session).backend;
  const int32_t *ids = o->run.request.ids;
  const bool is_own = o->owner == o->run.request.owner;
  const int n = n_prompt(o);
  if (!is_own && backend->memory) {
    int common = session_common(session, ids, n);
    if (common > o->n_plain) common = o->n_plain;
    session_keep(session, common - common % backend->chunk);
    /* A remainder means that the last kept recurrent state lies within a chunk. Then no tokens stay. */
    if (session_common(session, ids, n) % backend->chunk) session_keep(session, 0);
  }
  if (!is_own) session_forget_guesses(session);
  o->owner = o->run.request.owner;
}

static bool holds(const One *o, const int32_t *ids, int n) {
  return text(o)->n_past >= n && (n == 0 || memcmp(text(o)->ids, ids, (size_t)n * sizeof *ids) == 0);
}

static bool watch(void *user, int done, int total) {
  const One *o = user;
  if (o->job->progress) o->job->progress(o->job->user, &o->run.request, &o->run.result, done, total);
  return !is_interrupted(o);
}

/* Makes the session hold the request's base, as far as the prompt begins like it. */
static Status hold_base(One *o, Error *err) {
  const EngineRequest *r = &o->run.request;
  int n = 0;
  if (!r->base) return STATUS_OK;
  if (!holds(o, r->base, r->n_base)) {
    session_keep(o->session, 0);
    TRY(session_sync(o->session, r->base, r->n_base, err));
  }
  while (n < r->n_base && n < r->n_ids && r->base[n] == r->ids[n]) n++;
  session_keep(o->session, n);
  return STATUS_OK;
}

/* --- the prompt */

/* True if the request scores another continuation of this owner's last prompt: the session still has the
 * logits of its last token. */
static bool is_scored_again(const One *o) {
  const EngineRequest *r = &o->run.request;
  return r->n_scored > 0 && o->owner == r->owner && session_view(o->session).has_scored &&
         text(o)->n_past == n_prompt(o) && holds(o, r->ids, n_prompt(o));
}

static Status begin(One *o, Error *err) {
  const EngineRequest *r = &o->run.request;
  const int n = n_prompt(o);
  session_take_guesses(o->session);
  if (!r->ids) return STATUS_OK;
  session_limit(o->session, r->n_ctx);
  TRY(request_check(r, text(o)->n_ctx, text(o)->config, err));
  if (r->sampler) TRY(sampler_set(text(o)->sampler, r->sampler, err));
  session_watch(o->session, watch, o);
  o->first = o->run.result.n_reused = n;
  if (is_scored_again(o)) return STATUS_OK;
  TRY(hold_base(o, err));
  keep_what_is_same(o);
  if (o->store.restore) o->store.restore(o->store.user, o->session, r->ids, n);
  o->first = o->run.result.n_reused = session_common(o->session, r->ids, n);
  if (o->first < o->n_plain) o->n_plain = o->first; /* what follows is computed anew */
  TRY(session_rewind(o->session, r->ids, n, err));
  watch(o, o->first, n);
  return STATUS_OK;
}

static Status compute_prompt(One *o, Error *err) {
  const int n = n_prompt(o);
  TRY(session_prefill(o->session, n, err));
  o->run.result.prefill_ms = clock_ms() - o->run.start_ms;
  if (text(o)->n_past == n) {
    if (o->first == o->n_plain && o->first % session_view(o->session).backend->chunk == 0)
      o->n_plain = n - 1; /* the last token may have had a step of its own */
    if (o->store.prefilled) o->store.prefilled(o->store.user, n);
  }
  watch(o, text(o)->n_past, n);
  return STATUS_OK;
}

static Status compute_scores(One *o, Error *err) {
  const EngineRequest *r = &o->run.request;
  TRY(session_score(o->session, r->ids + n_prompt(o), r->n_scored, r->log_p, err));
  o->run.state = RUN_ENDED;
  return STATUS_OK;
}

/* --- the answer */

static Status sample(One *o, int32_t *id, Error *err) {
  TRY(running_restrict(&o->run, text(o)->sampler));
  return session_sample(o->session, id, err);
}

/* Samples the next token. *decoded: a step with it is already computed or enqueued. Asynchronous decode keeps
 * IN_FLIGHT steps enqueued: the device computes one token while the host shows another. With masks only one
 * step is enqueued, because a mask depends on the token before. Guesses depend on that token, too: while
 * guesses are likely, no step is enqueued. The last wanted token is sampled and not decoded: nothing reads
 * its logits. */
static Status next_token(One *o, int n_wanted, int32_t *id, bool *decoded, Error *err) {
  enum { IN_FLIGHT = 2 };
  Session *session = o->session;
  const GenerateOptions *options = &o->run.request.generate;
  const int most = options->allow ? 1 : IN_FLIGHT;
  bool expects;
  *decoded = false;
  if (options->score || !session_decodes_async(session)) return sample(o, id, err);
  TRY(session_expects_guesses(session, n_wanted, &expects, err));
  while (!expects && session_view(session).n_in_flight < most &&
         (n_wanted < 0 || session_view(session).n_in_flight < n_wanted - 1) && session_room(session) > 0) {
    TRY(running_restrict(&o->run, text(o)->sampler));
    TRY(session_decode_async(session, err));
  }
  if (session_view(session).n_in_flight == 0) return sample(o, id, err);
  *decoded = true;
  return session_wait_token(session, id, err);
}

static Status score(One *o, int32_t id, Error *err) {
  const float *logits;
  TRY(session_last_logits(o->session, &logits, err));
  return running_score(&o->run, logits, text(o)->config->vocab_size, id);
}

/* Computes and passes on a token of the answer. Held tokens are computed first; but if forced tokens follow,
 * and no token is scored, one step will compute both. */
static Status compute_token(One *o, Error *err) {
  const GenerateOptions *options = &o->run.request.generate;
  const int n_generated = o->run.result.generated.n_generated;
  int32_t id;
  bool decoded = false;
  const int left = options->max_tokens < 0 ? -1 : options->max_tokens - n_generated;
  if (left == 0) {
    o->run.state = RUN_ENDED;
    return STATUS_OK;
  }
  if (o->run.n_forced > 0 && session_view(o->session).n_in_flight) TRY(session_drain(o->session, err));
  if (text(o)->n_ids > text(o)->n_past && (o->run.n_forced == 0 || options->score))
    TRY(session_decode_held(o->session, running_more(&o->run), err));
  const bool is_forced = running_forced(&o->run, &id);
  if (!is_forced) TRY(next_token(o, left, &id, &decoded, err));
  if (options->score) TRY(score(o, id, err));
  if (n_generated == 0) o->run.first_ms = clock_ms();
  TRY(running_take(&o->run, id, is_forced, decoded || session_room(o->session) > 0));
  if (o->run.state == RUN_ANSWER && !decoded) session_hold(o->session, id);
  return STATUS_OK;
}

/* --- steps */

static Status step(One *o, bool *idle, Error *err) {
  const EngineTurn turn = running_turn(&o->run, o->job);
  if (turn == TURN_END) return STATUS_OK;
  if (text(o)->n_past < n_prompt(o)) return compute_prompt(o, err); /* also with TURN_WAIT */
  *idle = turn == TURN_WAIT;
  if (*idle) return STATUS_OK;
  return o->run.state == RUN_SCORES ? compute_scores(o, err) : compute_token(o, err);
}

/* Removes the request's callback, mask and enqueued tokens from the session. */
static Status leave(One *o, Error *err) {
  o->run.state = RUN_ENDED;
  if (o->run.request.ids) session_watch(o->session, NULL, NULL);
  sampler_allow(text(o)->sampler, NULL);
  return session_drain(o->session, err);
}

void one_drop(One *o) {
  if (o->run.state != RUN_ENDED) leave(o, NULL);
}

static Status end(One *o, Error *err) {
  EngineResult *result = &o->run.result;
  result->generated.guesses = session_take_guesses(o->session);
  if (o->run.request.n_scored > 0 || o->run.first_ms > 0) running_done(&o->run);
  const Status left = leave(o, result->status ? NULL : &result->error);
  if (!result->status) result->status = left;
  return o->job->done(o->job->user, &o->run.request, result, err);
}

/* Handles the status of begin() or of a step. The request ends in RUN_ENDED, or if the failure is its own
 * (set in its result, or STATUS_USAGE). Other failures, and an interruption of the job, end the run: the
 * request gets no result. Otherwise STATUS_INTERRUPTED means: a search for a mask or a prefill noticed the
 * request's own flag. The request then ends without a failure. */
static Status take_status(One *o, Status status, Error *err) {
  EngineResult *result = &o->run.result;
  const bool stops = o->job->interrupted && is_interrupted(o);
  if (stops || (status && status != STATUS_USAGE && status != STATUS_INTERRUPTED && !result->status)) {
    leave(o, NULL);
    return error_set(err, stops ? STATUS_INTERRUPTED : status, "%s",
                     stops ? "interrupted" : result->error.text);
  }
  if (status == STATUS_INTERRUPTED) {
    result->generated.reason = FINISH_INTERRUPTED;
    status = STATUS_OK;
    o->run.state = RUN_ENDED;
  }
  result->status = status;
  return o->run.state == RUN_ENDED || status ? end(o, err) : STATUS_OK;
}

Status one_begin(One *o, const EngineJob *job, const EngineRequest *request, Error *err) {
  o->job = job;
  running_begin(&o->run, request);
  return take_status(o, begin(o, &o->run.result.error), err);
}

Status one_step(One *o, const EngineJob *job, bool *idle, Error *err) {
  *idle = false;
  o->job = job;
  return take_status(o, step(o, idle, &o->run.result.error), err);
}

/* --- one answer without an engine */

static Status done_alone(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  return result->status ? error_set(err, result->status, "%s", result->error.text) : STATUS_OK;
}

Status generate(Session *session, const GenerateOptions *options, TokenSink sink, void *user,
                GenerateResult *result, Error *err) {
  One one = {.session = session};
  const EngineJob job = {.done = done_alone};
  const EngineRequest request = {.generate = *options, .sink = sink, .user = user};
  Status status = one_begin(&one, &job, &request, err);
  for (bool idle; status == STATUS_OK && one.run.state != RUN_ENDED;)
    status = one_step(&one, &job, &idle, err);
  one_drop(&one);
  *result = one.run.result.generated;
  return status;
}
