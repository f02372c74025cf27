/* did_you_mean.h - suggests the word that a mistyped word probably meant. */
#pragma once

#include <stddef.h>

typedef struct {
  const char *text; /* [size] the typed text */
  size_t size;
  const char *word; /* [word_size] the best candidate so far; NULL: none is close enough */
  size_t word_size;
  int cost;
} Suggestion;

Suggestion suggestion_begin(const char *text, size_t size);

/* Considers a candidate. Best is one that begins with the text (at least three letters, or any number after
 * two dashes): first the text itself with other leading dashes, then those with the text's dashes, then those
 * with fewer further letters. Next best is the candidate with the fewest edits, at most two and at most a
 * third of the letters (rounded); of equals, one with the text's dashes. A wrong first letter counts twice:
 * it is rarely mistyped. Case is ignored, and _ counts as -. Flags of a single letter are never suggested. */
void suggestion_consider(Suggestion *nearest, const char *word, size_t size);
