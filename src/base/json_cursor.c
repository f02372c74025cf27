/* json_cursor.c - walks valid JSON text without building a tree.
 *
 * Always true: a cursor never passes its end, even over a text that was not validated. */
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"

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
    if (!at_byte(cursor, ',')) { /* the caller did not skip the element before */
      cursor->at = cursor->end;
      return false;
    }
    cursor->at = json_pass_space(cursor->at + 1, cursor->end);
  }
  return cursor->at < cursor->end;
}

/* The first byte after the string at `at`. PRECOND *at == '"' */
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

/* The first byte after the number or literal at `at`. */
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
    } else if (strchr(" \t\r\n,:", c)) { /* also matches NUL, which valid JSON does not hold */
      at++;
    } else {
      at = pass_word(at, end);
    }
    if (depth == 0) break;
  }
  cursor->at = at;
  return (JsonSpan){from, (size_t)(at - from)};
}

const char *json_cursor_describe(JsonCursor cursor, char text[64]) {
  const JsonSpan value = json_cursor_value(&cursor);
  if (value.size == 0) return "missing";
  if (*value.text == '{') return "an object";
  const bool cut = value.size > 40;
  snprintf(text, 64, "%.*s%s", cut ? 40 : (int)value.size, value.text, cut ? "..." : "");
  return text;
}

JsonSpan json_span_find(JsonSpan object, const char *key, size_t size) {
  JsonCursor cursor = json_cursor(object);
  JsonSpan found = {0};
  Buffer name = {0};
  bool first = true, is_key;
  if (!json_cursor_enter(&cursor, '{')) return found;
  while (!found.text && json_cursor_next(&cursor, &first)) {
    name.size = 0;
    if (json_cursor_string(&cursor, &name, &is_key, NULL) != STATUS_OK) break;
    const JsonSpan value = json_cursor_value(&cursor);
    if (name.size == size && (size == 0 || memcmp(name.data, key, size) == 0)) found = value;
  }
  buffer_release(&name);
  return found;
}

JsonSpan json_span_member(JsonSpan object, const char *key) {
  return json_span_find(object, key, strlen(key));
}
