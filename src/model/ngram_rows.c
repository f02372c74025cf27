/* ngram_rows.c - see ngram_rows.h. */
#include "model/ngram_rows.h"

#include "base/half.h"

/* to = row `row` of a table whose shards have equal numbers of rows. */
static void read_row(const ModelLayer *table, int64_t row, float *to) {
  const int64_t n_rows = table->shards->rows.n_rows;
  const NgramShard *shard = &table->shards[row / n_rows];
  const Matrix *rows = &shard->rows;
  const size_t n = (size_t)rows->n_columns, at = (size_t)(row % n_rows);
  if (!shard->scales.data) {
    floats_read(rows->data, rows->dtype, at * n, n, to);
    return;
  }
  const uint8_t *codes = (const uint8_t *)rows->data + at * n;
  float scale;
  floats_read(shard->scales.data, shard->scales.dtype, shard->scales.n > 1 ? at : 0, 1, &scale);
  for (size_t i = 0; i < n; i++)
    to[i] = scale * (rows->dtype == DTYPE_I8 ? (float)(int8_t)codes[i] : e4m3_to_float(codes[i]));
}

/* An earlier token `empty` ends a text: all tokens before it count as `empty`, too. */
void ngram_read_rows(const NgramConfig *ngrams, const NgramHash *hash, const ModelLayer *table,
                     const int32_t *tokens, float *to) {
  const int n_columns = ngram_columns(ngrams);
  int64_t mixed = tokens[0] * hash->factors[0], first = 0;
  bool ended = false;
  for (int length = 2, h = 0; length <= ngrams->longest; length++) {
    const int32_t before = tokens[length - 1];
    ended = ended || before == ngrams->empty;
    mixed ^= (ended ? ngrams->empty : before) * hash->factors[length - 1];
    for (int i = 0; i < ngrams->n_hashes; i++, h++, to += n_columns) {
      read_row(table, first + mixed % hash->primes[h], to);
      first += hash->primes[h];
    }
  }
}
