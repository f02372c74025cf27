/* latent.h - multi-head latent attention around attention itself (LatentConfig). Called by: backend.c,
 * state.c, weights.c. The functions that compute only enqueue. */
#pragma once

#include "cuda/one/state.h"

/* Numbers of a row of s->latent_in: queries, or their latent, then kv_a's outputs, then the heads' gates. */
int latent_inputs(const ModelConfig *config);

/* Takes memory for all layers' key_halves and value_halves, once key_heads and value_heads are laid out.
 * latent_fill_halves() fills the memory once key_heads and value_heads have their weights. */
void latent_place_halves(BackendModel *loaded, DeviceArena *arena);
Status latent_fill_halves(BackendModel *loaded, Error *err);

/* Computes s->q and the tokens' rows in the cache from the RMSNorm of the residual stream. */
Status latent_project(BackendState *s, int layer, int n_rows, Error *err);
/* Multiplies what attention wrote to s->head_x by the heads' gates. PRECOND config.attn_gate is by head. */
Status latent_gate(BackendState *s, int n_rows, Error *err);
/* Computes s->a, [n_rows][n_heads * value_dim, padded], from what attention wrote to s->head_x. */
Status latent_values(BackendState *s, int layer, int n_rows, Error *err);
