/* streams.h - residual streams and n-grams of tokens (StreamConfig, NgramConfig;
 * model/operations.def). Called by: table.c, open.c. */
#pragma once

#include "cuda/one/state.h"

/* Makes the hashes of n-grams, and of a dummy model the table's rows. */
void streams_open(BackendState *s);

/* Each function only enqueues. streams_begin(): every stream of the rows becomes x. streams_mix_logits():
 * `out`, fp16 [n_rows][h_stride], becomes the head's input: with span.parts for the rows in rows.logit_rows,
 * else for n_rows rows from first_row. */
Status streams_begin(BackendState *s, int n_rows, Error *err);
Status streams_mix_logits(BackendState *s, TokenRange span, int first_row, int n_rows, void *out, Error *err);

/* The backend's operations. */
Operation cuda_mix_for_attention, cuda_mix_for_mlp, cuda_inject_streams, cuda_add_ngrams;
