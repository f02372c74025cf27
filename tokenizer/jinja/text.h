/* text.h - private to this folder: text that records its trust.
 *
 * A Text is a view: its bytes live in an arena, in the input or in a literal, and never change. Its runs
 * mark each byte as the template's own (trusted) or as from outside. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "tokenizer/jinja/template.h"

typedef struct {
  const char *data; /* [size] valid UTF-8 */
  size_t size;
  const TextRun
      *runs; /* [n_runs] ends count from `shift` bytes before data; the last run may end after size */
  size_t n_runs, shift;
} Text;

extern const TextRun text_trusted[1], text_foreign[1]; /* one run without end */

static inline Text text_of(const char *data, size_t size, bool trusted) {
  return (Text){data, size, trusted ? text_trusted : text_foreign, 1, 0};
}
static inline Text text_literal(const char *string) {
  return text_of(string, strlen(string), true);
}
/* The bytes [from, to). PRECOND from <= to <= size, both where characters begin. */
Text text_slice(Text text, size_t from, size_t to);
bool text_equal(Text a, Text b);
static inline bool text_is(Text a, const char *string) {
  return a.size == strlen(string) && memcmp(a.data, string, a.size) == 0;
}
int text_compare(Text a, Text b);           /* compares by code points: negative, 0, positive */
bool text_trusted_at(Text text, size_t at); /* True if the byte at `at` is trusted. PRECOND at < size */
/* Offset of the first (last) occurrence in text[from, to), or SIZE_MAX; an empty needle is at `from`
 * (`to`). */
size_t text_find(Text text, Text needle, size_t from, size_t to);
size_t text_find_last(Text text, Text needle, size_t from, size_t to);

size_t text_count(Text text);                          /* in characters */
size_t text_offset(Text text, size_t characters);      /* offset after so many characters, at most size */
static inline size_t text_step(Text text, size_t at) { /* bytes of the character at `at`. PRECOND at < size */
  unsigned char lead = (unsigned char)text.data[at];
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}
uint32_t text_code(Text text, size_t at); /* the character at `at` */

/* White space of Python's str.isspace(), str.strip() and the \s of its regular expressions. */
bool code_is_space(uint32_t code);
const char *code_category(uint32_t code); /* "Lu" */
/* Removes white space on the given sides. text_strip_some() removes at most `most` characters on each side:
 * white space or, if `characters` is not NULL, characters that are in `characters`. */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
Text text_strip(Text text, int sides);
Text text_strip_some(Text text, const Text *characters, int sides, size_t most);

/* Appends to a TrustedText. */
Status trusted_text_append(TrustedText *out, Text text, Error *err);
void trusted_text_truncate(TrustedText *out, size_t size);
