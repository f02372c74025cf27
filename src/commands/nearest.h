/* nearest.h - the word that a mistyped one was probably meant to be. */
#ifndef AUK_COMMANDS_NEAREST_H
#define AUK_COMMANDS_NEAREST_H

#include <stddef.h>

typedef struct {
  const char *text; /* what was typed, [size] */
  size_t size;
  const char *word; /* [word_size] the nearest of those considered so far; NULL: none is near enough */
  size_t word_size;
  int cost;
} Nearest;

Nearest nearest_begin(const char *text, size_t size);

/* Considers a word that could have been typed. Nearest is what begins with the text (of three letters at
 * least, or behind two dashes): with as many dashes, and the fewest letters more. Then comes what has the
 * fewest letters amiss: a third of them, rounded, at most, a wrong first letter counting twice (it is rarely
 * mistyped). Upper case counts for nothing, nor do leading dashes but between equals and for a flag of one
 * letter, which is not meant by one of two dashes. */
void nearest_consider(Nearest *nearest, const char *word, size_t size);

#endif
