/* pattern.c - finds literal strings and regular expressions alike; see pattern.h. */
#include "tokenizer/regex/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "base/size_text.h"

Status pattern_literal(const char *bytes, size_t size, Pattern *pattern, Error *err) {
  *pattern = (Pattern){.size = size};
  TRY(NEW(pattern->literal, size, "a pattern", err));
  memcpy(pattern->literal, bytes, size);
  return STATUS_OK;
}

Status pattern_load(const char *where, const Json *json, Pattern *pattern, Error *err) {
  *pattern = (Pattern){0};
  const Json *string = json_member(json, "String"), *regex = json_member(json, "Regex");
  const Json *given = string ? string : regex;
  if (!given || json_count(json) != 1 || !json_is_string(given))
    return error_set(err, STATUS_MODEL, "%s: pattern is neither {\"String\": ...} nor {\"Regex\": ...}",
                     where);
  size_t size;
  const char *bytes = json_string(given, &size);
  /* The empty string matches between all characters, like the empty regular expression. */
  if (string && size > 0) return pattern_literal(bytes, size, pattern, err);
  return regex_compile(where, bytes, size, &pattern->regex, err);
}

void pattern_release(Pattern *pattern) {
  free(pattern->literal);
  regex_free(pattern->regex);
  *pattern = (Pattern){0};
}

bool pattern_matches_empty(const Pattern *pattern) {
  return pattern->regex && regex_matches_empty(pattern->regex);
}

Status pattern_spans(const Pattern *pattern, RegexScratch *scratch, const char *text, size_t size,
                     size_t shift, ByteSpanList *spans, Error *err) {
  if (pattern->regex) return regex_spans(pattern->regex, scratch, text, size, shift, spans, err);
  size_t at = 0;
  while (at < size) {
    const char *hit = memmem(text + at, size - at, pattern->literal, pattern->size);
    size_t start = hit ? (size_t)(hit - text) : size;
    if (start > at) TRY(byte_span_add(spans, shift + at, shift + start, false, err));
    if (!hit) break;
    at = start + pattern->size;
    TRY(byte_span_add(spans, shift + start, shift + at, true, err));
  }
  return STATUS_OK;
}

Growth growth_of(const char *where, size_t size) {
  return (Growth){where, size < SIZE_MAX / 64 ? 256 + 32 * size : SIZE_MAX};
}

Status growth_refused(Growth growth, Error *err) {
  return error_set(err, STATUS_MODEL, "%s: makes more than %s of a text", growth.where,
                   size_text(growth.limit).text);
}

Status pattern_replace(const Pattern *pattern, RegexScratch *scratch, const char *text, size_t size,
                       const char *content, size_t content_size, Growth growth, Buffer *out, Error *err) {
  const size_t limit = growth.limit;
  OWNED(byte_span_list_release) ByteSpanList spans = {0};
  TRY(pattern_spans(pattern, scratch, text, size, 0, &spans, err));
  for (size_t i = 0; i < spans.count; i++) {
    ByteSpan span = spans.items[i];
    size_t more = span.match ? content_size : span.end - span.start;
    if (more > limit || out->size > limit - more) return growth_refused(growth, err);
    TRY(buffer_append(out, span.match ? content : text + span.start, more, err));
  }
  return STATUS_OK;
}
