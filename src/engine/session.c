/* session.c - see session.h.
 *
 * Always true: ids[0 .. n_past) are exactly the tokens whose keys and values are in the cache; those after
 *              them wait to be computed. The sampler has seen the same n_past tokens, except
 *              between session_keep() and session_rewind(). logits_row is the row of the last token's
 *              logits, or -1 if the state has none. With has_last, `last` holds these logits. Nothing here
 *              allocates after session_open(). A step that fails leaves n_past as it was; keys and values
 *              that it wrote before n_past equal the old ones. The backend's recurrent state may belong to
 *              another position; settle() brings it to n_past before a step. The last step has also computed
 *              the guesses of `drafting` from n_accepted on. They follow the session's tokens, and their
 *              logits are the rows after logits_row. */
#include "engine/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/forward.h"

struct Session {
  const Backend *backend;
  BackendState *state;
  Timeline text; /* its config is that of the model, which outlives the session */
  Program program;
  StateOptions sizes;
  size_t *kv_bytes;    /* [n_layers] of one token */
  size_t *state_bytes; /* [n_layers] of the recurrent state */
  int n_in_flight;     /* tokens enqueued on the device and not read by the host */
  float *logits; /* [vocab_size] one row on the host, for session_evaluate(), _score() and _last_logits() */
  float *last;   /* [vocab_size] logits of the last token, for the next continuations of session_score() */
  bool has_last;
  /* For models with a recurrent state (backend.h). state_pos: how many of ids the backend's current state has
   * seen. If it exceeds n_past, the session has forgotten some of them; -1: not known. */
  KeptStates kept;
  int state_pos;
  int state_before_draft; /* slot kept.n_slots has the state after this many ids; 0: it is empty */
  int diverged_at;        /* where the last text began to differ from ids: prefill keeps a state there */
  SessionProgress watch;  /* set by session_watch(), or NULL */
  void *watch_user;
};

StateOptions session_sizes(const SessionOptions *options, const Backend *backend, const ModelConfig *config) {
  StateOptions sizes = {.n_ctx = options->n_ctx ? options->n_ctx : config->max_position, .kv = options->kv};
  sizes.max_chunk = options->chunk ? options->chunk : backend->chunk;
  if (sizes.max_chunk > sizes.n_ctx) sizes.max_chunk = sizes.n_ctx;
  const int n_guesses = options->drafter ? options->n_guesses : 0;
  sizes.max_logit_rows = options->max_logit_rows > n_guesses + 1 ? options->max_logit_rows : n_guesses + 1;
  if (sizes.max_logit_rows > sizes.max_chunk) sizes.max_logit_rows = sizes.max_chunk;
  sizes.n_slots = kept_states_slots(recurrent_state_bytes(backend, config));
  if (sizes.n_slots > 0 && n_guesses > 0) sizes.n_slots++;
  if (n_guesses > 0) sizes.taps = options->drafter->taps;
  return sizes;
}

RELEASE_BY(session_release, Session, session_close)

Status session_open(const Backend *backend, BackendModel *loaded, const Model *model,
                    const SessionOptions *options, Session **session, Error *err) {
  *session = NULL;
  if (options->n_ctx < 0 || options->n_ctx > model->config.max_position)
    return error_set(err, STATUS_USAGE, "context of %d tokens, expected 1 to the model's maximum of %d",
                     options->n_ctx, model->config.max_position);
  if (options->chunk < 0 || options->max_logit_rows < 0)
    return error_set(err, STATUS_USAGE, "chunk of %d tokens and %d rows of logits, expected none below 0",
                     options->chunk, options->max_logit_rows);
  if (options->n_guesses < 0 || options->n_guesses > DRAFT_MOST)
    return error_set(err, STATUS_USAGE, "%d guesses in a step, expected 0 to %d", options->n_guesses,
                     DRAFT_MOST);
  OWNED(session_release) Session *s = NULL;
  TRY(NEW(s, 1, "session", err));
  s->backend = backend;
  s->text.config = &model->config;
  s->sizes = session_sizes(options, backend, &model->config);
  s->text.n_ctx = s->sizes.n_ctx;
  s->text.counts = true;
  s->text.logits_row = -1;
  if (options->drafter && options->n_guesses > 0) {
    s->text.drafting.drafter = options->drafter;
    s->text.drafting.guessing =
        (Guessing){.most = options->n_guesses,
                   .always = options->guess_always,
                   .row_cost = backend->row_cost,
                   .row_costs = backend->row_costs ? backend->row_costs(loaded) : NULL,
                   .guess_cost = options->drafter->cost,
                   .redoes = s->sizes.n_slots > 0,
                   .timed = !backend->wait_token,
                   .share = 1};
  }
  s->kept.n_slots = s->sizes.n_slots - (s->sizes.n_slots > 0 && s->text.drafting.drafter);
  TRY(NEW(s->kv_bytes, (size_t)s->text.config->n_layers, "session", err));
  TRY(NEW(s->state_bytes, (size_t)s->text.config->n_layers, "session", err));
  for (int i = 0; i < s->text.config->n_layers; i++) {
    s->kv_bytes[i] = kv_token_bytes(s->text.config, i, s->sizes.kv);
    s->state_bytes[i] = s->kept.n_slots ? backend->recurrent_bytes(s->text.config, i) : 0;
  }
  TRY(NEW(s->text.ids, (size_t)s->sizes.n_ctx, "session", err));
  TRY(NEW(s->logits, (size_t)s->text.config->vocab_size, "session", err));
  TRY(NEW(s->last, (size_t)s->text.config->vocab_size, "session", err));
  TRY(sampler_open(&options->sampler, s->text.config->vocab_size, &s->text.sampler, err));
  TRY(forward_prepare(backend, s->text.config, &s->program, err));
  TRY(backend->open(loaded, &s->sizes, &s->state, err));
  *session = TAKE(s);
  return STATUS_OK;
}

void session_close(Session *s) {
  if (!s) return;
  if (s->state) s->backend->close(s->state);
  sampler_close(s->text.sampler);
  program_release(&s->program);
  free(s->last);
  free(s->logits);
  free(s->text.ids);
  free(s->state_bytes);
  free(s->kv_bytes);
  free(s);
}

SessionView session_view(const Session *s) {
  /* A drafter that reads hidden states needs those of every token, and restored tokens have none. */
  const bool stores = s->backend->kv_copy && s->sizes.taps.n == 0;
  return (SessionView){.backend = s->backend,
                       .n_ctx = s->sizes.n_ctx,
                       .has_scored = s->has_last,
                       .text = &s->text,
                       .n_in_flight = s->n_in_flight,
                       .kv_bytes = stores ? s->kv_bytes : NULL,
                       .state_bytes = s->kept.n_slots ? s->state_bytes : NULL,
                       .kept = &s->kept};
}

void session_limit(Session *s, int n_ctx) {
  s->text.n_ctx = n_ctx > 0 && n_ctx < s->sizes.n_ctx ? n_ctx : s->sizes.n_ctx;
}

/* The tokens of the next step, if `left` are to be computed. */
static int next_chunk(const Session *s, int left) {
  return left < s->sizes.max_chunk ? left : s->sizes.max_chunk;
}

/* --- the recurrent state */

static Status report(const Session *s, int done, int total, Error *err) {
  if (!s->watch || s->watch(s->watch_user, done, total)) return STATUS_OK;
  return error_set(err, STATUS_INTERRUPTED, "interrupted");
}

/* Computes rows. Afterwards the backend's recurrent state is the one after them. */
static Status compute(Session *s, TokenRange range, Error *err) {
  range.long_rope = s->text.long_rope;
  s->state_pos = -1;
  TRY(forward(s->backend, s->state, &s->program, range, err));
  s->state_pos = range.pos + range.n_tokens;
  return STATUS_OK;
}

/* Sets the backend's recurrent state to the latest known one at or before n_past: the current one, one in a
 * slot, or the empty one at 0. */
static Status restore_nearest(Session *s, Error *err) {
  int slot = kept_states_find(&s->kept, s->text.n_past), from = slot < 0 ? 0 : s->kept.pos[slot];
  if (s->state_before_draft > from && s->state_before_draft <= s->text.n_past) {
    slot = s->kept.n_slots;
    from = s->state_before_draft;
  }
  if (s->state_pos >= from && s->state_pos <= s->text.n_past) return STATUS_OK;
  s->state_pos = -1;
  if (slot >= 0) TRY(s->backend->state_restore(s->state, slot, err));
  s->state_pos = from;
  return STATUS_OK;
}

/* Makes the backend's recurrent state the one after the session's tokens. Tokens whose states are missing are
 * computed again; their keys and values are in the cache already. */
static Status settle(Session *s, Error *err) {
  if (!s->kept.n_slots || s->state_pos == s->text.n_past) return STATUS_OK;
  TRY(restore_nearest(s, err));
  while (s->state_pos < s->text.n_past) {
    TRY(report(s, s->state_pos, s->text.n_past, err));
    const int pos = s->state_pos, n = next_chunk(s, s->text.n_past - pos);
    TRY(compute(s, (TokenRange){.pos = pos, .n_tokens = n, .ids = s->text.ids + pos, .only_logits = true},
                err));
  }
  return STATUS_OK;
}

/* Keeps the current state, the one after `pos` tokens, unless it is kept already. turn: KeptStates.turn. */
static Status keep_state(Session *s, int pos, bool turn, Error *err) {
  const int slot = pos > 0 ? kept_states_add(&s->kept, pos, turn) : -1;
  if (slot < 0) return STATUS_OK;
  Status status = s->backend->state_save(s->state, slot, err);
  if (status) s->kept.pos[slot] = 0;
  return status;
}

/* Keeps the state after `pos` tokens if the last kept one lies KEPT_STATES_STEP tokens or more before. */
static Status keep_some_states(Session *s, int pos, Error *err) {
  if (!s->kept.n_slots) return STATUS_OK;
  const int slot = kept_states_find(&s->kept, pos);
  if (pos - (slot < 0 ? 0 : s->kept.pos[slot]) < KEPT_STATES_STEP) return STATUS_OK;
  return keep_state(s, pos, false, err);
}

/* The most tokens, up to n, after which the recurrent state is current or kept; n if the model has no such
 * state. */
static int reachable(const Session *s, int n) {
  if (!s->kept.n_slots) return n;
  const int slot = kept_states_find(&s->kept, n), kept = slot < 0 ? 0 : s->kept.pos[slot];
  return s->state_pos <= n && s->state_pos > kept ? s->state_pos : kept;
}

/* --- steps */

/* Computes the text's next n tokens in one step, with logits of the last n_logit_rows rows. only_logits:
 * step_rows() will make no further logits, so the backend may drop the other rows in the last layer. PRECOND
 * n <= max_chunk */
static Status step(Session *s, int n, int n_logit_rows, bool only_logits, Error *err) {
  Timeline *t = &s->text;
  TokenRange range = {.pos = t->n_past,
                      .n_tokens = n,
                      .ids = t->ids + t->n_past,
                      .n_logit_rows = n_logit_rows,
                      .only_logits = only_logits};
  if (s->sizes.taps.n > 0) range.taps = &s->sizes.taps;
  t->logits_row = -1;
  s->has_last = false;
  TRY(drafting_tell(&t->drafting, s->state, t->ids, t->n_past, err));
  TRY(settle(s, err));
  t->drafting.step_pos = t->n_past;
  t->drafting.n_tap_rows = n;
  TRY(compute(s, range, err));
  t->n_past += n;
  t->logits_row = n_logit_rows - 1;
  return STATUS_OK;
}

static Status check_ids(const Session *s, const int32_t *ids, int n, Error *err) {
  if (n < 1 || n > s->text.n_ctx)
    return error_set(err, STATUS_USAGE, "%d tokens, expected 1 to the context of %d", n, s->text.n_ctx);
  return forward_check_ids(s->text.config, "token", ids, n, err);
}

void session_keep(Session *s, int n) {
  timeline_cut(&s->text, n);
  s->text.n_ids = n;
  s->has_last = false;
  if (s->state_before_draft > n) s->state_before_draft = 0;
  kept_states_cut(&s->kept, n);
}

void session_watch(Session *s, SessionProgress progress, void *user) {
  s->watch = progress;
  s->watch_user = user;
}

/* Where the next step of prefill ends at the latest. With a recurrent state, steps end at diverged_at and
 * before the last token, and a state is kept at both places. session_sync() computes a text's last token
 * again, so a longer text goes on from the state before it. */
static int next_stop(const Session *s, int n) {
  if (!s->kept.n_slots) return n;
  if (s->diverged_at > s->text.n_past && s->diverged_at < n) return s->diverged_at;
  return s->text.n_past < n - 1 ? n - 1 : n;
}

/* After the last chunk it waits for an asynchronous device, so that the time of the call is the time of the
 * work. */
Status session_prefill(Session *s, int n, Error *err) {
  const int before = s->text.n_past;
  TRY(settle(s, err));
  if (s->kept.n_slots && (before == s->diverged_at || before == n - 1)) TRY(keep_state(s, before, true, err));
  TRY(keep_some_states(s, before, err));
  const int size = next_chunk(s, next_stop(s, n) - before);
  TRY(step(s, size, before + size == n, true, err));
  timeline_count(&s->text, before, s->text.n_past, false);
  return s->text.n_past == n && s->backend->drain ? s->backend->drain(s->state, err) : STATUS_OK;
}

/* Computes the text up to its first n tokens, in chunks. After a failure the rest is forgotten. */
static Status prefill(Session *s, int n, Error *err) {
  Status status = STATUS_OK;
  while (s->text.n_past < n && !status) {
    status = report(s, s->text.n_past, n, err);
    if (!status) status = session_prefill(s, n, err);
  }
  if (status)
    s->text.n_ids = s->text.n_past;
  else if (s->watch)
    s->watch(s->watch_user, n, n); /* nothing is left to stop */
  return status;
}

/* LongRoPE: computes all tokens again if a text of n tokens uses other factors than the cached keys. A
 * failure leaves fewer tokens. */
static Status recompute_rope(Session *s, int n, Error *err) {
  if (!timeline_changes_rope(&s->text, n)) return STATUS_OK;
  const int n_past = s->text.n_past, n_ids = s->text.n_ids;
  session_keep(s, 0);
  s->text.long_rope = !s->text.long_rope;
  TRY(prefill(s, n_past, err));
  s->text.n_ids = n_ids;
  return STATUS_OK;
}

/* How many of ids[0 .. n) the cache holds; 0 if n tokens need LongRoPE's other factors. At most n - 1: the
 * last token is computed again for its logits. */
static int common_prefix(const Session *s, const int32_t *ids, int n) {
  int common = 0;
  if (timeline_changes_rope(&s->text, n)) return 0;
  while (common < s->text.n_past && common < n - 1 && s->text.ids[common] == ids[common]) common++;
  return common;
}

int session_common(const Session *s, const int32_t *ids, int n) {
  return reachable(s, common_prefix(s, ids, n));
}

Status session_rewind(Session *s, const int32_t *ids, int n, Error *err) {
  Timeline *t = &s->text;
  TRY(check_ids(s, ids, n, err));
  s->diverged_at = common_prefix(s, ids, n);
  session_keep(s, reachable(s, s->diverged_at));
  memmove(t->ids + t->n_past, ids + t->n_past, (size_t)(n - t->n_past) * sizeof *ids);
  t->n_ids = n;
  t->long_rope ^= timeline_changes_rope(t, n);
  sampler_forget(t->sampler);
  timeline_count(t, 0, t->n_past, false);
  return STATUS_OK;
}

void session_adopt(Session *s, int n) {
  Timeline *t = &s->text;
  if (s->state_pos > t->n_past) s->state_pos = -1; /* a state of forgotten tokens */
  timeline_count(t, t->n_past, n, false);
  if (t->n_past < n) t->n_past = n;
  t->n_ids = t->n_past;
}

Status session_sync(Session *s, const int32_t *ids, int n, Error *err) {
  TRY(session_rewind(s, ids, n, err));
  return prefill(s, n, err);
}

int session_state_add(Session *s, int pos) {
  return kept_states_add(&s->kept, pos, true);
}

void session_state_drop(Session *s, int slot) {
  s->kept.pos[slot] = 0;
}

Status session_state_copy(Session *s, CopyDirection direction, int slot, int layer, void *host, Error *err) {
  return s->state_bytes[layer] ? s->backend->state_copy(s->state, direction, slot, layer, host, err)
                               : STATUS_OK;
}

Status session_kv_copy(Session *s, CopyDirection direction, TokenRange range, int layer, int n, void *host,
                       Error *err) {
  const int most = direction == TO_HOST ? s->text.n_past : s->sizes.n_ctx;
  if (range.pos < 0 || range.n_tokens < 1 || range.n_tokens > n || range.n_tokens > most - range.pos)
    return error_set(err, STATUS_FAILED, "keys of %d tokens (of %d) from %d on, %s %d", range.n_tokens, n,
                     range.pos, direction == TO_HOST ? "the session holds" : "the context is", most);
  return s->kv_bytes[layer] ? s->backend->kv_copy(s->state, direction, range, layer, n, host, err)
                            : STATUS_OK;
}

/* Computes the text's next n tokens, at most a chunk, in one step, and calls sink(row, logits) for each row.
 * at_once: the step makes the logits of all rows, as in generation. Else OP_LOGITS makes them for
 * max_logit_rows rows at a time. */
static Status step_rows(Session *s, int n, bool at_once, LogitsSink sink, void *user, Error *err) {
  TokenRange range = {.pos = s->text.n_past, .n_tokens = n, .long_rope = s->text.long_rope};
  const int most = s->sizes.max_logit_rows;
  TRY(step(s, n, at_once ? n : 0, at_once, err));
  for (int row = 0; row < n; row++) {
    range.first_logit = row, range.n_logit_rows = n - row < most ? n - row : most;
    if (row % most == 0 && !at_once)
      TRY(s->backend->run[OP_LOGITS](s->state, range, s->text.config->n_layers, err));
    s->text.logits_row = row % most;
    TRY(s->backend->read_logits(s->state, s->text.logits_row, s->logits, err));
    TRY(sink(user, range.pos + row, s->logits, err));
  }
  return STATUS_OK;
}

Status session_evaluate_step(Session *s, LogitsSink sink, void *user, Error *err) {
  const int first = s->text.n_past, size = next_chunk(s, s->text.n_ids - first);
  const Status status = step_rows(s, size, size <= s->sizes.max_logit_rows, sink, user, err);
  timeline_count(&s->text, first, s->text.n_past, false);
  return status;
}

Status session_evaluate(Session *s, const int32_t *ids, int n, LogitsSink sink, void *user, Error *err) {
  TRY(check_ids(s, ids, n, err));
  session_keep(s, 0);
  TRY(session_rewind(s, ids, n, err));
  while (s->text.n_past < n) TRY(session_evaluate_step(s, sink, user, err));
  return STATUS_OK;
}

static Status need_logits(const Session *s, Error *err) {
  if (s->text.logits_row >= 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "the session has no logits: nothing was prefilled, or it was stopped");
}

/* The continuation ids[0 ..) at position `first`, whose scores are log_p. */
typedef struct {
  int vocab_size, first;
  const int32_t *ids;
  double *log_p;
} Scored;

static Status take_score(void *user, int row, const float *logits, Error *err) {
  const Scored *scored = user;
  const int next = row + 1 - scored->first;
  scored->log_p[next] = log_probability(logits, scored->vocab_size, scored->ids[next]);
  return STATUS_OK;
}

Status session_score(Session *s, const int32_t *ids, int n, double *log_p, Error *err) {
  TRY(check_ids(s, ids, n, err));
  const int before = s->text.n_past;
  if (n - 1 > s->text.n_ctx - before)
    return error_set(err, STATUS_USAGE, "%d tokens behind %d, more than the context of %d", n - 1, before,
                     s->text.n_ctx);
  TRY(recompute_rope(s, before + n - 1, err));
  if (!s->has_last) TRY(session_logits(s, s->last, err));
  Scored scored = {s->text.config->vocab_size, before, ids, log_p};
  TRY(take_score(&scored, before - 1, s->last, err));
  if (s->kept.n_slots && n > 1) {
    TRY(settle(s, err));
    TRY(keep_state(s, before, true, err));
  }
  Status status = STATUS_OK;
  memcpy(s->text.ids + before, ids, (size_t)(n - 1) * sizeof *ids);
  for (int end = before + n - 1; s->text.n_past < end && !status;)
    status = step_rows(s, next_chunk(s, end - s->text.n_past), false, take_score, &scored, err);
  session_keep(s, before);
  s->has_last = true;
  return status;
}

Status session_sample(Session *s, int32_t *id, Error *err) {
  TRY(need_logits(s, err));
  return s->backend->sample(s->state, s->text.sampler, s->text.logits_row, id, err);
}

int session_room(const Session *s) {
  return s->text.n_ctx - s->text.n_ids - s->n_in_flight;
}

bool session_hold(Session *s, int32_t id) {
  if (session_room(s) <= 0) return false;
  s->text.ids[s->text.n_ids++] = id;
  return true;
}

/* The most guesses that the next step can have; n_more: as in session_decode_held(). */
static int most_guesses(const Session *s, int n_more) {
  return timeline_room(&s->text, s->sizes.max_chunk - (s->text.n_ids - s->text.n_past), n_more);
}

Status session_expects_guesses(Session *s, int n_more, bool *expects, Error *err) {
  const int most = most_guesses(s, n_more);
  Drafting *d = &s->text.drafting;
  *expects = d->n_accepted < d->guesses.n;
  if (*expects || most < 1) return STATUS_OK;
  if (d->drafter->cost == 0) TRY(timeline_guess(&s->text, most, err));
  *expects = d->drafter->cost > 0 ? guessing_length(&d->guessing, MODEL_RANK, most) > 0
                                  : d->guesses.n > s->n_in_flight;
  drafting_forget(d);
  return STATUS_OK;
}

/* Saves the recurrent state after the session's tokens, since a step with guesses replaces it by the state
 * after the guesses. */
static Status save_before_guesses(Session *s, Error *err) {
  if (!s->kept.n_slots || s->state_before_draft == s->text.n_past) return STATUS_OK;
  s->state_before_draft = 0;
  TRY(s->backend->state_save(s->state, s->kept.n_slots, err));
  s->state_before_draft = s->text.n_past;
  return STATUS_OK;
}

/* Prepares the step that computes ids[n_past .. n_ids): makes its guesses. After wrong guesses the recurrent
 * state is the one before these guesses. The step then computes the tokens from there again, if they fit, and
 * has no guesses. */
static Status prepare_step(Session *s, int n_more, Error *err) {
  Timeline *t = &s->text;
  const int most = most_guesses(s, n_more);
  if (s->kept.n_slots) TRY(restore_nearest(s, err));
  if (s->kept.n_slots && s->state_pos < t->n_past && t->n_ids - s->state_pos <= s->sizes.max_chunk) {
    t->n_past = s->state_pos;
    return STATUS_OK;
  }
  TRY(settle(s, err));
  TRY(keep_some_states(s, t->n_past, err));
  if (most < 1) return STATUS_OK;
  TRY(drafting_tell(&t->drafting, s->state, t->ids, t->n_past, err));
  TRY(timeline_guess(t, most, err));
  return t->drafting.guesses.n > 0 ? save_before_guesses(s, err) : STATUS_OK;
}

/* Computes ids[n_past .. n_ids) in one step, with guesses after them. */
static Status decode_step(Session *s, int n_more, Error *err) {
  Timeline *t = &s->text;
  Drafting *d = &t->drafting;
  const int n_past = t->n_past, n = t->n_ids;
  drafting_forget(d);
  TRY(prepare_step(s, n_more, err));
  const double start = clock_ms();
  const int n_rows = n + d->guesses.n - t->n_past;
  memcpy(t->ids + n, d->guesses.ids, (size_t)d->guesses.n * sizeof *t->ids);
  const Status status = step(s, n_rows, d->guesses.n + 1, true, err);
  t->n_past = status ? n_past : n;
  TRY(status);
  t->logits_row = 0;
  if (d->drafter) guessing_note_step(&d->guessing, n_rows, &d->guesses, clock_ms() - start);
  return STATUS_OK;
}

static Status decode(Session *s, int n_more, Error *err) {
  Timeline *t = &s->text;
  TRY(check_ids(s, t->ids + t->n_past, t->n_ids - t->n_past, err));
  TRY(recompute_rope(s, t->n_ids, err));
  while (t->n_ids - t->n_past > s->sizes.max_chunk) {
    TRY(settle(s, err));
    TRY(keep_some_states(s, t->n_past, err));
    TRY(step(s, s->sizes.max_chunk, 0, true, err));
  }
  return decode_step(s, n_more, err);
}

Status session_decode_held(Session *s, int n_more, Error *err) {
  Timeline *t = &s->text;
  const int before = t->n_past;
  timeline_accept(t);
  const Status status = t->n_ids == t->n_past && t->logits_row >= 0 ? STATUS_OK : decode(s, n_more, err);
  if (status) drafting_forget(&t->drafting);
  t->n_ids = t->n_past;
  timeline_count(t, before, t->n_past, true);
  return status;
}

Status session_decode(Session *s, int32_t id, Error *err) {
  s->text.n_ids = s->text.n_past;
  if (session_hold(s, id)) return session_decode_held(s, 0, err);
  return error_set(err, STATUS_USAGE, "the context of %d tokens is full", s->text.n_ctx);
}

/* Also false while the text may still outgrow LongRoPE's original context. When it does, recompute_rope()
 * prefills the whole text again. */
bool session_decodes_async(const Session *s) {
  return s->backend->wait_token && s->sizes.taps.n == 0 &&
         (s->text.long_rope || !timeline_changes_rope(&s->text, s->text.n_ctx));
}

size_t session_head_spares(const Session *s, int pos) {
  return s->backend->head_spares ? s->backend->head_spares(s->state, s->text.sampler, pos) : 0;
}

Status session_decode_async(Session *s, Error *err) {
  TRY(need_logits(s, err));
  const TokenRange range = {.pos = s->text.n_past + s->n_in_flight,
                            .n_tokens = 1,
                            .n_logit_rows = 1,
                            .only_logits = true}; /* as in decode_step(), so that both replay one graph */
  if (range.pos >= s->text.n_ctx)
    return error_set(err, STATUS_USAGE, "the context of %d tokens is full", s->text.n_ctx);
  if (s->n_in_flight == 0) TRY(settle(s, err));
  TRY(keep_some_states(s, range.pos, err));
  drafting_forget(&s->text.drafting);
  TRY(s->backend->sample(s->state, s->text.sampler, s->n_in_flight > 0 ? 0 : s->text.logits_row, NULL, err));
  s->n_in_flight++;
  return compute(s, range, err);
}

Status session_wait_token(Session *s, int32_t *id, Error *err) {
  TRY(s->backend->wait_token(s->state, id, err));
  s->n_in_flight--;
  s->text.n_past++;
  timeline_append(&s->text, *id);
  Drafting *d = &s->text.drafting;
  if (d->drafter) guessing_note_step(&d->guessing, 1, &d->guesses, 0);
  s->text.logits_row = 0;
  return STATUS_OK;
}

Status session_drain(Session *s, Error *err) {
  if (!s->backend->drain) return STATUS_OK;
  if (s->n_in_flight > 0) s->text.logits_row = -1; /* the device's logits belong to a dropped token */
  sampler_return_draws(s->text.sampler, (uint64_t)s->n_in_flight);
  s->n_in_flight = 0;
  kept_states_cut(&s->kept, s->text.n_past);
  return s->backend->drain(s->state, err);
}

void session_forget_guesses(Session *s) {
  guessing_forget(&s->text.drafting.guessing);
}

GuessCounts session_take_guesses(Session *s) {
  const GuessCounts counts = s->text.drafting.guessing.counts;
  s->text.drafting.guessing.counts = (GuessCounts){0};
  return counts;
}

int session_guessed(const Session *s, const int32_t **ids) {
  *ids = s->text.drafting.guesses.ids + s->text.drafting.n_accepted;
  return s->text.drafting.guesses.n - s->text.drafting.n_accepted;
}

Status session_logits(Session *s, float *out, Error *err) {
  TRY(need_logits(s, err));
  return s->backend->read_logits(s->state, s->text.logits_row, out, err);
}

Status session_last_logits(Session *s, const float **logits, Error *err) {
  *logits = s->logits;
  return session_logits(s, s->logits, err);
}
