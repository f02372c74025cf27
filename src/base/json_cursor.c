/* json_cursor.c - walks valid JSON without building anything, and writes strings.
 *
 * Called by: tokenizer/ for vocabularies and merges, src/model for safetensors headers, JSON lines.
 * Always true: a cursor never passes its end, even over a text that was not validated. */
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/utf8.h"

JsonCursor json_cursor(JsonSpan span) {
  JsonCursor cursor = {span.text, span.text ? span.text + span.size : NULL};
  cursor.at = json_pass_space(cursor.at, cursor.end);
  return cursor;
}

static bool at_byte(const JsonCursor *cursor, char byte) {
  return cursor->at < cursor->end && *cursor->at == byte;
}

bool json_cursor_enter(JsonCursor *cursor, char open) {
  if (!at_byte(cursor, open)) return false;
  cursor->at++;
  return true;
}

bool json_cursor_next(JsonCursor *cursor, bool *first) {
  bool begin = *first;
  *first = false;
  cursor->at = json_pass_space(cursor->at, cursor->end);
  if (at_byte(cursor, ']') || at_byte(cursor, '}')) {
    cursor->at++;
    return false;
  }
  if (!begin) {
    if (!at_byte(cursor, ',')) { /* the caller did not pass over the element before */
      cursor->at = cursor->end;
      return false;
    }
    cursor->at = json_pass_space(cursor->at + 1, cursor->end);
  }
  return cursor->at < cursor->end;
}

/* Behind the closing quote of the string at `at`. PRECOND *at == '"' */
static const char *pass_string(const char *at, const char *end) {
  for (at++; at < end && *at != '"'; at++) {
    if (*at == '\\' && end - at >= 2) at++;
  }
  return at < end ? at + 1 : end;
}

Status json_cursor_string(JsonCursor *cursor, Buffer *out, bool *is_string, Error *err) {
  *is_string = at_byte(cursor, '"');
  if (!*is_string) return STATUS_OK;
  const char *inside = cursor->at + 1, *behind = pass_string(cursor->at, cursor->end);
  size_t size = behind > inside ? (size_t)(behind - 1 - inside) : 0;
  TRY(json_unescape(inside, size, out, err));
  cursor->at = json_pass_space(behind, cursor->end);
  if (at_byte(cursor, ':')) cursor->at = json_pass_space(cursor->at + 1, cursor->end);
  return STATUS_OK;
}

/* Behind the number or literal at `at`: the first byte that can follow one. */
static const char *pass_word(const char *at, const char *end) {
  while (at < end && !strchr(" \t\r\n,]}", *at)) at++;
  return at;
}

bool json_cursor_int64(JsonCursor *cursor, int64_t *out) {
  if (cursor->at == cursor->end || (*cursor->at != '-' && (*cursor->at < '0' || *cursor->at > '9')))
    return false;
  const char *behind = pass_word(cursor->at, cursor->end);
  if (!json_text_int64(cursor->at, (size_t)(behind - cursor->at), out)) return false;
  cursor->at = behind;
  return true;
}

JsonSpan json_cursor_value(JsonCursor *cursor) {
  const char *from = cursor->at, *at = from, *end = cursor->end;
  size_t depth = 0;
  while (at < end) {
    char c = *at;
    if (c == '"') {
      at = pass_string(at, end);
    } else if (c == '{' || c == '[') {
      depth++;
      at++;
    } else if (c == '}' || c == ']') {
      if (depth) depth--;
      at++;
    } else if (strchr(" \t\r\n,:", c)) { /* a NUL too: there is none in valid JSON */
      at++;
    } else {
      at = pass_word(at, end);
    }
    if (depth == 0) break;
  }
  cursor->at = at;
  return (JsonSpan){from, (size_t)(at - from)};
}

bool json_text_int64(const char *text, size_t size, int64_t *out) {
  const char *at = text, *end = text + size;
  bool negative = at < end && *at == '-';
  if (negative) at++;
  /* The value is `value` times ten to `exponent`; zeros wait in `zeros` until a digit follows them. */
  uint64_t value = 0;
  int64_t exponent = 0, zeros = 0;
  bool fraction = false;
  for (; at < end && *at != 'e' && *at != 'E'; at++) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    if (*at < '0' || *at > '9') return false;
    if (fraction) exponent--;
    zeros++;
    if (*at == '0') continue;
    for (; value && zeros > 0; zeros--)
      if (__builtin_mul_overflow(value, 10u, &value)) return false;
    zeros = 0;
    if (__builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) return false;
  }
  exponent += zeros;
  if (at < end) {
    bool down = ++at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) at++;
    int64_t given = 0;
    for (; at < end; at++) {
      if (*at < '0' || *at > '9') return false;
      if (given < (int64_t)1 << 40)
        given = given * 10 + (*at - '0'); /* beyond any number of digits there can be */
    }
    exponent += down ? -given : given;
  }
  if (value && (exponent < 0 || exponent > 19)) return false;
  for (; value && exponent > 0; exponent--)
    if (__builtin_mul_overflow(value, 10u, &value)) return false;
  if (value > (uint64_t)INT64_MAX + negative) return false;
  *out = negative ? (int64_t)(0 - value) : (int64_t)value;
  return true;
}

Status json_write_string(Buffer *out, const char *text, size_t size, Error *err) {
  TRY(buffer_append(out, "\"", 1, err));
  size_t done = 0; /* text[done .. at) goes out as it is */
  for (size_t at = 0; at < size;) {
    uint32_t code;
    int length = utf8_decode(text + at, size - at, &code);
    bool bad = length <= 0, quoted = !bad && (code == '"' || code == '\\');
    bool unseen = !bad && (code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029);
    size_t step = bad ? utf8_bad_length(text + at, size - at) : (size_t)length;
    if (bad || quoted || unseen) {
      TRY(buffer_append(out, text + done, at - done, err));
      done = at + step;
      if (bad)
        TRY(buffer_append(out, "\xef\xbf\xbd", 3, err));
      else if (quoted)
        TRY(buffer_append(out, (char[]){'\\', (char)code}, 2, err));
      else
        TRY(buffer_printf(out, err, "\\u%04x", (unsigned)code));
    }
    at += step;
  }
  if (done < size) TRY(buffer_append(out, text + done, size - done, err));
  return buffer_append(out, "\"", 1, err);
}
