/* size_text.h - a number of bytes as readable text: "12.3 MiB", "900 bytes". */
#pragma once

#include <stdint.h>

typedef struct {
  char text[32];
} SizeText;

SizeText size_text(uint64_t bytes);

/* The size in the largest unit ("bytes", "KiB", ... "EiB") that keeps the number at 1 or more. */
double size_in_unit(uint64_t bytes, const char **unit);
