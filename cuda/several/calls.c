/* calls.c - see calls.h. Always true: the sizes that a message states are checked, so a rank of another build
 * ends with an error. */
#include "cuda/several/calls.h"

#include <string.h>

/* The message for a call. CALL_STEP and CALL_LOGITS are followed by SequenceRows [span.n_parts], ids [n_ids]
 * and logit rows [n_picked]; CALL_SET_PAGES by pages [n_ids]. a, b: integer arguments of the calls that have
 * some. */
typedef struct {
  int32_t kind, state;
  int32_t n_ids, n_picked, a, b;
  TokenRange span; /* its pointers are rank 0's: only whether `parts` is NULL has a meaning here */
  StateOptions options;
} Call;

/* --- rank 0 */

Status calls_open(Ranks *ranks, const StateOptions *options, int *state, Error *err) {
  if (options->target || options->taps.n > 0)
    return error_set(err, STATUS_FAILED, "--split auto does not go with a model that drafts");
  const int number = ranks_take_number(ranks);
  if (number < 0) return error_set(err, STATUS_FAILED, "too many sessions for --split auto");
  const Call call = {.kind = CALL_OPEN, .state = number, .options = *options};
  const Status status = ranks_tell(ranks, &call, sizeof call, NULL, 0, err);
  if (status)
    ranks_give_number(ranks, number);
  else
    *state = number;
  return status;
}

void calls_close(Ranks *ranks, int state) {
  calls_tell(ranks, CALL_CLOSE, state, 0, 0, NULL);
  ranks_give_number(ranks, state);
}

Status calls_step(Ranks *ranks, CallKind kind, int state, TokenRange span, Error *err) {
  const bool many = span.parts != NULL;
  OWNED(buffer_release) Buffer more = {0};
  const Call call = {.kind = (int32_t)kind,
                     .state = state,
                     .span = span,
                     .n_ids = span.ids ? span.n_tokens : 0,
                     .n_picked = many ? span.n_logit_rows : 0};
  if (many) TRY(buffer_append(&more, span.parts, (size_t)span.n_parts * sizeof *span.parts, err));
  if (span.ids) TRY(buffer_append(&more, span.ids, (size_t)call.n_ids * sizeof *span.ids, err));
  if (many) TRY(buffer_append(&more, span.logit_rows, (size_t)call.n_picked * sizeof *span.logit_rows, err));
  return ranks_tell(ranks, &call, sizeof call, more.data, more.size, err);
}

Status calls_set_pages(Ranks *ranks, int state, int sequence, int first, const int32_t *pages, int n,
                       Error *err) {
  const Call call = {.kind = CALL_SET_PAGES, .state = state, .n_ids = n, .a = sequence, .b = first};
  return ranks_tell(ranks, &call, sizeof call, pages, (size_t)n * sizeof *pages, err);
}

Status calls_tell(Ranks *ranks, CallKind kind, int state, int a, int b, Error *err) {
  const Call call = {.kind = (int32_t)kind, .state = state, .a = a, .b = b};
  return ranks_tell(ranks, &call, sizeof call, NULL, 0, err);
}

/* --- the other ranks */

static Status run_step(const Backend *backend, BackendState *s, const Call *call, const char *more,
                       Error *err) {
  TokenRange span = call->span;
  bool done;
  const size_t parts = call->span.parts ? (size_t)span.n_parts * sizeof *span.parts : 0;
  const int32_t *ids = (const int32_t *)(more + parts);
  span.parts = parts ? (const SequenceRows *)more : NULL;
  span.logit_rows = call->n_picked > 0 ? ids + call->n_ids : NULL;
  span.taps = NULL;
  span.ids = call->n_ids > 0 ? ids : NULL;
  return call->kind == CALL_LOGITS ? backend->run[OP_LOGITS](s, span, 0, err)
                                   : backend->fused_step(s, span, &done, err);
}

static bool has_size(const Call *call, size_t more) {
  const TokenRange *span = &call->span;
  const bool counts = call->n_ids >= 0 && call->n_picked >= 0 && span->n_parts >= 0 && call->state >= 0 &&
                      call->state < RANKS_NUMBERS;
  const size_t parts = span->parts ? (size_t)span->n_parts * sizeof *span->parts : 0;
  return counts && more == parts + ((size_t)call->n_ids + (size_t)call->n_picked) * sizeof(int32_t);
}

static Status run_call(const Backend *backend, BackendModel *loaded, BackendState **states,
                       const Buffer *message, Error *err) {
  Call call;
  if (message->size < sizeof call) return error_set(err, STATUS_FAILED, "a call is too short");
  memcpy(&call, message->data, sizeof call);
  const char *more = message->data + sizeof call;
  if (!has_size(&call, message->size - sizeof call) ||
      (call.kind == CALL_OPEN) != (states[call.state] == NULL))
    return error_set(err, STATUS_FAILED, "a call of rank 0 makes no sense here");
  BackendState *s = states[call.state];
  switch ((CallKind)call.kind) {
  case CALL_OPEN: return backend->open(loaded, &call.options, &states[call.state], err);
  case CALL_CLOSE:
    backend->close(s);
    states[call.state] = NULL;
    return STATUS_OK;
  case CALL_STEP:
  case CALL_LOGITS: return run_step(backend, s, &call, more, err);
  case CALL_SET_PAGES: return backend->set_pages(s, call.a, call.b, (const int32_t *)more, call.n_ids, err);
  case CALL_COPY_PAGE: return backend->copy_page(s, call.a, call.b, err);
  case CALL_SAVE: return backend->state_save(s, call.a, err);
  case CALL_RESTORE: return backend->state_restore(s, call.a, err);
  }
  return error_set(err, STATUS_FAILED, "rank 0 made an unknown call");
}

Status calls_repeat(Ranks *ranks, const Backend *backend, BackendModel *loaded, Error *err) {
  BackendState *states[RANKS_NUMBERS] = {0};
  OWNED(buffer_release) Buffer message = {0};
  for (;;) { /* open states end with the process */
    TRY(ranks_take_call(ranks, &message, err));
    TRY(run_call(backend, loaded, states, &message, err));
  }
}
