/* charset.h - sets of code points, as regular expressions build them. */
#pragma once

#include <stdbool.h>

#include "base/status.h"
#include "tokenizer/unicode/unicode.h"

typedef struct {
  uint32_t first, last; /* inclusive */
} CharRange;

/* A set of code points, empty when zero-initialised. It is tidy if its ranges are sorted, disjoint and not
 * adjacent. Members are appended untidily: the set is sorted when its memory is full, and at the end. */
typedef struct {
  CharRange *ranges; /* [count] */
  size_t count, capacity;
} CharSet;

void charset_release(CharSet *set); /* leaves the set empty */

void charset_tidy(CharSet *set);

/* Adds [first, last] and leaves `set` untidy. PRECOND first <= last < UNICODE_END */
Status charset_add(CharSet *set, uint32_t first, uint32_t last, Error *err);
/* Adds all members of `other` and leaves `set` untidy. */
Status charset_unite(CharSet *set, const CharSet *other, Error *err);
/* Adds `part` or, if negated, its complement, which `part` then becomes. Leaves `set` untidy. */
Status charset_take(CharSet *set, CharSet *part, bool negated, Error *err);

/* The functions from here on leave `set` tidy. charset_add_flags() adds the code points whose value in the
 * table has a bit of `mask`, charset_add_value() those whose value is `value`. */
Status charset_add_flags(CharSet *set, const RunTable *table, uint32_t mask, Error *err);
Status charset_add_value(CharSet *set, const RunTable *table, uint32_t value, Error *err);
Status charset_complement(CharSet *set, Error *err);
/* Keeps the members that are also in `other`. PRECOND other is tidy */
Status charset_intersect(CharSet *set, const CharSet *other, Error *err);
/* Adds every code point that equals a member if case is ignored. */
Status charset_fold(CharSet *set, Error *err);

/* PRECOND all sets are tidy */
bool charset_contains(const CharSet *set, uint32_t code);
bool charset_equal(const CharSet *a, const CharSet *b);
