/* tokens.h - from logits to tokens: the backend's read_logits, sample, wait_token, drain and sample_rows, and
 * the steps that they are made of, for GPUs that share a model. */
#pragma once

#include "cuda/kernels/fused/step.h"
#include "engine/backend.h"

const double *tokens_row_costs(const BackendModel *loaded);
Status tokens_read_logits(BackendState *s, int row, float *out, Error *err);
/* Drops the picks made ahead and not asked for yet, since the rows of logits are made anew. */
void tokens_forget_picks(BackendState *s);
/* A pick may be left to the next step, if that is a fused one (StepPick). This function describes that pick
 * to the step; token NULL: there is no such pick. */
StepPick tokens_take_deferred(BackendState *s);
/* Enqueues the pick that was left to the next step. Call it before anything else that makes logits or waits
 * for the pick. */
Status tokens_enqueue_deferred(BackendState *s, Error *err);
/* Bytes of lm_head that a fused step at `pos` need not read if picks are by this sampler. */
size_t tokens_head_spares(const BackendState *s, const Sampler *sampler, int pos);
/* Copies the logits that the other GPUs have made in a fused step, if they are not here yet. */
Status tokens_join_logits(BackendState *s, Error *err);
/* Makes all logits of a fused step that was enqueued for the best ones alone (BackendState.n_best). */
Status tokens_make_logits(BackendState *s, Error *err);
/* tokens_gather(): makes sure of the logits that a pick needs, or without a sampler of all. tokens_meet():
 * true if all GPUs have to call it at once, since each waits for the others. */
bool tokens_meet(const BackendState *s, const Sampler *sampler, int row);
Status tokens_gather(BackendState *s, const Sampler *sampler, Error *err);
Status tokens_wait(BackendState *s, int32_t *id, Error *err);
Status tokens_drain(BackendState *s, Error *err);
Status tokens_sample(BackendState *s, Sampler *sampler, int row, int32_t *id, Error *err);
Status tokens_sample_rows(BackendState *s, Sampler *const *samplers, int n, int32_t *ids, Error *err);

/* The first half of tokens_sample(): enqueues the pick from `row` with the sampler's next draw, unless an
 * earlier call has picked from this row already: after a step with guesses the first call picks from all
 * rows. The caller then takes the draw. waits: the caller waits for the pick before it asks for another, so
 * that later rows may be picked from in advance. */
Status tokens_pick(BackendState *s, const Sampler *sampler, int row, bool waits, Error *err);

/* tokens_sample_rows() in steps: describes the picks with their random numbers, or takes another state's;
 * enqueues them; waits for them. */
Status tokens_take_draws(BackendState *s, Sampler *const *samplers, int n, Error *err);
void tokens_copy_draws(BackendState *s, const BackendState *from);
Status tokens_pick_rows(BackendState *s, Sampler *const *samplers, Error *err);
Status tokens_take_rows(BackendState *s, int32_t *ids, Error *err);
