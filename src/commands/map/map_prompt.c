/* map_prompt.c - see map_prompt.h. Called by: map.c, map_answer.c, run.c.
 * Always true: a JSON record is validated before a cursor walks it, so that cursors never fail. */
#include "commands/map/map_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/size_text.h"
#include "commands/form/messages.h"
#include "commands/form/tools.h"
#include "commands/input_text.h"

/* --- patterns */

static Status add_part(PromptPattern *pattern, PartKind kind, const char *text, size_t size, Error *err) {
  if (kind == PART_TEXT && size == 0) return STATUS_OK;
  return APPEND(pattern->parts, pattern->n_parts, pattern->capacity, "a prompt", err,
                (PatternPart){kind, text, size});
}

Status prompt_pattern_begin(PromptPattern *pattern, const char *text, size_t size, Error *err) {
  return add_part(pattern, PART_TEXT, text, size, err);
}

static bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || (unsigned char)c >= 0x80;
}

/* Length of the placeholder at `text`: {} or, if `names`, {NAME}; 0: there is none. */
static size_t placeholder_at(bool names, const char *text) {
  if (*text != '{') return 0;
  size_t size = 1;
  while (names && in_name(text[size])) size++;
  return text[size] == '}' ? size + 1 : 0;
}

const char *prompt_find_name(const char *text, int *size) {
  for (const char *at = strchr(text, '{'); at; at = strchr(at + strspn(at, "{"), '{')) {
    *size = (int)placeholder_at(true, at);
    if (*size > 2) return at;
  }
  return NULL;
}

static Status add_parts(PromptPattern *pattern, const char *text, bool *has_place, Error *err) {
  const char *from = text, *at = text; /* text[from, at) is plain text */
  while (*at) {
    size_t size = placeholder_at(pattern->json, at),
           quoted = *at == '{' ? placeholder_at(pattern->json, at + 1) : 0;
    if (quoted && at[1 + quoted] == '}') {
      TRY(add_part(pattern, PART_TEXT, from, (size_t)(at - from), err));
      TRY(add_part(pattern, PART_TEXT, at + 1, quoted, err));
      from = at += quoted + 2;
    } else if (size) {
      TRY(add_part(pattern, PART_TEXT, from, (size_t)(at - from), err));
      TRY(add_part(pattern, size > 2 ? PART_MEMBER : PART_RECORD, at + 1, size - 2, err));
      pattern->n_places += size == 2;
      *has_place = true;
      from = at += size;
    } else {
      at++;
    }
  }
  return add_part(pattern, PART_TEXT, from, (size_t)(at - from), err);
}

Status prompt_pattern_parse(PromptPattern *pattern, const char *text, Error *err) {
  if (!text) return add_part(pattern, pattern->json ? PART_ITSELF : PART_RECORD, "", 0, err);
  TRY(text_check("-p", text, err));
  size_t before = pattern->n_parts;
  TRY(add_part(pattern, PART_RECORD, "", 0, err));
  TRY(add_part(pattern, PART_TEXT, "\n", 1, err));
  bool has_place = false;
  TRY(add_parts(pattern, text, &has_place, err));
  if (!has_place && pattern->json)
    return error_set(err, STATUS_USAGE, "-p has no {NAME} for a member of the record, nor {} for all of it");
  if (has_place) { /* drop the record's default place */
    PatternPart *parts = pattern->parts + before;
    pattern->n_parts -= 2;
    memmove(parts, parts + 2, (pattern->n_parts - before) * sizeof *parts);
  }
  return STATUS_OK;
}

void prompt_pattern_release(PromptPattern *pattern) {
  free(pattern->parts);
  *pattern = (PromptPattern){0};
}

/* --- JSON records */

static bool is_null(JsonSpan value) {
  return value.text && value.text[0] == 'n';
}

/* Refuses a record that can have no members, such as a whole list in one line. */
static Status check_object(JsonSpan record, Error *err) {
  if (*record.text == '{') return STATUS_OK;
  return error_set(err, STATUS_USAGE, "the record is %s, expected a JSON object on each line%s",
                   *record.text == '[' ? "a list" : "no object",
                   *record.text == '[' ? " (jq -c .[] makes a line of each element)" : "");
}

/* A member of an object. The span's text is NULL if the member is null or missing. */
static JsonSpan find_member(JsonSpan object, const char *name) {
  const JsonSpan value = json_span_member(object, name);
  return is_null(value) ? (JsonSpan){0} : value;
}

static bool is_string(JsonSpan value) {
  return value.text && value.text[0] == '"';
}

/* Appends a value as a prompt shows it: the content of a string, else its JSON text. */
static Status append_value(JsonSpan value, Buffer *text, Error *err) {
  if (!is_string(value)) return buffer_append(text, value.text, value.size, err);
  JsonCursor cursor = json_cursor(value);
  bool found;
  return json_cursor_string(&cursor, text, &found, err);
}

/* --- conversations */

/* Appends the content of a message: a string, or a list of parts with "text", as in the OpenAI API. */
static Status append_content(JsonSpan content, size_t index, Buffer *text, Error *err) {
  if (is_string(content)) return append_value(content, text, err);
  JsonCursor cursor = json_cursor(content);
  if (!content.text || !json_cursor_enter(&cursor, '['))
    return error_set(err, STATUS_USAGE, "message %zu has no content that is a string", index);
  for (bool first = true; json_cursor_next(&cursor, &first);) {
    const JsonSpan value = find_member(json_cursor_value(&cursor), "text");
    if (!is_string(value))
      return error_set(err, STATUS_USAGE, "message %zu has a part that is no text", index);
    TRY(append_value(value, text, err));
  }
  return STATUS_OK;
}

/* Appends the role and a NUL. Templates trust roles, so a role must not contain control tokens. */
static Status append_role(JsonSpan role, size_t index, Buffer *text, Error *err) {
  size_t start = text->size;
  if (!is_string(role)) return error_set(err, STATUS_USAGE, "message %zu has no role", index);
  TRY(append_value(role, text, err));
  TRY(buffer_append(text, "", 1, err));
  const char *name = text->data + start;
  for (const char *at = name; in_name(*at); at++) name = at + 1;
  if (name == text->data + text->size - 1) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "message %zu has a role that is no name", index);
}

static Status add_message(JsonSpan message, MapPrompt *prompt, Error *err) {
  const JsonSpan role = find_member(message, "role"), content = find_member(message, "content"),
                 calls = find_member(message, "tool_calls"), thinking = message_thinking(message);
  size_t index = prompt->n_messages;
  TRY(mem_grow(&prompt->messages, &prompt->capacity, index + 1, sizeof *prompt->messages, "a conversation",
               err));
  TRY(append_role(role, index, &prompt->text, err));
  size_t start = prompt->text.size;
  if (content.text || !calls.text) TRY(append_content(content, index, &prompt->text, err));
  const size_t size = prompt->text.size - start;
  if (is_string(thinking)) TRY(append_value(thinking, &prompt->text, err));
  const size_t thinking_size = prompt->text.size - start - size;
  TRY(tools_append_members(message, index, &prompt->text, err));
  prompt->messages[prompt->n_messages++] =
      (ChatMessage){.size = size,
                    .thinking_size = thinking_size,
                    .members_size = prompt->text.size - start - size - thinking_size};
  return STATUS_OK;
}

/* Points the messages into prompt->text. It holds role, NUL, content, thinking and members of each message in
 * turn. */
static void point_messages(MapPrompt *prompt) {
  const char *at = prompt->text.data;
  for (size_t i = 0; i < prompt->n_messages; i++) {
    ChatMessage *message = &prompt->messages[i];
    message->role = at;
    message->text = at + strlen(at) + 1;
    at = message->text + message->size;
    message->thinking = message->thinking_size ? at : NULL;
    at += message->thinking_size;
    message->members = message->members_size ? at : NULL;
    at += message->members_size;
  }
}

static Status fill_messages(JsonSpan messages, MapPrompt *prompt, Error *err) {
  JsonCursor cursor = json_cursor(messages);
  if (!json_cursor_enter(&cursor, '[')) return error_set(err, STATUS_USAGE, "messages is no list");
  for (bool first = true; json_cursor_next(&cursor, &first);)
    TRY(add_message(json_cursor_value(&cursor), prompt, err));
  if (prompt->n_messages == 0) return error_set(err, STATUS_USAGE, "messages is empty");
  prompt->is_chat = true;
  point_messages(prompt);
  return STATUS_OK;
}

/* --- prompts */

/* Takes the prompt that a JSON record contains itself. */
static Status fill_itself(JsonSpan record, bool after_text, MapPrompt *prompt, Error *err) {
  const JsonSpan text = find_member(record, "prompt"), messages = find_member(record, "messages");
  if (is_string(record)) return append_value(record, &prompt->text, err);
  TRY(check_object(record, err));
  if (text.text && messages.text)
    return error_set(err, STATUS_USAGE, "the record has both a prompt and messages");
  if (messages.text && after_text)
    return error_set(err, STATUS_USAGE, "the record has messages, before which -f has no place");
  if (messages.text) return fill_messages(messages, prompt, err);
  if (is_string(text)) return append_value(text, &prompt->text, err);
  return error_set(err, STATUS_USAGE,
                   "the record has neither a prompt that is a string nor messages (-p says where else "
                   "its prompt is)");
}

static Status add_member(const PatternPart *part, JsonSpan record, Buffer *text, Error *err) {
  const JsonSpan value = json_span_find(record, part->text, part->size);
  if (is_null(value))
    return error_set(err, STATUS_USAGE, "the record's member %.*s is null", (int)part->size, part->text);
  if (value.text) return append_value(value, text, err);
  TRY(check_object(record, err));
  return error_set(err, STATUS_USAGE, "the record has no member %.*s", (int)part->size, part->text);
}

static Status fill_parts(const PromptPattern *pattern, const Record *record, JsonSpan whole,
                         MapPrompt *prompt, Error *err) {
  for (size_t i = 0; i < pattern->n_parts; i++) {
    const PatternPart *part = &pattern->parts[i];
    switch (part->kind) {
    case PART_TEXT: TRY(buffer_append(&prompt->text, part->text, part->size, err)); break;
    case PART_MEMBER: TRY(add_member(part, whole, &prompt->text, err)); break;
    case PART_ITSELF: TRY(fill_itself(whole, i > 0, prompt, err)); break;
    case PART_RECORD:
      TRY(pattern->json ? append_value(whole, &prompt->text, err)
                        : buffer_append(&prompt->text, record->text, record->size, err));
    }
  }
  return STATUS_OK;
}

static Status check_record(const PromptPattern *pattern, const Record *record, Error *err) {
  if (record->cut)
    return error_set(err, STATUS_USAGE, "the record has more than %s", size_text(record->size).text);
  if (pattern->json)
    return json_parse("the record", STATUS_USAGE, record->text, record->size, NULL, 0, NULL, err);
  TRY(text_check_bytes("the record", record->text, record->size, err));
  const char *nul = memchr(record->text, 0, record->size);
  if (!nul) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "the record has a NUL at offset %td (-0: records end with a NUL)",
                   nul - record->text);
}

static void begin(MapPrompt *prompt) {
  prompt->is_chat = false;
  prompt->text.size = prompt->n_messages = 0;
  prompt->id = (JsonSpan){0};
}

Status map_prompt_outline(const PromptPattern *pattern, const char *filling, MapPrompt *prompt, Error *err) {
  begin(prompt);
  for (size_t i = 0; i < pattern->n_parts; i++) {
    const PatternPart *part = &pattern->parts[i];
    bool own = part->kind == PART_TEXT;
    TRY(buffer_append(&prompt->text, own ? part->text : filling, own ? part->size : strlen(filling), err));
  }
  return STATUS_OK;
}

Status map_prompt_fill(const PromptPattern *pattern, const Record *record, MapPrompt *prompt, Error *err) {
  JsonSpan whole = {0};
  begin(prompt);
  TRY(check_record(pattern, record, err));
  if (pattern->json) {
    JsonCursor cursor = json_cursor((JsonSpan){record->text, record->size});
    whole = json_cursor_value(&cursor); /* without surrounding white space */
    prompt->id = find_member(whole, "id");
    if (prompt->id.text && !strchr("\"-0123456789", prompt->id.text[0])) prompt->id = (JsonSpan){0};
  }
  return fill_parts(pattern, record, whole, prompt, err);
}

static Status fill_conversation(JsonSpan whole, MapPrompt *prompt, Error *err) {
  const JsonSpan messages = whole.text[0] == '[' ? whole : find_member(whole, "messages");
  if (messages.text) return fill_messages(messages, prompt, err);
  return error_set(err, STATUS_USAGE,
                   "no list of messages, expected [{\"role\": ..., \"content\": ...}, ...]");
}

Status map_prompt_conversation(const char *name, const char *text, size_t size, MapPrompt *prompt,
                               Error *err) {
  Error inner;
  JsonCursor cursor = json_cursor((JsonSpan){text, size});
  begin(prompt);
  TRY(json_parse(name, STATUS_USAGE, text, size, NULL, 0, NULL, err));
  Status status = fill_conversation(json_cursor_value(&cursor), prompt, &inner);
  return status ? error_set(err, status, "%s: %s", name, inner.text) : STATUS_OK;
}

void map_prompt_release(MapPrompt *prompt) {
  buffer_release(&prompt->text);
  free(prompt->messages);
  *prompt = (MapPrompt){0};
}
