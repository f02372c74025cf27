/* text.c - text that records its trust; see text.h.
 *
 * Always true: the runs of a TrustedText cover it exactly and neighbours differ. */
#include "tokenizer/jinja/text.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/unicode/unicode.h"

/* --- views */

const TextRun text_trusted[1] = {{SIZE_MAX, true}}, text_foreign[1] = {{SIZE_MAX, false}};

/* The run with byte `at`. */
static size_t run_at(Text text, size_t at) {
  size_t low = 0, high = text.n_runs;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (text.runs[middle - 1].end - text.shift <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

Text text_slice(Text text, size_t from, size_t to) {
  if (from == to) return text_of(text.data + from, 0, true);
  if (text.n_runs == 1) {
    bool trusted = text.runs[0].trusted;
    return text_of(text.data + from, to - from, trusted);
  }
  size_t first = run_at(text, from), last = run_at(text, to - 1);
  return (Text){text.data + from, to - from, text.runs + first, last - first + 1, text.shift + from};
}

bool text_trusted_at(Text text, size_t at) {
  return text.runs[run_at(text, at)].trusted;
}

bool text_equal(Text a, Text b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

int text_compare(Text a, Text b) {
  size_t n = a.size < b.size ? a.size : b.size;
  int order = n ? memcmp(a.data, b.data, n) : 0;
  return order ? order : (a.size > b.size) - (a.size < b.size);
}

size_t text_find(Text text, Text needle, size_t from, size_t to) {
  if (from > to || to - from < needle.size) return SIZE_MAX;
  if (needle.size == 0) return from;
  const char *found = memmem(text.data + from, to - from, needle.data, needle.size);
  return found ? (size_t)(found - text.data) : SIZE_MAX;
}

size_t text_find_last(Text text, Text needle, size_t from, size_t to) {
  if (from > to || to - from < needle.size) return SIZE_MAX;
  if (needle.size == 0) return to;
  for (size_t at = to - needle.size;; at--) {
    if (memcmp(text.data + at, needle.data, needle.size) == 0) return at;
    if (at == from) return SIZE_MAX;
  }
}

size_t text_count(Text text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size; i++) count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
  return count;
}

size_t text_offset(Text text, size_t characters) {
  size_t at = 0;
  for (; at < text.size && characters > 0; characters--) at += text_step(text, at);
  return at;
}

uint32_t text_code(Text text, size_t at) {
  uint32_t code = 0;
  utf8_decode(text.data + at, text.size - at, &code);
  return code;
}

bool code_is_space(uint32_t code) {
  return (code >= 0x1c && code <= 0x1f) || (unicode_value(&unicode_flags, code) & CHAR_SPACE);
}

const char *code_category(uint32_t code) {
  return unicode_category_names[unicode_value(&unicode_categories, code)];
}

static bool is_stripped(Text text, size_t at, size_t size, const Text *characters) {
  if (!characters) return code_is_space(text_code(text, at));
  return text_find(*characters, text_slice(text, at, at + size), 0, characters->size) != SIZE_MAX;
}

Text text_strip(Text text, int sides) {
  return text_strip_some(text, NULL, sides, SIZE_MAX);
}

Text text_strip_some(Text text, const Text *characters, int sides, size_t most) {
  size_t from = 0, to = text.size;
  for (size_t n = 0; (sides & STRIP_LEFT) && from < to && n < most; n++) {
    size_t size = text_step(text, from);
    if (!is_stripped(text, from, size, characters)) break;
    from += size;
  }
  for (size_t n = 0; (sides & STRIP_RIGHT) && to > from && n < most; n++) {
    size_t at = utf8_before(text.data, to);
    if (!is_stripped(text, at, to - at, characters)) break;
    to = at;
  }
  return text_slice(text, from, to);
}

/* --- text that grows */

static Status append_run(TrustedText *out, size_t size, bool trusted, Error *err) {
  if (out->n_runs && out->runs[out->n_runs - 1].trusted == trusted) {
    out->runs[out->n_runs - 1].end += size;
    return STATUS_OK;
  }
  TRY(mem_grow(&out->runs, &out->capacity, out->n_runs + 1, sizeof *out->runs, "a chat prompt", err));
  size_t begin = out->n_runs ? out->runs[out->n_runs - 1].end : 0;
  out->runs[out->n_runs++] = (TextRun){begin + size, trusted};
  return STATUS_OK;
}

Status trusted_text_append(TrustedText *out, Text text, Error *err) {
  TRY(buffer_append(&out->text, text.data, text.size, err));
  size_t at = 0;
  for (size_t i = 0; at < text.size; i++) {
    size_t end = text.runs[i].end - text.shift;
    if (end > text.size) end = text.size;
    TRY(append_run(out, end - at, text.runs[i].trusted, err));
    at = end;
  }
  return STATUS_OK;
}

void trusted_text_truncate(TrustedText *out, size_t size) {
  if (size >= out->text.size) return;
  out->text.size = size;
  while (out->n_runs && (out->n_runs > 1 ? out->runs[out->n_runs - 2].end : 0) >= size) out->n_runs--;
  if (out->n_runs) out->runs[out->n_runs - 1].end = size;
}

void trusted_text_release(TrustedText *text) {
  buffer_release(&text->text);
  free(text->runs);
  *text = (TrustedText){0};
}
