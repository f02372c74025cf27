/* guide.h - the sections of auk(1) that explain how flags work together. */
#pragma once

#include <stddef.h>

/* Paragraphs are separated by empty lines; lines that begin with a space are verbatim. */
typedef struct {
  const char *title, *text;
} GuideSection;
extern const GuideSection guide[];
extern const size_t n_guide;
