/* fuzz_regex.c - hostile regular expressions over hostile texts: an expression is refused with a message,
 * or its matches and what lies between them cover the text, each of whole characters, in little time.
 *
 * The input is an expression, a NUL, and the text; every eighth text is looked at once more as often as
 * makes it long: what takes longer than the limit of time shows as a slow unit. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/regex/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
  if (!condition) abort();
}

static void check(const Regex *regex, const char *text, size_t size) {
  RegexScratch scratch = {0};
  ByteSpanList spans = {0};
  Error err = {{0}};
  Status status = regex_spans(regex, &scratch, text, size, 0, &spans, &err);
  require(status == STATUS_OK || (status == STATUS_MODEL && err.text[0]));
  size_t at = 0;
  for (size_t i = 0; status == STATUS_OK && i < spans.count; i++) {
    ByteSpan span = spans.items[i];
    require(span.start == at && span.end >= at && (span.match || span.end > at));
    require(span.match || i == 0 || spans.items[i - 1].match);
    require(utf8_valid_prefix(text + at, span.end - at) == span.end - at);
    require(span.end > at || regex_matches_empty(regex));
    at = span.end;
  }
  require(status != STATUS_OK || at == size);
  byte_span_list_release(&spans);
  regex_scratch_release(&scratch);
}

static void check_long(const Regex *regex, const char *text, size_t size) {
  Buffer repeated = {0};
  while (size > 0 && repeated.size + size < 1 << 18)
    require(buffer_append(&repeated, text, size, NULL) == STATUS_OK);
  if (repeated.size > 0) check(regex, repeated.data, repeated.size);
  buffer_release(&repeated);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *pattern = (const char *)data, *nul = size ? memchr(pattern, 0, size) : NULL;
  size_t n = nul ? (size_t)(nul - pattern) : size, n_text = nul ? size - n - 1 : 0;
  if (utf8_valid_prefix(pattern, n) != n) return 0; /* JSON has no other strings */
  Regex *regex = NULL;
  Error err = {{0}};
  Status status = regex_compile("fuzz", pattern, n, &regex, &err);
  if (status != STATUS_OK)
    require(status == STATUS_MODEL && err.text[0]);
  else
    check(regex, nul ? nul + 1 : "", nul ? utf8_valid_prefix(nul + 1, n_text) : 0);
  if (regex && nul && n_text % 8 == 7) check_long(regex, nul + 1, utf8_valid_prefix(nul + 1, n_text));
  regex_free(regex);
  return 0;
}
