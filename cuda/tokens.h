/* tokens.h - from logits to tokens: the backend's row_costs, read_logits, sample, wait_token, drain and
 * sample_rows. */
#pragma once

#include "engine/backend.h"

const double *tokens_row_costs(const BackendModel *loaded);
Status tokens_read_logits(BackendState *s, int row, float *out, Error *err);
/* Rows of logits are made anew: what was picked from them and not asked for yet does not count. */
void tokens_forget_picks(BackendState *s);
Status cuda_sample(BackendState *s, Sampler *sampler, int row, int32_t *id, Error *err);
Status tokens_wait(BackendState *s, int32_t *id, Error *err);
Status tokens_drain(BackendState *s, Error *err);
Status tokens_sample_rows(BackendState *s, Sampler *const *samplers, int n, int32_t *ids, Error *err);
