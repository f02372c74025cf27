/* regex.h - the regular expressions of tokenizer.json: Oniguruma's language, matched by PCRE2 over kinds.
 *
 * The reference matches with Oniguruma (syntax ONIG_SYNTAX_ONIGURUMA, UTF-8, Unicode 16). Here an
 * expression is parsed by that language's rules, each of its character sets is worked out by our own
 * tables, and what PCRE2 gets is an expression over kinds (kinds.h), one byte a character, without any
 * Unicode left in it. What PCRE2 has no equal for is refused with its place. */
#ifndef AUK_TOKENIZER_REGEX_H
#define AUK_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

/* A part of a text, in bytes. */
typedef struct {
  uint32_t start, end;
  bool match;
} Span;

typedef struct {
  Span *items; /* [count] */
  size_t count, capacity;
} SpanList;

/* Appends one. PRECOND start <= end <= UINT32_MAX */
Status span_add(SpanList *list, size_t start, size_t end, bool match, Error *err);
void span_list_release(SpanList *list);

typedef struct Regex Regex; /* read-only once compiled: threads may share it */

/* What one thread needs to match with any number of expressions. Zero-initialise it. */
typedef struct RegexScratch {
  uint8_t *kinds;
  size_t capacity;
  void *match_data, *match_context, *jit_stack; /* PCRE2's */

  const volatile int *interrupted; /* see tokenizer_heed() */
  /* The time limit grows with these bytes. The caller sets the size of the whole text that is matched in
   * parts; regex_spans() raises it to the size of a part that is larger. */
  size_t text_size;
  int64_t spent_ns;  /* by all matching so far */
  int64_t looked_ns; /* the clock when it was looked at last; 0 since a pause: it does not run */
  uint64_t work;     /* of callouts since the last look */
  uint32_t places;   /* how many were tried since the last look */
  bool watched;      /* a match had a second try since the last look */
  uint32_t ahead;    /* characters that a match may look ahead before it is watched; 0: the usual number */
} RegexScratch;
void regex_scratch_release(RegexScratch *scratch);
/* Other work follows, whose time does not count. The time of the matching so far does. */
void regex_pause(RegexScratch *scratch);

/* `where` begins the messages: "FILE: pre_tokenizer". Failures are STATUS_MODEL, without memory
 * STATUS_FAILED. */
Status regex_compile(const char *where, const char *pattern, size_t size, Regex **regex, Error *err);
void regex_free(Regex *regex);

/* Whether it can match without taking a character. */
bool regex_matches_empty(const Regex *regex);

/* Appends to `spans` the matches in text[0 .. size) and what lies between them, in order, so that they
 * cover the text; matches may be empty, what is between them is not. An empty match right behind a match
 * does not count (as in the reference). The text is valid UTF-8 shorter than 4 GiB; offsets have `shift`
 * added. An expression is refused (STATUS_MODEL) where all matching with this scratch takes more than 0.5 s
 * and 1.2 us for each byte of its text, in processor time of this thread. */
Status regex_spans(const Regex *regex, RegexScratch *scratch, const char *text, size_t size, size_t shift,
                   SpanList *spans, Error *err);

#endif
