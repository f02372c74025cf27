/* altup.h - AltUp's residual streams, and LAuReL (AltupConfig; model/operations.def). Called by:
 * table.c. */
#pragma once

#include "cuda/one/state.h"

/* Each function only enqueues. altup_begin(): makes the streams of n_rows rows from the embeddings s->x.
 * altup_add_input(): adds the RMSNorm of the layer's input projection of s->g (layer_end()) to all streams
 * but the first. altup_join(): makes `out`, f16 [n_rows][h_stride], the head's input: with span.parts for the
 * rows in rows.logit_rows, else for n_rows rows from first_row. */
Status altup_begin(BackendState *s, int n_rows, Error *err);
Status altup_add_input(BackendState *s, int layer, int n_rows, Error *err);
Status altup_join(BackendState *s, TokenRange span, int first_row, int n_rows, void *out, Error *err);

/* The backend's operations. */
Operation cuda_predict_streams, cuda_add_laurel, cuda_correct_streams;
