/* ngram_rows.h - reads a table's rows for the n-grams that end with a token. Called by: cpu/mixers/streams.c,
 * cuda/one/layers/streams.c. Any thread may call it. */
#pragma once

#include "model/model.h"

/* to[ngrams->width] = the table's rows, one after another, for the n-grams that end with tokens[0]. The token
 * before it is tokens[1], and so on to tokens[ngrams->longest - 1]. See add_ngrams in operations.def. */
void ngram_read_rows(const NgramConfig *ngrams, const NgramHash *hash, const ModelLayer *table,
                     const int32_t *tokens, float *to);
