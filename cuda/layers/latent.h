/* latent.h - multi-head latent attention around attention itself (LatentConfig). Called by: backend.c. Each
 * only enqueues. */
#pragma once

#include "cuda/state.h"

/* Numbers of a row of s->latent_in: queries, or their latent, then kv_a's outputs. */
int latent_inputs(const ModelConfig *config);
/* Most rows whose heads are multiplied at once. */
int latent_rows(const ModelConfig *config, int max_chunk);

/* Normalises x, and makes q, and keys and values in the cache. */
Status latent_project(BackendState *s, int layer, int n_rows, Error *err);
/* a = each head's value_heads times what attention left in a. */
Status latent_values(BackendState *s, int layer, int n_rows, Error *err);
