/* charset.h - sets of code points, as regular expressions build them. */
#ifndef AUK_TOKENIZER_CHARSET_H
#define AUK_TOKENIZER_CHARSET_H

#include <stdbool.h>

#include "base/status.h"
#include "tokenizer/unicode.h"

typedef struct {
  uint32_t first, last; /* both belong to it */
} CharRange;

/* Zero-initialise it: the empty set. It is tidy where its ranges are sorted, disjoint and do not touch;
 * members and sets are added behind what is there, so that all of it is sorted once. */
typedef struct {
  CharRange *ranges; /* [count] */
  size_t count, capacity;
} CharSet;

void charset_release(CharSet *set); /* and empty again */

void charset_tidy(CharSet *set);

/* set = set or [first, last], which leaves it untidy. PRECOND first <= last < UNICODE_END */
Status charset_add(CharSet *set, uint32_t first, uint32_t last, Error *err);
/* set = set or other, in the same way. */
Status charset_unite(CharSet *set, const CharSet *other, Error *err);

/* From here on `set` is tidy afterwards. Adds the code points whose value has one of the bits of `mask`, or
 * is `value`. */
Status charset_add_flags(CharSet *set, const RunTable *table, uint32_t mask, Error *err);
Status charset_add_value(CharSet *set, const RunTable *table, uint32_t value, Error *err);
Status charset_complement(CharSet *set, Error *err);
/* set = set and other. PRECOND other is tidy */
Status charset_intersect(CharSet *set, const CharSet *other, Error *err);
/* Adds all that equals a member where case is ignored. */
Status charset_fold(CharSet *set, Error *err);

/* PRECOND all are tidy */
bool charset_contains(const CharSet *set, uint32_t code);
bool charset_equal(const CharSet *a, const CharSet *b);

#endif
