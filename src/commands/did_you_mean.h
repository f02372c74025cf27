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

/* Considers a candidate. Best are words that begin with the text, if it has at least three letters or two
 * dashes: first an equal word, whatever its dashes; then a word with as many dashes; then the word with the
 * fewest further letters. Next best is the word with the fewest edits, at most two and at most a third of the
 * letters (rounded); of equals, a word with as many dashes. A wrong first letter counts twice: it is rarely
 * mistyped. Case is ignored, and _ counts as -. Flags of a single letter are never suggested. */
void suggestion_consider(Suggestion *nearest, const char *word, size_t size);
