/* lex.h - states inside a JSON string or number: a table over bytes, lazily filled.
 *
 * A state holds languages of what may follow. The first is that of all allowed texts. Each goal of the open
 * child has one more, with the empty string if the text so far satisfies the goal. If there is no
 * goal, or every allowed text satisfies the only one, the state holds only the first language. Escapes are
 * decoded on the way. */
#pragma once

#include "constrain/machine.h"

enum { LEX_NONE = 0 };

struct Lex {
  bool number;
  /* Position in an escape, by the byte that comes next. 0: none has begun; 1: after '\'; 2..5: a digit of
   * \uXXXX; in the low surrogate after a high one 6: '\', 7: 'u', 8..11: a digit. */
  uint8_t escape;
  uint32_t code;  /* value of the digits so far; from escape 6 on without the fixed bits of surrogates */
  uint32_t langs; /* index of the first language in lex_langs */
  uint32_t n;     /* number of languages, at least 1 */
  uint32_t left;  /* characters that may follow; LANG_NO_END: any number */
  uint32_t *next; /* [256] state after each byte, LANG_UNKNOWN: not computed; NULL: none was computed */

  uint32_t mark; /* number of the last search that met the state (lex_masks.c) */

  /* Found by lex_classes(). */
  bool classed;
  bool between;      /* no character and no escape has begun */
  uint64_t all, any; /* classes (vocabulary.h): all their characters, or some, may follow. All characters
                        above U+007F of a class in `all` lead to one state. */
  uint32_t wide[6];  /* for each class in `all` from CLASS_WIDE on: the state that its characters lead to */
};

/* The state of a string (after its quote) or a number with these languages. LEX_NONE: no text is allowed. */
uint32_t lex_begin(Machine *m, bool number, const Lang *langs, uint32_t n);
/* Forgets all states but `kept`; returns the new number of `kept`, LEX_NONE on failure. */
uint32_t lex_forget(Machine *m, uint32_t kept);
/* The state after a byte of the text; LEX_NONE: refused. A string's closing quote is not part of the text. */
uint32_t lex_next(Machine *m, uint32_t lex, unsigned char byte);
/* The state of the same text without a limit on characters and without goals. */
uint32_t lex_alone(Machine *m, uint32_t lex);
/* The state with lang_relaxed() of its language. PRECOND a state of lex_alone() */
uint32_t lex_relaxed(Machine *m, uint32_t lex);
/* As lex_alone(), but with a limit of `left` characters. */
uint32_t lex_with_left(Machine *m, uint32_t lex, uint32_t left);
/* lang_ends_within(): true if the string can end within `left` characters after this state of lex_alone(). */
bool lex_ends_within(Machine *m, uint32_t lex, uint32_t left);
/* True if the string may go on with bytes[0..size), which have no escapes, and end within `left` characters,
 * counted from the first byte. Unlike lex_next() this makes no states on the way. PRECOND a state of
 * lex_alone(), between characters */
bool lex_takes_plainly(Machine *m, uint32_t lex, const char *bytes, size_t size, uint32_t left);
/* lang_shortest(): the least number of characters that follow this state of lex_alone(). */
uint32_t lex_shortest(Machine *m, uint32_t lex);
/* The state, with its members all, any, wide and between computed. */
const Lex *lex_classes(Machine *m, uint32_t lex);
/* True if the string's quote may follow, or the number may end. */
bool lex_may_end(const Machine *m, uint32_t lex);
/* True if what may follow is min to max (LANG_NO_END: any number) characters, whatever they are. */
bool lex_is_counter(const Machine *m, uint32_t lex, uint32_t *min, uint32_t *max);
/* True if any text may follow inside the string, which then has no limit on its characters. */
bool lex_takes_any_text(const Machine *m, uint32_t lex);
/* A hash of lex_verdicts(). */
uint64_t lex_verdict_hash(const Machine *m, uint32_t lex);
/* verdicts[i], i < n: whether goal i is satisfied if the string or number ends here. */
void lex_verdicts(const Machine *m, uint32_t lex, bool *verdicts, uint32_t n);
