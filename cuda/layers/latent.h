/* latent.h - multi-head latent attention around attention itself (LatentConfig). Called by: backend.c. Each
 * only enqueues. */
#pragma once

#include "cuda/state.h"

/* Numbers of a row of s->latent_in: queries, or their latent, then kv_a's outputs. */
int latent_inputs(const ModelConfig *config);
/* Rows in one call of the heads' matmuls: max_chunk, or as many as have 2^15 places (ops/latent.h). */
int latent_rows(const ModelConfig *config, int max_chunk);

/* s->q and the tokens' rows in the cache, from the RMSNorm of the residual stream. */
Status latent_project(BackendState *s, int layer, int n_rows, Error *err);
/* In place: s->a, [n_rows][n_heads][kv_rank] of attention, becomes [n_rows][n_heads * value_dim]. */
Status latent_values(BackendState *s, int layer, int n_rows, Error *err);
