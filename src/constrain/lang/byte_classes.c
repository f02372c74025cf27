/* byte_classes.c - see byte_classes.h. */
#include "constrain/lang/byte_classes.h"

#include <string.h>

#define MAX_BYTES ((size_t)1 << 28) /* bytes of all rows; langs_tidy() keeps fewer from token to token */

/* The next byte of the set from `byte` on; 256: there are no more. */
static unsigned next_of(const ByteSet *set, unsigned byte) {
  for (; byte < 256; byte = (byte | 63) + 1) {
    const uint64_t left = set->bits[byte >> 6] >> (byte & 63);
    if (left) return byte + (unsigned)__builtin_ctzll(left);
  }
  return 256;
}

void byte_classes_begin(ByteClasses *c) {
  *c = (ByteClasses){.n = 1, .size = {256}};
}

void byte_classes_divide(ByteClasses *c, const ByteSet *set) {
  uint16_t inside[256] = {0}, fresh[256];
  const uint32_t n_before = c->n;
  for (unsigned byte = next_of(set, 0); byte < 256; byte = next_of(set, byte + 1)) inside[c->of[byte]]++;
  for (unsigned byte = next_of(set, 0); byte < 256; byte = next_of(set, byte + 1)) {
    const uint8_t class = c->of[byte];
    if (class >= n_before || inside[class] == c->size[class]) continue;
    if (inside[class] > 0) { /* this is the first byte of the class in the set */
      fresh[class] = (uint16_t)c->n;
      c->parent[c->n] = class;
      c->first[c->n] = (uint8_t)byte;
      c->size[c->n++] = inside[class];
      c->size[class] -= inside[class];
      inside[class] = 0;
    }
    c->of[byte] = (uint8_t)fresh[class];
  }
  for (uint32_t fresh_class = n_before; fresh_class < c->n; fresh_class++) {
    const uint8_t class = c->parent[fresh_class];
    unsigned byte = c->first[class];
    while (c->of[byte] != class) byte++;
    c->first[class] = (uint8_t)byte;
  }
}

uint32_t *byte_row_make(Langs *langs) {
  const uint32_t n = langs->classes.n;
  if (langs->rows.total > MAX_BYTES) {
    langs_fail(langs, STATUS_USAGE, "the transitions of one step need over 256 MB");
    return NULL;
  }
  uint32_t *row = arena_alloc(&langs->rows, 1 + (size_t)n, sizeof *row, NULL);
  if (!row) return langs_fail(langs, STATUS_FAILED, "out of memory"), NULL;
  row[0] = n;
  memset(row + 1, 0xff, n * sizeof *row);
  return row;
}
