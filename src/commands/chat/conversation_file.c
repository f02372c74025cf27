/* conversation_file.c - see conversation_file.h.   Called by: chat_commands.c.   Calls: base's JSON. */
#include "commands/chat/conversation_file.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "commands/common.h"
#include "commands/form/tools.h"
#include "commands/input_text.h"

/* --- reading */

static Status refuse(const char *path, size_t i, const char *what, Error *err) {
  return error_set(err, STATUS_USAGE, "%s: message %zu %s", path, i, what);
}

/* Appends "content": a string, null, or a list of text parts. */
static Status read_content(const char *path, size_t i, const Json *content, Buffer *text, Error *err) {
  size_t size;
  if (!content) return STATUS_OK;
  if (json_is_string(content)) {
    const char *bytes = json_string(content, &size);
    return buffer_append(text, bytes, size, err);
  }
  if (!json_is_array(content))
    return refuse(path, i, "has a content that is neither a string nor a list", err);
  for (const Json *part = json_first(content); part; part = json_next(part)) {
    const Json *type = json_member(part, "type"), *words = json_member(part, "text");
    if (!type || !json_is_string(type) || !json_string_is(type, "text") || !words || !json_is_string(words))
      return refuse(path, i, "has a part of another type than \"text\" in its content", err);
    const char *bytes = json_string(words, &size);
    TRY(buffer_append(text, bytes, size, err));
  }
  return STATUS_OK;
}

/* Takes the calls of a message, or the call that it is the result of. `text` is the object's. */
static Status read_members(const char *path, size_t i, JsonSpan text, Message *message, Error *err) {
  Error inner;
  Status status = tools_append_members(text, i, &message->members, &inner);
  if (status == STATUS_USAGE) return error_set(err, status, "%s: %s", path, inner.text);
  if (status != STATUS_OK && err) *err = inner;
  return status;
}

static Status read_message(const char *path, size_t i, const Json *object, JsonSpan text, Message *message,
                           Error *err) {
  if (!json_is_object(object)) return refuse(path, i, "is no object", err);
  const Json *role = json_member(object, "role"), *thinking = json_member(object, "reasoning_content");
  if (!role || !json_is_string(role)) return refuse(path, i, "has no role", err);
  size_t size;
  const char *name = json_string(role, &size);
  if (!role_find(name, size, &message->role))
    return error_set(err, STATUS_USAGE,
                     "%s: message %zu has the role \"%.*s\", expected system, user, assistant or tool", path,
                     i, (int)(size < 40 ? size : 40), name);
  TRY(read_members(path, i, text, message, err));
  if (thinking && !json_is_string(thinking))
    return refuse(path, i, "has a reasoning_content that is no string", err);
  TRY(read_content(path, i, json_member(object, "content"), &message->text, err));
  if (!thinking || message->role != ROLE_ASSISTANT) return STATUS_OK;
  const char *bytes = json_string(thinking, &size);
  return buffer_append(&message->thinking, bytes, size, err);
}

static Status read_messages(const char *path, const Json *list, JsonSpan text, Conversation *out,
                            Error *err) {
  size_t i = 0;
  JsonCursor cursor = json_cursor(text);
  bool first = true;
  json_cursor_enter(&cursor, '[');
  for (const Json *object = json_first(list); object; object = json_next(object), i++) {
    if (!json_cursor_next(&cursor, &first)) break;
    TRY(conversation_add(out, ROLE_USER, "", 0, err));
    TRY(read_message(path, i, object, json_cursor_value(&cursor), &out->messages[out->count - 1], err));
  }
  return STATUS_OK;
}

static Status parse(const char *path, Buffer *text, Json **tree, const Json **list, Error *err) {
  TRY(file_read(path, TEXT_LIMIT, text, err));
  TRY(json_parse(path, STATUS_USAGE, text->data ? text->data : "", text->size, NULL, 0, tree, err));
  *list = json_is_array(*tree) ? *tree : json_member(*tree, "messages");
  if (*list && json_is_array(*list)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s holds no conversation: expected {\"messages\": [...]}", path);
}

Status conversation_load(const char *path, Conversation *conversation, Error *err) {
  Json *tree = NULL;
  const Json *list;
  Buffer text = {0};
  Status status = parse(path, &text, &tree, &list, err);
  const JsonSpan whole = {text.data, text.size};
  if (status == STATUS_OK)
    status = read_messages(path, list, list == tree ? whole : json_span_member(whole, "messages"),
                           conversation, err);
  json_free(tree);
  buffer_release(&text);
  return status;
}

/* --- writing */

static Status put_message(Buffer *out, const Message *m, Error *err) {
  const char *role = role_name(m->role);
  TRY(buffer_append_string(out, "  {", err));
  TRY(append_json_member(out, "role", role, strlen(role), err));
  if (m->thinking.size) {
    TRY(buffer_append_string(out, ", ", err));
    TRY(append_json_member(out, "reasoning_content", m->thinking.data, m->thinking.size, err));
  }
  TRY(buffer_append_string(out, ", ", err));
  TRY(append_json_member(out, "content", m->text.data, m->text.size, err));
  if (m->members.size) TRY(buffer_append_string(out, ", ", err));
  if (m->members.size) TRY(buffer_append(out, m->members.data, m->members.size, err));
  return buffer_append_string(out, "}", err);
}

static Status put_all(Buffer *out, const Conversation *c, const char *model, Error *err) {
  TRY(buffer_append_string(out, "{", err));
  TRY(append_json_member(out, "model", model, strlen(model), err));
  TRY(buffer_append_string(out, ", \"messages\": [\n", err));
  for (size_t i = 0; i < c->count; i++) {
    TRY(put_message(out, &c->messages[i], err));
    TRY(buffer_append_string(out, i + 1 < c->count ? ",\n" : "\n", err));
  }
  return buffer_append_string(out, "]}\n", err);
}

/* Refuses to overwrite a file that is not a conversation: the name may be mistyped. */
static Status may_replace(const char *path, Error *err) {
  if (!file_exists(path)) return STATUS_OK;
  Json *tree = NULL;
  const Json *list;
  Error ignored;
  Buffer text = {0};
  Status status = file_is_directory(path) ? STATUS_USAGE : parse(path, &text, &tree, &list, &ignored);
  json_free(tree);
  buffer_release(&text);
  if (status == STATUS_OK) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is there already and holds no conversation: it is left as it is",
                   path);
}

Status conversation_save(const Conversation *conversation, const char *model, const char *path, Error *err) {
  TRY(may_replace(path, err));
  Buffer out = {0};
  AtomicFile file = {0};
  const bool is_new = !file_exists(path); /* an existing file keeps its mode */
  Status status = put_all(&out, conversation, model, err);
  if (status == STATUS_OK) status = atomic_file_open(path, &file, err);
  if (status == STATUS_OK) {
    if (is_new) status = atomic_file_hide(&file, err);
    if (status == STATUS_OK) status = atomic_file_write(&file, out.data, out.size, err);
    if (status == STATUS_OK) {
      status = atomic_file_commit(&file, err);
    } else {
      atomic_file_abort(&file);
    }
  }
  buffer_release(&out);
  return status;
}
