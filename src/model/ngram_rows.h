/* ngram_rows.h - reads a table's rows for the n-grams that end with a token. Called by: cpu/mixers/streams.c,
 * cuda/one/layers/streams.c. Any thread may call it. */
#pragma once

#include "model/model.h"

/* to[ngrams->width] = the table's rows, one after another, for the n-grams of tokens[ngrams->longest], which
 * holds the token, then the one before it, and so on. See add_ngrams in operations.def. */
void ngram_read_rows(const NgramConfig *ngrams, const NgramHash *hash, const ModelLayer *table,
                     const int32_t *tokens, float *to);
