/* byte_classes.h - bytes that each set of a store has all or none of, and rows of derivatives of an
 * expression, one for each such class. A class divides in two when a set of bytes comes that has a part of
 * it; rows from before that stay as they are: their entry for a class is that of the classes it has divided
 * into. */
#pragma once

#include "constrain/lang/lang_internal.h"

/* One class of all bytes. */
void byte_classes_begin(ByteClasses *classes);
/* Divides classes so that the set is a union of them. */
void byte_classes_divide(ByteClasses *classes, const ByteSet *set);

/* A row: its number of classes, then an entry for each, LANG_UNKNOWN where not derived yet. NULL on
 * failure. */
uint32_t *byte_row_make(Langs *langs);

/* The entry of a row for a class of now, and for a byte. */
static inline uint32_t *byte_row_class(const ByteClasses *classes, uint32_t *row, uint32_t class) {
  while (class >= row[0]) class = classes->parent[class];
  return &row[1 + class];
}
static inline uint32_t *byte_row_entry(const ByteClasses *classes, uint32_t *row, unsigned byte) {
  return byte_row_class(classes, row, classes->of[byte]);
}
