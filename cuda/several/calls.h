/* calls.h - the calls of a Backend that rank 0 makes and the other ranks repeat, each with its part of the
 * model.
 *
 * Called by: several.c on rank 0, before it makes the call itself; commands/ranks/join.c on the other ranks.
 * Nothing comes back: rank 0 picks the tokens, from logits that NCCL brings to it. The watching thread
 * (ranks.h) reports failures. */
#pragma once

#include "cuda/several/ranks.h"
#include "engine/backend.h"

/* The functions of a Backend that are called: its fused_step with CALL_STEP, run[OP_LOGITS] with CALL_LOGITS,
 * state_save and state_restore with the last two. */
typedef enum {
  CALL_OPEN = 1,
  CALL_CLOSE,
  CALL_STEP,
  CALL_LOGITS,
  CALL_SET_PAGES,
  CALL_COPY_PAGE,
  CALL_SAVE,
  CALL_RESTORE
} CallKind;

/* *state: the number of the new session, which the other calls take. */
Status calls_open(Ranks *ranks, const StateOptions *options, int *state, Error *err);
void calls_close(Ranks *ranks, int state);
/* CALL_STEP or CALL_LOGITS */
Status calls_step(Ranks *ranks, CallKind kind, int state, TokenRange span, Error *err);
Status calls_set_pages(Ranks *ranks, int state, int sequence, int first, const int32_t *pages, int n,
                       Error *err);
/* A call whose arguments are integers: CALL_COPY_PAGE a page and its copy, the last two a slot. */
Status calls_tell(Ranks *ranks, CallKind kind, int state, int a, int b, Error *err);

/* Repeats rank 0's calls of a backend until rank 0 ends; then this process ends too. Returns only after a
 * failure. */
Status calls_repeat(Ranks *ranks, const Backend *backend, BackendModel *loaded, Error *err);
