/* lang_internal.h - the expressions of lang.h. Private to this folder and lex.c. */
#pragma once

#include "constrain/lang/lang.h"

typedef enum { EMPTY, SET, THEN, OR, AND, NOT, REPEAT, MULTIPLE } LangKind;

/*   SET       a: index of the set
 *   THEN      a, b: the first part (never a THEN) and the rest
 *   OR, AND   a: index of the first part in lists, b: number of parts, which are sorted by number
 *   NOT       a
 *   REPEAT    a, min, b: max
 *   MULTIPLE  a: index in divisors, b: remainder, min: what else was read so far (pack() in multiple.c)
 * LANG_NONE is an OR without parts, LANG_ALL its NOT. */
struct LangNode {
  uint8_t kind;
  bool has_empty;             /* contains the empty string */
  bool plain;                 /* LANG_ALL, or has no AND, NOT or MULTIPLE; has a string unless LANG_NONE */
  bool text;                  /* known to have only valid UTF-8 */
  bool counts;                /* has a repetition that lang_relaxed() changes */
  bool multiples;             /* contains a MULTIPLE */
  bool single;                /* lang_declare_single() */
  uint8_t alive;              /* 0 unknown, 1 has a string, 2 has none */
  uint8_t endless, takes_any; /* lang_is_endless(), takes_any_beginning(): 0 unknown, 1 true, 2 false */
  uint8_t character_set, wide_all, wide_any; /* set by look() in lang_classes.c */
  uint16_t depth; /* nesting of expressions; the second part of a THEN adds no level */
  uint32_t a, b, min;
  uint32_t derivation, derived; /* number of the last derivation that met the node; the node's derivative */
  uint32_t collection;          /* number of the last union of derivatives that has the expression */
  uint32_t round;               /* number of the last search that met the expression */
  uint32_t shortest; /* lang_shortest() + 1; 0: not searched yet; LANG_UNKNOWN: a search met its limit */
  uint32_t relaxed;  /* lang_relaxed() + 1, 0: not made yet */
  uint32_t *next;    /* a row of byte_classes.h; NULL: no derivative is kept */
};

static inline ByteSet byte_set_none(void) {
  return (ByteSet){{0}};
}
static inline void byte_set_add(ByteSet *set, unsigned byte) {
  set->bits[byte >> 6] |= UINT64_C(1) << (byte & 63);
}
static inline bool byte_set_has(const ByteSet *set, unsigned byte) {
  return set->bits[byte >> 6] >> (byte & 63) & 1;
}
static inline void byte_set_keep(ByteSet *set, const ByteSet *other, bool inverted) {
  for (int i = 0; i < 4; i++) set->bits[i] &= inverted ? ~other->bits[i] : other->bits[i];
}

/* True if lang_relaxed() may drop the limit `max` of a repetition. text: what is repeated is text. A string
 * of up to LANG_RELAXED characters cannot hold more than LANG_RELAXED repetitions. */
static inline bool is_relaxable(bool text, uint32_t max) {
  return text && max >= LANG_RELAXED && max != LANG_NO_END;
}

/* Finds or adds an expression; sets its depth and `multiples` from its parts. */
Lang lang_node(Langs *langs, LangNode node);
/* True if each string of `a` is one character; false where the expression does not show that. */
bool lang_is_character_set(Langs *langs, Lang a);
/* The derivative of a MULTIPLE; keeps in `cell` only bytes with the same derivative. */
Lang multiple_next(Langs *langs, LangNode node, unsigned char byte, ByteSet *cell);
/* True if the number that a MULTIPLE has read so far is no multiple, and only an exponent can make it one.
 * Its fraction then has at least as many digits as a multiple's fraction can have. */
bool multiple_needs_exponent(const Langs *langs, LangNode node);
/* True if a MULTIPLE has read no point and no exponent, and its divisor is a whole number. */
bool multiple_is_whole(const Langs *langs, LangNode node);
/* Writes n / 2 digits to out[0..*size), after a point if n is odd. Appended to the number that a MULTIPLE has
 * read, they make it a multiple. *size is 0 if no such digits exist or are needed, or if the fraction would
 * have over Divisor.scale digits. False: n is MULTIPLE_WITNESSES or more, or the number has an exponent. */
#define MULTIPLE_WITNESSES 24
bool multiple_witness(const Langs *langs, LangNode node, int n, char out[80], size_t *size);
