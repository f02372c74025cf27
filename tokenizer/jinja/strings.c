/* strings.c - Python's string operations, for methods and filters; see strings.h. */
#include "tokenizer/jinja/strings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/unicode/unicode.h"

/* --- joining */

static Status tail_run(Render *render, size_t end, bool trusted) {
  Tail *tail = &render->tail;
  if (tail->n_runs && tail->runs[tail->n_runs - 1].trusted == trusted) {
    tail->runs[tail->n_runs - 1].end = end;
    return STATUS_OK;
  }
  /* Texts that share the old runs keep them. */
  TRY(render_grow(render, &tail->runs, tail->n_runs, &tail->run_capacity, sizeof *tail->runs));
  tail->runs[tail->n_runs++] = (TextRun){end, trusted};
  return STATUS_OK;
}

/* Appends a text, which may be a part of the tail. PRECOND there is room */
static Status tail_append(Render *render, Text text) {
  Tail *tail = &render->tail;
  size_t at = 0, before = tail->size;
  TRY(render_charge_bytes(render, text.size));
  if (text.size) memcpy(tail->data + before, text.data, text.size);
  tail->size += text.size;
  for (size_t i = 0; at < text.size; i++) {
    size_t end = text.runs[i].end - text.shift;
    at = end < text.size ? end : text.size;
    TRY(tail_run(render, before + at, text.runs[i].trusted));
    if (i % 16 == 15) TRY(render_charge(render, 1));
  }
  return STATUS_OK;
}

Status string_appended(Render *render, Text a, Text b, Text *out) {
  Tail *tail = &render->tail;
  if (b.size > RENDER_MAX_TEXT - a.size)
    return render_fail(render, "a text would have more than %zu MB", RENDER_MAX_TEXT >> 20);
  size_t size = a.size + b.size;
  bool grows = tail->data && a.data == tail->data && a.size == tail->size && size <= tail->capacity;
  if (!grows) {
    size_t capacity = size < APPENDED_IN_PLACE ? size : 2 * size;
    char *data;
    TRY(render_alloc(render, &data, capacity, 1));
    *tail = (Tail){.data = data, .capacity = capacity};
    TRY(tail_append(render, a));
  }
  TRY(tail_append(render, b));
  *out = text_of(tail->data, size, tail->n_runs == 0 || tail->runs[0].trusted);
  if (tail->n_runs < 2) return STATUS_OK;
  out->runs = tail->runs;
  out->n_runs = tail->n_runs;
  return STATUS_OK;
}

/* --- replacing, padding, lines */

/* Replaces an empty string: `new` comes before each character and at the end. */
static Status put_between_characters(Render *render, Text text, Text new, int64_t count) {
  size_t at = 0;
  for (; count != 0; count -= count > 0) {
    TRY(put_text(render, new));
    if (at == text.size) return STATUS_OK;
    size_t next = at + text_step(text, at);
    TRY(put_text(render, text_slice(text, at, next)));
    at = next;
  }
  return put_text(render, text_slice(text, at, text.size));
}

Status string_replaced(Render *render, Text text, Text old, Text new, int64_t count, Value *out) {
  size_t mark = put_mark(render), from = 0;
  TRY(render_charge_bytes(render, text.size));
  if (old.size == 0) {
    TRY(put_between_characters(render, text, new, count));
    return put_take(render, mark, out);
  }
  for (; count != 0; count -= count > 0) {
    size_t at = text_find(text, old, from, text.size);
    if (at == SIZE_MAX) break;
    TRY(put_text(render, text_slice(text, from, at)));
    TRY(put_text(render, new));
    from = at + old.size;
  }
  if (from == 0) return value_text(render, text, out);
  TRY(put_text(render, text_slice(text, from, text.size)));
  return put_take(render, mark, out);
}

Status string_repeated(Render *render, Text text, size_t times, Text *out) {
  size_t size;
  *out = text_literal("");
  if (text.size == 0 || times == 0) return STATUS_OK;
  if (__builtin_mul_overflow(text.size, times, &size) || size > RENDER_MAX_TEXT)
    return render_fail(render, "a text would have more than %zu MB", RENDER_MAX_TEXT >> 20);
  TRY(render_charge_bytes(render, size));
  char *copies;
  TRY(render_alloc(render, &copies, size, 1));
  memcpy(copies, text.data, text.size);
  for (size_t done = text.size; done < size; done += done <= size - done ? done : size - done)
    memcpy(copies + done, copies, done <= size - done ? done : size - done);
  *out = text_of(copies, size, text.runs[0].trusted);
  if (text.n_runs == 1) return STATUS_OK;
  size_t mark = put_mark(render); /* each copy keeps its runs */
  Value repeated;
  for (size_t i = 0; i < times; i++) TRY(put_text(render, text));
  TRY(put_take(render, mark, &repeated));
  *out = *repeated.text;
  return STATUS_OK;
}

Status put_repeated(Render *render, Text text, int64_t times) {
  Text all;
  TRY(string_repeated(render, text, times > 0 ? (size_t)times : 0, &all));
  return put_text(render, all);
}

Status string_padded(Render *render, Text text, int64_t width, Text fill, Padding padding, Value *out) {
  TRY(render_charge_bytes(render, text.size));
  size_t length = text_count(text),
         missing = width > 0 && (uint64_t)width > length ? (size_t)width - length : 0;
  size_t left = padding == PAD_LEFT ? missing : 0;
  if (padding == PAD_BOTH) left = missing / 2 + (missing & (size_t)width & 1); /* as CPython rounds */
  size_t mark = put_mark(render);
  TRY(put_repeated(render, fill, (int64_t)left));
  TRY(put_text(render, text));
  TRY(put_repeated(render, fill, (int64_t)(missing - left)));
  return put_take(render, mark, out);
}

/* The characters at which splitlines() ends a line, besides \r\n. */
static bool ends_line(uint32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

/* Steps are charged after every 64 characters, since each may cost a search of all of `characters`. */
Status string_stripped(Render *render, Text text, const Text *characters, int sides, Text *out) {
  const size_t looks = characters ? characters->size / 16 + 1 : 1;
  for (size_t before = SIZE_MAX; text.size < before;) {
    before = text.size;
    text = text_strip_some(text, characters, sides, 64);
    TRY(render_charge(render, (before - text.size) * looks));
  }
  *out = text;
  return STATUS_OK;
}

/* Returns the offset after the line that begins at `from`; *end is the end of its text. */
static size_t pass_line(Text text, size_t from, size_t *end) {
  size_t at = from;
  while (at < text.size && !ends_line(text_code(text, at))) at += text_step(text, at);
  *end = at;
  if (at == text.size) return at;
  bool both = text.data[at] == '\r' && at + 1 < text.size && text.data[at + 1] == '\n';
  return at + (both ? 2 : text_step(text, at));
}

Status string_lines(Render *render, Text text, bool keep_ends, Value *out) {
  Value *items;
  size_t count = 0, end;
  TRY(render_charge(render, text.size / 8));
  for (size_t at = 0; at < text.size; at = pass_line(text, at, &end)) count++;
  TRY(value_list(render, count, &items, out));
  for (size_t at = 0, next; at < text.size; at = next) {
    next = pass_line(text, at, &end);
    TRY(value_text(render, text_slice(text, at, keep_ends ? next : end), items++));
  }
  return STATUS_OK;
}

Status string_joined(Render *render, Text separator, Value items, bool convert, Value *out) {
  Cursor cursor;
  size_t mark = put_mark(render);
  TRY(cursor_begin(render, items, &cursor));
  for (size_t i = 0;; i++) {
    Value item;
    bool more;
    TRY(cursor_next(render, &cursor, &item, &more));
    if (!more) return put_take(render, mark, out);
    if (i) TRY(put_text(render, separator));
    if (!convert && item.kind != VALUE_STRING)
      return render_fail(render, "sequence item %zu: expected str instance, %s found", i, value_type(item));
    TRY(put_string(render, item));
  }
}

bool string_is_alnum(uint32_t code) {
  return strchr("LN", code_category(code)[0]);
}

/* --- numbers in text */

/* Copies a number's text as a C string, without white space around it and without a '_' between two digits or
 * letters. False for any other '_' or space, or if the text is empty, too long or not printable ASCII. */
static bool copy_number(Text text, char *out, size_t size) {
  text = text_strip(text, STRIP_LEFT | STRIP_RIGHT);
  size_t n = 0;
  for (size_t i = 0; i < text.size; i++) {
    char c = text.data[i];
    if (c == '_') {
      bool between = i > 0 && i + 1 < text.size && string_is_alnum((unsigned char)text.data[i - 1] & 0x7f) &&
                     string_is_alnum((unsigned char)text.data[i + 1] & 0x7f);
      if (!between) return false;
      continue;
    }
    if (c <= ' ' || c > '~' || n + 1 >= size) return false;
    out[n++] = c;
  }
  out[n] = '\0';
  return n > 0;
}

bool string_to_int(Text text, int base, int64_t *out) {
  char copy[400];
  if ((base != 0 && (base < 2 || base > 36)) || !copy_number(text, copy, sizeof copy)) return false;
  const char *at = copy;
  bool negative = *at == '-';
  if (*at == '-' || *at == '+') at++;
  char mark = at[0] == '0' ? (char)(at[1] | 0x20) : '\0';
  int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked && (base == marked || base == 0)) {
    at += 2;
    base = marked;
  } else if (base == 0) {
    if (at[0] == '0' && at[strspn(at, "0")]) return false;
    base = 10;
  }
  int64_t value = 0;
  if (!*at) return false;
  for (; *at; at++) {
    int digit = digit_value(*at);
    if (digit >= base) return false;
    if (__builtin_mul_overflow(value, (int64_t)base, &value) ||
        __builtin_sub_overflow(value, (int64_t)digit, &value))
      return false;
  }
  return negative ? (*out = value, true) : !__builtin_sub_overflow((int64_t)0, value, out);
}

bool string_to_float(Text text, double *out) {
  char copy[400];
  if (!copy_number(text, copy, sizeof copy)) return false;
  const char *at = copy + (copy[0] == '-' || copy[0] == '+');
  bool word = strcasecmp(at, "inf") == 0 || strcasecmp(at, "infinity") == 0 || strcasecmp(at, "nan") == 0;
  if (!word && strspn(at, "0123456789.eE+-") != strlen(at)) return false;
  char *end;
  *out = strtod(copy, &end);
  return *end == '\0';
}
