/* index.h - attention layers in which each row chooses the positions that it attends to (IndexerConfig).
 * Called by: table.c. */
#pragma once

#include "cuda/one/state.h"

/* Rows whose positions are chosen at once: scores and chosen positions of a row take much memory in a long
 * text. */
enum { INDEX_ROWS = 128 };

/* True if a row of the step has more whole blocks than the budget allows; always with StateOptions.invariant.
 * False without an indexer. */
bool index_selects(const BackendState *s, TokenRange span);

/* index_keys(): appends the rows' index keys, made from s->projections, to the cache. index_attend(): chooses
 * each row's positions, and attends to no others. Both only enqueue. */
Status index_keys(BackendState *s, int layer, int n_rows, Error *err);
Status index_attend(BackendState *s, int layer, int n_rows, Error *err);
