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

/* Considers a word that could have been typed. It is near enough where a third of the letters, rounded, are
 * amiss at most, a wrong first letter counting twice (it is rarely mistyped), or where the text begins it.
 * Leading dashes and upper case count for nothing, but between equals. */
void nearest_consider(Nearest *nearest, const char *word, size_t size);

#endif
