/* size_text.h - how many bytes, as a person reads it: "12.3 MiB", "900 bytes". */
#ifndef AUK_BASE_SIZE_TEXT_H
#define AUK_BASE_SIZE_TEXT_H

#include <stdint.h>

typedef struct {
  char text[32];
} SizeText;

SizeText size_text(uint64_t bytes);

/* The same as a number, for who shows other digits of it: in the largest of "bytes", "KiB", ... "EiB" of
 * which it is one or more. */
double size_in_unit(uint64_t bytes, const char **unit);

#endif
