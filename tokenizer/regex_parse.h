/* regex_parse.h - private to regex*.c: Oniguruma's language to PCRE2's, over sets that are still to be
 * divided. */
#ifndef AUK_TOKENIZER_REGEX_PARSE_H
#define AUK_TOKENIZER_REGEX_PARSE_H

#include "tokenizer/charset.h"

/* A unit below UNIT_SET is a byte of a PCRE2 pattern; from there on it stands for sets[unit - UNIT_SET]. */
#define UNIT_SET 256u

typedef struct {
  const char *where;
  const unsigned char *text; /* [size] the pattern, valid UTF-8 */
  size_t size, at;
  int depth; /* of groups and classes */
  uint32_t *units;
  size_t n_units, units_capacity;
  CharSet *sets; /* [n_sets], no two equal */
  size_t n_sets, sets_capacity;
  uint32_t literals[3]; /* the last characters in a row that are matched without regard to case */
  size_t n_literals;
} RegexParser;

/* Parses parser->text; units and sets belong to the caller, also after a failure. */
Status regex_parse(RegexParser *parser, Error *err);

/* The rest is shared between regex_parse.c and regex_class.c. */

/* "WHERE: regular expression at byte N: " and the message; always returns STATUS_MODEL. */
Status regex_refuse(const RegexParser *parser, Error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The character at the current place, which it passes over; STATUS_MODEL at the end. */
Status regex_next(RegexParser *parser, uint32_t *code, Error *err);
static inline bool regex_looking_at(const RegexParser *parser, char c) {
  return parser->at < parser->size && parser->text[parser->at] == (unsigned char)c;
}

/* Parses what follows a backslash where it means one character or one set of them, inside a class or outside
 * of it (where \w is a little larger). *is_set tells which came; the set is added to `set`. `letter` is what
 * follows the backslash and was passed over. */
Status regex_escape(RegexParser *parser, uint32_t letter, bool in_class, bool *is_set, uint32_t *code,
                    CharSet *set, Error *err);

/* Parses a class behind its '[' into `set`, case folded where asked. */
Status regex_class(RegexParser *parser, bool ignore_case, CharSet *set, Error *err);

#endif
