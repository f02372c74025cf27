/* byte_classes.h - classes of bytes that no set of a store divides, and rows. A row has the derivatives of an
 * expression, one for each class. A new set that has only a part of a class divides the class in two. Older
 * rows stay as they are: there a new class has the entry of the class that it was divided from. */
#pragma once

#include "constrain/lang/lang_internal.h"

/* Begins with one class, of all bytes. */
void byte_classes_begin(ByteClasses *classes);
/* Divides classes so that the set is a union of them. */
void byte_classes_divide(ByteClasses *classes, const ByteSet *set);

/* Makes a row: its number of classes, then an entry for each class. An entry is LANG_UNKNOWN until it is
 * derived. NULL on failure. */
uint32_t *byte_row_make(Langs *langs);

/* byte_row_class(): a class's entry in a row; the class may be newer than the row. byte_row_entry(): a byte's
 * entry. */
static inline uint32_t *byte_row_class(const ByteClasses *classes, uint32_t *row, uint32_t class) {
  while (class >= row[0]) class = classes->parent[class];
  return &row[1 + class];
}
static inline uint32_t *byte_row_entry(const ByteClasses *classes, uint32_t *row, unsigned byte) {
  return byte_row_class(classes, row, classes->of[byte]);
}
