/* rows.h - the rows of a step on the device: positions, ids, rope tables, and what they append to the
 * cache. */
#pragma once

#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/one/state.h"

/* Backend.cuts_rows. */
bool rows_cut(const BackendState *s, TokenRange span);

/* Moves the span.n_kept rows that are still needed to the front of x, and of `from`, fp16
 * [n_tokens][from_stride]. */
Status rows_keep(BackendState *s, TokenRange span, void *from, int from_stride, Error *err);

/* Writes the step's positions and ids to device memory, and draft_seen if the session has it. Without
 * span.ids it writes no ids: the sampler has written its pick to rows.ids[0], or no ids are read
 * (draft_context()). */
Status rows_set(BackendState *s, TokenRange span, Error *err);

/* A rope's angles at the step's positions. Long texts (LongRoPE) have a global rope of their own. */
RopeAngles rows_rope_angles(const BackendState *s, TokenRange span, LayerRope which);

/* Fills the step's tables of angles, one for each rope that the model has. */
Status rows_rope_tables(BackendState *s, TokenRange span, Error *err);

/* The norm of x and the matmul qkv. *done: the matmul's epilogue also does what rows_append() does. That
 * depends on the layer, the cache's type and the number of rows. */
Status rows_project_heads(BackendState *s, int layer, int n_rows, bool *done, Error *err);

/* Clips and norms the rows of s->projections, and applies the rope to queries and keys. Writes queries to
 * s->q, keys and values to the layer's cache. */
Status rows_append(BackendState *s, int layer, int n_rows, Error *err);
