/* tokens.h - from logits to tokens: the backend's read_logits, sample, wait_token, drain and sample_rows.
 * several/ calls their parts one by one on each GPU. */
#pragma once

#include "cuda/kernels/fused/step.h"
#include "engine/backend.h"

const double *tokens_row_costs(const BackendModel *loaded);
Status tokens_read_logits(BackendState *s, int row, float *out, Error *err);
/* Forgets picks that were made ahead and not asked for. Call it when rows of logits are made anew. */
void tokens_forget_picks(BackendState *s);
/* Returns the deferred pick, which the next fused step has to make. The pick is then no longer deferred.
 * StepPick.token NULL: there is none. */
StepPick tokens_take_deferred(BackendState *s);
/* Enqueues the deferred pick. Call it before anything else that makes logits or waits for the pick. */
Status tokens_enqueue_deferred(BackendState *s, Error *err);
/* How many bytes less a fused step at `pos` reads with picks by this sampler (fused_head_spares()). */
size_t tokens_head_spares(const BackendState *s, const Sampler *sampler, int pos);
/* Copies the logits that the other GPUs have made in a fused step, if they are not here yet. */
Status tokens_join_logits(BackendState *s, Error *err);
/* Completes the logits of the last step: those that a fused step left out because only the best were wanted
 * (BackendState.top_made), and those of other GPUs. */
Status tokens_make_logits(BackendState *s, Error *err);
/* tokens_gather(): completes the logits that the sampler's next pick needs; sampler NULL: all logits.
 * tokens_meet(): true if a pick from `row` needs logits of other GPUs. Then all GPUs have to call
 * tokens_gather() at the same time: each waits for the others. */
bool tokens_meet(const BackendState *s, const Sampler *sampler, int row);
Status tokens_gather(BackendState *s, const Sampler *sampler, Error *err);
Status tokens_wait(BackendState *s, int32_t *id, Error *err);
Status tokens_drain(BackendState *s, Error *err);
Status tokens_sample(BackendState *s, Sampler *sampler, int row, int32_t *id, Error *err);
Status tokens_sample_rows(BackendState *s, Sampler *const *samplers, int n, int32_t *ids, Error *err);
/* Puts the picked tokens in place of TOKEN_PICKED. PRECOND sequences_set_step() has described the step */
Status tokens_fill(BackendState *s, TokenRange span, Error *err);

/* The first half of tokens_sample(): enqueues the pick from `row` with the sampler's next draw, unless an
 * earlier call has enqueued it. The caller then takes the draw. waits: the caller waits for this pick before
 * it asks for the next. Then a call can also pick from all later rows (PicksAhead). */
Status tokens_pick(BackendState *s, const Sampler *sampler, int row, bool waits, Error *err);

/* The parts of tokens_sample_rows(). tokens_take_draws() takes the samplers' draws and lists the picks; or
 * tokens_copy_draws() copies another GPU's list. tokens_pick_rows() enqueues the picks. tokens_take_rows()
 * waits for the picks of the oldest step whose picks were not taken. */
Status tokens_take_draws(BackendState *s, Sampler *const *samplers, int n, Error *err);
void tokens_copy_draws(BackendState *s, BackendState *from);
Status tokens_pick_rows(BackendState *s, Sampler *const *samplers, Error *err);
Status tokens_take_rows(BackendState *s, int32_t *ids, Error *err);
