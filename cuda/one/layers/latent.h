/* latent.h - multi-head latent attention (LatentConfig): all but attention itself. Called by: table.c. Each
 * function only enqueues. */
#pragma once

#include "cuda/one/state.h"

/* Computes s->q and the tokens' rows in the cache from the RMSNorm of the residual stream. */
Status latent_project(BackendState *s, int layer, int n_rows, Error *err);
/* Multiplies what attention wrote to s->head_x by the heads' gates. PRECOND config.attn_gate is by head. */
Status latent_gate(BackendState *s, int n_rows, Error *err);
/* Computes s->a, [n_rows][n_heads * value_dim, padded], from what attention wrote to s->head_x. */
Status latent_values(BackendState *s, int layer, int n_rows, Error *err);
