/* pattern.h - the patterns of Split and Replace: a literal string or a regular expression. */
#pragma once

#include "base/json.h"
#include "tokenizer/regex/regex.h"

/* Exactly one of `literal` and `regex` is set. */
typedef struct {
  char *literal; /* [size], not empty */
  size_t size;
  Regex *regex;
} Pattern;

/* Loads {"String": ...} or {"Regex": ...}. Release it also after a failure. */
Status pattern_load(const char *where, const Json *json, Pattern *pattern, Error *err);
/* Makes a literal pattern. PRECOND size > 0 */
Status pattern_literal(const char *bytes, size_t size, Pattern *pattern, Error *err);
void pattern_release(Pattern *pattern);

bool pattern_matches_empty(const Pattern *pattern);

/* As regex_spans(). */
Status pattern_spans(const Pattern *pattern, RegexScratch *scratch, const char *text, size_t size,
                     size_t shift, ByteSpanList *spans, Error *err);

/* Limit of the size to which a tokenizer's steps can grow a text: sixty steps that double it would fill the
 * memory. Real steps make up to three bytes of one, compatibility forms up to eleven. */
typedef struct {
  const char *where; /* "FILE: normalizer", begins the message */
  size_t limit;      /* bytes */
} Growth;
Growth growth_of(const char *where, size_t size);
Status growth_refused(Growth growth, Error *err); /* STATUS_MODEL */

/* Appends text[0 .. size) with every match replaced; refused if `out` exceeds the limit. */
Status pattern_replace(const Pattern *pattern, RegexScratch *scratch, const char *text, size_t size,
                       const char *content, size_t content_size, Growth growth, Buffer *out, Error *err);
