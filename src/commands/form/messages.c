/* messages.c - see messages.h.
 * Always true: the texts were accepted by json_parse(). */
#include "commands/form/messages.h"

#include <stdio.h>
#include <string.h>

static bool begins(JsonSpan value, char first) {
  return value.text && value.text[0] == first;
}

static bool is_empty_list(JsonSpan value) {
  JsonCursor cursor = json_cursor(value);
  bool first = true;
  return begins(value, '[') && json_cursor_enter(&cursor, '[') && !json_cursor_next(&cursor, &first);
}

static bool is_null(JsonSpan value) {
  return begins(value, 'n');
}

/* --- objects, member by member */

typedef struct {
  JsonCursor cursor;
  bool first;
  Buffer key; /* the member's key, NUL-terminated */
  JsonSpan value;
} Members;

static void members_release(Members *m) {
  buffer_release(&m->key);
}

static bool members_enter(Members *m, JsonSpan object) {
  *m = (Members){.cursor = json_cursor(object), .first = true};
  return begins(object, '{') && json_cursor_enter(&m->cursor, '{');
}

static Status members_read(Members *m, Error *err) {
  bool is_string;
  m->key.size = 0;
  TRY(json_cursor_string(&m->cursor, &m->key, &is_string, err));
  TRY(buffer_append(&m->key, "", 1, err));
  m->value = json_cursor_value(&m->cursor);
  return STATUS_OK;
}

static bool has_key(const Members *m, const char *key) {
  return strcmp(m->key.data, key) == 0;
}

/* Appends a member's key, after a comma unless it is the first. `start`: where the members begin in `out`. */
static Status append_key(const char *key, size_t size, size_t start, Buffer *out, Error *err) {
  if (out->size > start) TRY(buffer_append(out, ", ", 2, err));
  TRY(json_write_string(out, key, size, err));
  return buffer_append(out, ": ", 2, err);
}

static Status append_value(JsonSpan value, Buffer *out, Error *err) {
  return buffer_append(out, value.text, value.size, err);
}

/* --- calls */

typedef struct {
  size_t message, call; /* numbers for error messages */
  JsonSpan name;
} Place;

static Status append_arguments(JsonSpan value, const Place *at, Buffer *out, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  bool is_string;
  if (is_null(value)) return buffer_append(out, "{}", 2, err);
  if (!begins(value, '"')) return append_value(value, out, err);
  JsonCursor cursor = json_cursor(value);
  TRY(json_cursor_string(&cursor, &text, &is_string, err));
  size_t from = 0;
  while (from < text.size && strchr(" \t\r\n", text.data[from])) from++;
  if (from == text.size) return buffer_append(out, "{}", 2, err);
  const bool is_object = text.data[from] == '{' && json_parse("arguments", STATUS_USAGE, text.data, text.size,
                                                              NULL, 0, NULL, NULL) == STATUS_OK;
  if (is_object) return buffer_append(out, text.data, text.size, err);
  return error_set(err, STATUS_USAGE,
                   "message %zu has a call %zu, of %.*s, whose arguments are a string without a JSON object",
                   at->message, at->call, at->name.text ? (int)at->name.size : 10,
                   at->name.text ? at->name.text : "no name");
}

/* Appends a call, {"function": {"name": ..., "arguments": ...}} or the inner object alone. */
static Status append_call(JsonSpan call, Place *at, Buffer *out, Error *err) {
  OWNED(members_release) Members m = {0};
  bool has_arguments = false;
  if (!members_enter(&m, call)) return append_value(call, out, err);
  const bool is_outer = begins(json_span_member(call, "function"), '{');
  TRY(buffer_append(out, "{", 1, err));
  const size_t start = out->size;
  if (!is_outer) at->name = json_span_member(call, "name");
  while (json_cursor_next(&m.cursor, &m.first)) {
    TRY(members_read(&m, err));
    const bool arguments = !is_outer && has_key(&m, "arguments");
    has_arguments |= arguments;
    TRY(append_key(m.key.data, m.key.size - 1, start, out, err));
    TRY(arguments                             ? append_arguments(m.value, at, out, err)
        : is_outer && has_key(&m, "function") ? append_call(m.value, at, out, err)
                                              : append_value(m.value, out, err));
  }
  if (!is_outer && !has_arguments && at->name.text) {
    TRY(append_key("arguments", 9, start, out, err));
    TRY(buffer_append(out, "{}", 2, err));
  }
  return buffer_append(out, "}", 1, err);
}

Status message_append_calls(JsonSpan calls, size_t index, Buffer *out, Error *err) {
  JsonCursor cursor = json_cursor(calls);
  Place at = {.message = index};
  if (!begins(calls, '[') || !json_cursor_enter(&cursor, '[')) return append_value(calls, out, err);
  TRY(buffer_append(out, "[", 1, err));
  for (bool first = true; json_cursor_next(&cursor, &first); at.call++) {
    if (at.call) TRY(buffer_append(out, ", ", 2, err));
    TRY(append_call(json_cursor_value(&cursor), &at, out, err));
  }
  return buffer_append(out, "]", 1, err);
}

/* --- messages */

static const char *const thought_names[] = {"reasoning_content", "thinking", "reasoning"};
enum { N_THOUGHT_NAMES = sizeof thought_names / sizeof *thought_names };

JsonSpan message_thinking(JsonSpan message) {
  for (int i = 0; i < N_THOUGHT_NAMES; i++) {
    const JsonSpan value = json_span_member(message, thought_names[i]);
    if (value.text && !is_null(value)) return value;
  }
  return (JsonSpan){0};
}

/* Appends the thought under each of its names that the message does not have. */
static Status append_thought(JsonSpan message, size_t start, Buffer *out, Error *err) {
  const JsonSpan thought = message_thinking(message);
  for (int i = 0; thought.text && i < N_THOUGHT_NAMES; i++) {
    const JsonSpan own = json_span_member(message, thought_names[i]);
    if (own.text && !is_null(own)) continue;
    TRY(append_key(thought_names[i], strlen(thought_names[i]), start, out, err));
    TRY(append_value(thought, out, err));
  }
  return STATUS_OK;
}

static Status append_message(JsonSpan message, size_t index, Buffer *out, Error *err) {
  OWNED(members_release) Members m = {0};
  if (!members_enter(&m, message)) return append_value(message, out, err);
  TRY(buffer_append(out, "{", 1, err));
  const size_t start = out->size;
  while (json_cursor_next(&m.cursor, &m.first)) {
    TRY(members_read(&m, err));
    if (is_null(m.value) || (has_key(&m, "tool_calls") && is_empty_list(m.value))) continue;
    TRY(append_key(m.key.data, m.key.size - 1, start, out, err));
    TRY(has_key(&m, "tool_calls") ? message_append_calls(m.value, index, out, err)
                                  : append_value(m.value, out, err));
  }
  TRY(append_thought(message, start, out, err));
  return buffer_append(out, "}", 1, err);
}

static Status append_messages(JsonSpan list, Buffer *out, Error *err) {
  JsonCursor cursor = json_cursor(list);
  size_t i = 0;
  if (!begins(list, '[') || !json_cursor_enter(&cursor, '[')) return append_value(list, out, err);
  TRY(buffer_append(out, "[", 1, err));
  for (bool first = true; json_cursor_next(&cursor, &first); i++) {
    if (i) TRY(buffer_append(out, ", ", 2, err));
    TRY(append_message(json_cursor_value(&cursor), i, out, err));
  }
  return buffer_append(out, "]", 1, err);
}

Status messages_append(JsonSpan object, Buffer *out, Error *err) {
  OWNED(members_release) Members m = {0};
  if (!members_enter(&m, object)) return append_value(object, out, err);
  TRY(buffer_append(out, "{", 1, err));
  const size_t start = out->size;
  while (json_cursor_next(&m.cursor, &m.first)) {
    TRY(members_read(&m, err));
    TRY(append_key(m.key.data, m.key.size - 1, start, out, err));
    TRY(has_key(&m, "messages") ? append_messages(m.value, out, err) : append_value(m.value, out, err));
  }
  return buffer_append(out, "}", 1, err);
}
