/* draft.h - what a drafter computes outside its layers (config.h, DraftKind): the operation draft_embed, and
 * the backend's draft_take, draft_move and draft_context. */
#pragma once

#include "cuda/one/state.h"

/* Makes lm_head of a drafter with round_head: the target's, rounded to 4 bits. Does nothing for other models,
 * or if the target's lm_head cannot be rounded (linear_can_round()). PRECOND the weights are loaded. */
Status draft_load(BackendModel *loaded, Error *err);
void draft_unload(BackendModel *loaded);
/* Checks that there are kernels for every number of rows up to max_tokens, and makes the workspace large
 * enough. Does nothing for a model that is no drafter. */
Status draft_prepare(BackendModel *loaded, int max_tokens, Error *err);
Status draft_take(BackendState *s, BackendState *target, int row, int n, const int *taps, int to, Error *err);
Status draft_move(BackendState *s, int from, int to, Error *err);
Operation cuda_draft_embed;
Status draft_context(BackendState *s, TokenRange span, Error *err);
