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

/* Considers a candidate. Best is a candidate that begins with the text (at least three letters, or any number
 * after two dashes). Better among these: as many leading dashes as the text, then fewer further letters. Next
 * best is the candidate with the fewest edits, at most two and at most a third of the letters (rounded). A
 * wrong first letter counts twice: it is rarely mistyped. Leading dashes only break ties. Case is ignored,
 * and _ counts as -. Flags of a single letter are never suggested. */
void suggestion_consider(Suggestion *nearest, const char *word, size_t size);
