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
 * span.ids it writes no ids: the sampler has written its pick to rows.ids[0]. */
Status rows_set(BackendState *s, TokenRange span, Error *err);

/* A rope's angles at the step's positions. Long texts (LongRoPE) have a global rope of their own. */
RopeAngles rows_rope_angles(const BackendState *s, TokenRange span, LayerRope which);

/* Fills the step's table of the rope's angles. */
Status rows_rope_table(BackendState *s, TokenRange span, LayerRope which, Error *err);

/* The heads of a layer, for ops_qk_norm_rope_append(). */
QkvHeads rows_heads(const BackendState *s, int layer);

/* True if the layer's heads have the sizes and the arithmetic for which a matmul's epilogue
 * (LINEAR_NEXT_HEADS) can do what rows_append() does. */
bool rows_heads_are_tiles(const DeviceLayer *layer, const QkvHeads *heads);

/* The norm of x and the matmul qkv, whose epilogue does what rows_append() does. *done false: no epilogue
 * does that for this layer, cache type or number of rows, and nothing was enqueued. */
Status rows_project_heads(BackendState *s, int layer, int n_rows, bool *done, Error *err);

/* Clips and norms the rows of s->projections, applies the rope to queries and keys, and writes queries to
 * s->q, keys and values to the layer's cache. */
Status rows_append(BackendState *s, int layer, int n_rows, Error *err);
