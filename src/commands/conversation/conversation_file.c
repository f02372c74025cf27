/* conversation_file.c - see conversation_file.h. */
#include "commands/conversation/conversation_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "commands/common.h"
#include "commands/form/messages.h"
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

/* Reads tool_calls, tool_call_id and name into message->members; text: the message as JSON. */
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
  const Json *role = json_member(object, "role");
  const JsonSpan thinking = message_thinking(text);
  if (!role || !json_is_string(role)) return refuse(path, i, "has no role", err);
  size_t size;
  const char *name = json_string(role, &size);
  const Json *model = json_member(object, "model");
  if (!role_find(name, size, &message->role))
    return error_set(err, STATUS_USAGE,
                     "%s: message %zu has the role \"%.*s\", expected system, user, assistant or tool", path,
                     i, (int)(size < 40 ? size : 40), name);
  TRY(read_members(path, i, text, message, err));
  if (thinking.text && thinking.text[0] != '"')
    return refuse(path, i, "has a reasoning_content (or thinking, or reasoning) that is no string", err);
  TRY(read_content(path, i, json_member(object, "content"), &message->text, err));
  if (model && json_is_string(model) && message->role == ROLE_ASSISTANT) {
    name = json_string(model, &size);
    TRY(buffer_append(&message->model, name, size, err));
  }
  if (!thinking.text || message->role != ROLE_ASSISTANT) return STATUS_OK;
  JsonCursor cursor = json_cursor(thinking);
  bool is_string;
  return json_cursor_string(&cursor, &message->thinking, &is_string, err);
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
  TRY(text_read_source(path, text, err));
  TRY(json_parse(path, STATUS_USAGE, text->data ? text->data : "", text->size, NULL, 0, tree, err));
  *list = json_is_array(*tree) ? *tree : json_member(*tree, "messages");
  if (*list && json_is_array(*list)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s holds no conversation: expected {\"messages\": [...]}", path);
}

/* *out: a copy of the member, if it is a string without NULs. */
static Status copy_string(const Json *object, const char *key, char **out, Error *err) {
  const Json *value = json_member(object, key);
  size_t size;
  *out = NULL;
  if (!value || !json_is_string(value)) return STATUS_OK;
  const char *text = json_string(value, &size);
  if (memchr(text, 0, size)) return STATUS_OK;
  *out = path_join("", text, err);
  return *out ? STATUS_OK : STATUS_FAILED;
}

static size_t count_member(const Json *object, const char *key) {
  int64_t count;
  return json_int64(json_member(object, key), &count) && count > 0 ? (size_t)count : 0;
}

static Status read_head(const Json *object, ConversationHead *head, Error *err) {
  bool think;
  if (!json_is_object(object)) return STATUS_OK;
  TRY(copy_string(object, "model", &head->model, err));
  TRY(copy_string(object, "chat_template", &head->chat_template, err));
  TRY(copy_string(object, "began", &head->began, err));
  TRY(copy_string(object, "title", &head->title, err));
  if (json_bool(json_member(object, "think"), &think)) head->think = think ? THINK_YES : THINK_NO;
  head->n_turns = count_member(object, "turns");
  head->n_forgotten = count_member(object, "forgotten");
  return STATUS_OK;
}

void conversation_head_release(ConversationHead *head) {
  free(head->model);
  free(head->chat_template);
  free(head->began);
  free(head->title);
  *head = (ConversationHead){0};
}

static Status name_models(Conversation *c, const char *model, Error *err) {
  for (size_t i = 0; model && i < c->count; i++) {
    Message *m = &c->messages[i];
    if (m->role == ROLE_ASSISTANT && m->model.size == 0) TRY(buffer_append_string(&m->model, model, err));
  }
  return STATUS_OK;
}

Status conversation_load(const char *path, Conversation *conversation, ConversationHead *head, Error *err) {
  OWNED(json_release) Json *tree = NULL;
  const Json *list;
  OWNED(buffer_release) Buffer text = {0};
  TRY(parse(path, &text, &tree, &list, err));
  const JsonSpan whole = {text.data, text.size};
  TRY(read_messages(path, list, list == tree ? whole : json_span_member(whole, "messages"), conversation,
                    err));
  OWNED(conversation_head_release) ConversationHead own = {0};
  TRY(read_head(tree, head ? head : &own, err));
  return name_models(conversation, head ? head->model : own.model, err);
}

/* --- the head alone */

static const char before_messages[] = "\"messages\": ["; /* no JSON string has it: quotes are escaped */

static Status read_beginning(const char *path, Buffer *text, Error *err) {
  char bytes[16384];
  TRY(file_refuse_waiting(path, err));
  OWNED(stream_release) FILE *file = fopen(path, "re");
  if (!file) return system_error(path, "open", err);
  const size_t n = fread(bytes, 1, sizeof bytes, file);
  return ferror(file) ? system_error(path, "read", err) : buffer_append(text, bytes, n, err);
}

/* Reads the head from the whole file: another program may write the members in another order. */
static Status load_whole_head(const char *path, ConversationHead *head, Error *err) {
  OWNED(conversation_release) Conversation c = {0};
  char title[CONVERSATION_TITLE];
  conversation_head_release(head);
  TRY(conversation_load(path, &c, head, err));
  head->n_turns = conversation_n_turns(&c);
  conversation_title(&c, title);
  if (!head->title) head->title = path_join("", title, err);
  return head->title ? STATUS_OK : STATUS_FAILED;
}

Status conversation_load_head(const char *path, ConversationHead *head, Error *err) {
  static const char end[] = "\"messages\": []}";
  OWNED(buffer_release) Buffer text = {0};
  OWNED(json_release) Json *tree = NULL;
  TRY(read_beginning(path, &text, err));
  TRY(buffer_append(&text, "", 1, err));
  char *messages = strstr(text.data, before_messages);
  if (messages) {
    text.size = (size_t)(messages - text.data);
    TRY(buffer_append_string(&text, end, err));
    if (json_parse(path, STATUS_USAGE, text.data, text.size, NULL, 0, &tree, NULL) == STATUS_OK)
      TRY(read_head(tree, head, err));
  }
  return head->title && head->n_turns ? STATUS_OK : load_whole_head(path, head, err);
}

/* --- writing */

static bool is_from(const Message *m, const char *model) {
  return model && strlen(model) == m->model.size && memcmp(m->model.data, model, m->model.size) == 0;
}

static Status put_message(JsonWriter w, const Message *m, const char *model) {
  TRY(json_put_raw(w, NULL, "  {"));
  TRY(json_put_string(w, "role", role_name(m->role)));
  if (m->model.size && !is_from(m, model)) TRY(json_put_text(w, "model", m->model.data, m->model.size));
  if (m->thinking.size) TRY(json_put_text(w, "reasoning_content", m->thinking.data, m->thinking.size));
  TRY(json_put_text(w, "content", m->text.data, m->text.size));
  if (m->members.size) TRY(json_put_key(w, NULL));
  TRY(buffer_append(w.out, m->members.data, m->members.size, w.err));
  return json_end(w, "}");
}

/* Writes up to `most` characters of a text to `line`, as one line without blanks at its ends. *at: where the
 * rest of the text begins. Returns the size of the line. */
static size_t put_line(const Buffer *text, size_t most, char *line, size_t *at) {
  size_t n = 0;
  for (*at = 0; *at < text->size && most > 0; most--) {
    uint32_t code = 0;
    const int length = utf8_decode(text->data + *at, text->size - *at, &code);
    const size_t size = length > 0 ? (size_t)length : 1;
    const bool blank = code <= ' ' || length <= 0;
    if (!blank) memcpy(line + n, text->data + *at, size);
    if (blank && n && line[n - 1] != ' ') line[n++] = ' ';
    if (!blank) n += size;
    *at += size;
  }
  while (n && line[n - 1] == ' ') n--;
  line[n] = 0;
  return n;
}

static const Buffer *first_text(const Conversation *c) {
  static const Buffer none;
  const size_t first = conversation_next_turn(c, 0);
  return first < c->count ? &c->messages[first].text : &none;
}

void conversation_title(const Conversation *c, char title[CONVERSATION_TITLE]) {
  enum { MOST = 60 }; /* characters */
  const Buffer *text = first_text(c);
  size_t at;
  const size_t n = put_line(text, MOST, title, &at);
  if (at < text->size && !text_is_blank(text->data + at, text->size - at)) strcpy(title + n, "...");
}

char *conversation_whole_title(const Conversation *c, Error *err) {
  const Buffer *text = first_text(c);
  size_t at;
  char *title = mem_alloc(text->size + 1, 1, "a title", err);
  if (title) put_line(text, SIZE_MAX, title, &at);
  return title;
}

static Status put_head(JsonWriter w, const Conversation *c, const ConversationHead *head) {
  char title[CONVERSATION_TITLE];
  conversation_title(c, title);
  if (head->began) {
    TRY(json_put_string(w, "title", title));
    TRY(json_put_string(w, "began", head->began));
    TRY(json_put_size(w, "turns", conversation_n_turns(c)));
  }
  if (head->model) TRY(json_put_string(w, "model", head->model));
  if (head->chat_template) TRY(json_put_string(w, "chat_template", head->chat_template));
  if (head->think) TRY(json_put_bool(w, "think", head->think == THINK_YES));
  return head->n_forgotten ? json_put_size(w, "forgotten", head->n_forgotten) : STATUS_OK;
}

Status conversation_write(const Conversation *c, const ConversationHead *head, Buffer *out, Error *err) {
  const JsonWriter w = {out, err};
  TRY(buffer_append_string(out, "{", err));
  TRY(put_head(w, c, head));
  TRY(json_put_raw(w, NULL, before_messages));
  TRY(buffer_append_string(out, "\n", err));
  for (size_t i = 0; i < c->count; i++) {
    TRY(put_message(w, &c->messages[i], head->model));
    TRY(buffer_append_string(out, i + 1 < c->count ? ",\n" : "\n", err));
  }
  return json_end(w, "]}\n");
}

/* Refuses to overwrite a file that is not a conversation: the name may be mistyped. */
static Status may_replace(const char *path, Error *err) {
  if (!file_exists(path)) return STATUS_OK;
  OWNED(json_release) Json *tree = NULL;
  const Json *list;
  Error ignored;
  OWNED(buffer_release) Buffer text = {0};
  if (!file_is_directory(path) && parse(path, &text, &tree, &list, &ignored) == STATUS_OK) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is there already and holds no conversation: it is left as it is",
                   path);
}

Status conversation_save(const Conversation *conversation, const ConversationHead *head, const char *path,
                         Error *err) {
  TRY(may_replace(path, err));
  OWNED(buffer_release) Buffer out = {0};
  OWNED(atomic_file_abort) AtomicFile file = {0};
  const bool is_new = !file_exists(path); /* an existing file keeps its mode */
  TRY(conversation_write(conversation, head, &out, err));
  TRY(atomic_file_open(path, &file, err));
  if (is_new) TRY(atomic_file_hide(&file, err));
  TRY(atomic_file_write(&file, out.data, out.size, err));
  return atomic_file_commit(&file, err);
}
