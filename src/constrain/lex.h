/* lex.h - states inside a JSON string or number: a table over bytes, lazily filled.
 *
 * A state holds the languages that still may follow: first the one of what is allowed at all, then those
 * of the open child's goals, whose verdicts they give (none where there is one goal and it is what is
 * allowed). Escapes are decoded on the way. */
#pragma once

#include "constrain/machine.h"

enum { LEX_NONE = 0 };

struct Lex {
  bool number;
  uint8_t
      escape; /* 0: none; 1: after '\'; 2..5: in \uXXXX; 6, 7: before the second \u of a pair; 8..11: in it */
  uint32_t code;  /* hexadecimal digits so far */
  uint32_t langs; /* index of the first language in lex_langs */
  uint32_t n;     /* number of languages, at least 1 */
  uint32_t *next; /* [256] LANG_UNKNOWN where not computed; NULL: nothing was */
};

/* A string (after its quote) or a number with the given languages; LEX_NONE if nothing can follow. */
uint32_t lex_begin(Machine *m, bool number, const Lang *langs, uint32_t n);
/* The state after a byte inside; LEX_NONE: refused. A string's closing quote is no such byte. */
uint32_t lex_next(Machine *m, uint32_t lex, unsigned char byte);
/* True if the string's quote may follow, or the number may end. */
bool lex_may_end(const Machine *m, uint32_t lex);
/* True if what may follow is min to max (LANG_NO_END: any number) characters, whatever they are. */
bool lex_is_counter(const Machine *m, uint32_t lex, uint32_t *min, uint32_t *max);
/* True if the verdicts are the same for every text that the string may be. */
bool lex_is_indifferent(const Machine *m, uint32_t lex);
/* The verdicts of n goals at the end. */
void lex_verdicts(const Machine *m, uint32_t lex, bool *verdicts, uint32_t n);
