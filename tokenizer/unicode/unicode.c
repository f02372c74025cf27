/* unicode.c - lookups in the generated tables of unicode_tables.c; see unicode.h.
 *
 * For whole texts build a KindMap or a set once instead of looking up each character. */
#include "tokenizer/unicode/unicode.h"

uint32_t unicode_value(const RunTable *table, uint32_t code) {
  size_t low = 0, high = table->count; /* runs[low] starts at or before code, runs[high] after it */
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (RUN_START(table->runs[middle]) <= code) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return RUN_VALUE(table->runs[low]);
}

uint32_t unicode_case(const CaseTable *table, uint32_t code) {
  size_t low = 0, high = table->count; /* series[0 .. low) begin at or before code */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (table->series[middle].first <= code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  /* In interleaved series the series that holds the code need not be the nearest. */
  for (size_t i = low, seen = 0; i > 0 && seen < CASE_WINDOW; i--, seen++) {
    const CaseSeries *s = &table->series[i - 1];
    if (code <= s->last && (code - s->first) % (uint32_t)s->stride == 0)
      return (uint32_t)((int32_t)code + s->delta);
  }
  return code;
}
