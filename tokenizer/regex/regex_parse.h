/* regex_parse.h - private to regex*.c: translates Oniguruma's language to PCRE2's; sets of characters are not
 * divided into kinds yet. */
#pragma once

#include "tokenizer/regex/charset.h"

/* A unit below UNIT_SET is a byte of a PCRE2 pattern; from there on it stands for sets[unit - UNIT_SET]. */
#define UNIT_SET 256u

typedef struct {
  const char *where;
  const unsigned char *text; /* [size] the pattern, valid UTF-8 */
  size_t size, at;
  int depth; /* nesting of groups and classes */
  uint32_t *units;
  size_t n_units, units_capacity;
  CharSet *sets; /* [n_sets], no two equal */
  size_t n_sets, sets_capacity;
  uint32_t literals[3]; /* [n_literals] the last literals in a row, if case is ignored: note_literal() */
  size_t n_literals;
} RegexParser;

/* Parses parser->text; units and sets belong to the caller, also after a failure. */
Status regex_parse(RegexParser *parser, Error *err);

/* The rest is shared between regex_parse.c and regex_class.c. */

/* Fails with "WHERE: regular expression at byte N: " and the message; always returns STATUS_MODEL. */
Status regex_refuse(const RegexParser *parser, Error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads the current character and moves past it; STATUS_MODEL at the end. */
Status regex_next(RegexParser *parser, uint32_t *code, Error *err);
static inline bool regex_looking_at(const RegexParser *parser, char c) {
  return parser->at < parser->size && parser->text[parser->at] == (unsigned char)c;
}

/* Parses an escape, inside a class or outside of it (where \w is slightly larger). `letter` is the character
 * after the backslash, and the parser is past it. If *is_set, the escape means a set of characters, which is
 * added to `set`; else *code is the character that it means. */
Status regex_escape(RegexParser *parser, uint32_t letter, bool in_class, bool *is_set, uint32_t *code,
                    CharSet *set, Error *err);

/* Parses a class after its '[' into `set`, with case folded if asked. */
Status regex_class(RegexParser *parser, bool ignore_case, CharSet *set, Error *err);
