/* chat_open.c - finds and parses the template of a conversation and its special tokens.
 *
 * Always true: an open chat no longer needs any of the files. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash64.h"
#include "tokenizer/chat/chat_internal.h"
#include "tokenizer/load/declared.h"

/* --- special tokens */

static Status append_special(Buffer *object, const char *key, const Json *value, Error *err) {
  const Json *content = json_is_object(value) ? json_member(value, "content") : value;
  if (!json_is_string(content)) return STATUS_OK;
  size_t size;
  const char *text = json_string(content, &size);
  TRY(buffer_append_string(object, ",", err));
  TRY(json_write_string(object, key, strlen(key), err));
  TRY(buffer_append_string(object, ":", err));
  return json_write_string(object, text, size, err);
}

static bool is_special_name(const char *key) {
  size_t n = strlen(key);
  return n > 6 && strcmp(key + n - 6, "_token") == 0;
}

/* Collects every NAME_token of two files, as {"bos_token": "...", ...}; the first file wins. Adds the
 * variables that transformers passes to every template. */
static Status collect_specials(const Json *first, const Json *second, Buffer *object, Error *err) {
  TRY(buffer_append_string(object, "{\"tools\":null,\"documents\":null,\"add_generation_prompt\":false",
                           err));
  for (const Json *member = json_first(first); member; member = json_next(member))
    if (is_special_name(json_key(member))) TRY(append_special(object, json_key(member), member, err));
  for (const Json *member = json_first(second); member; member = json_next(member)) {
    const char *key = json_key(member);
    const Json *other = json_member(first, key);
    bool known = json_is_string(other) || json_is_string(json_member(other, "content"));
    if (is_special_name(key) && !known) TRY(append_special(object, key, member, err));
  }
  return buffer_append_string(object, "}", err);
}

/* special_tokens_map.json wins over a tokenizer_config.json without added_tokens_decoder (declared.c). */
static Status read_specials(const char *directory, const Json *config, Chat *chat, Error *err) {
  const bool map_wins = !json_member(config, "added_tokens_decoder");
  OWNED(json_release) Json *map = NULL;
  OWNED(buffer_release) Buffer object = {0};
  if (directory) TRY(checkpoint_json(directory, "special_tokens_map.json", &map, err));
  TRY(collect_specials(map_wins ? map : config, map_wins ? config : map, &object, err));
  TRY(json_parse("special tokens", STATUS_MODEL, object.data, object.size, NULL, 0, &chat->specials, err));
  chat->hash = hash64(object.data, object.size, chat->hash);
  return STATUS_OK;
}

/* --- templates */

static Status parse_as(Chat *chat, const char *source, const char *text, size_t size, Error *err) {
  chat->source = strdup(source);
  if (!chat->source) return error_set(err, STATUS_FAILED, "out of memory: a chat template");
  TRY(template_parse(source, text, size, &chat->template, err));
  chat->hash = hash64(text, size, chat->hash);
  return STATUS_OK;
}

static Status parse_builtin(Chat *chat, const ChatBuiltin *builtin, Error *err) {
  char source[64];
  snprintf(source, sizeof source, "built-in %s", builtin->name);
  chat->builtin = builtin;
  return parse_as(chat, source, builtin->text, strlen(builtin->text), err);
}

/* Reads a file that the user names, possibly a fifo. */
static Status parse_file(Chat *chat, const char *path, const char *source, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  TRY(file_read(path, TEMPLATE_FILE_LIMIT, &text, err));
  TRY(content_expect_text(path, text.data, text.size, false, STATUS_MODEL, err));
  return parse_as(chat, source, text.data ? text.data : "", text.size, err);
}

/* Maps a regular file of the checkpoint; template_parse() checks its length. */
static Status parse_part(Chat *chat, const char *path, const char *source, Error *err) {
  OWNED(file_unmap) MappedFile file = {0};
  TRY(file_map(path, STATUS_MODEL, &file, err));
  TRY(content_expect_text(path, file.data, file.size, false, STATUS_MODEL, err));
  TRY(content_expect_no_pointer(path, file.data, file.size, err));
  return parse_as(chat, source, file.data ? (const char *)file.data : "", file.size, err);
}

/* Appends ", NAME" for each name of a list of templates, as far as there is room. */
static void append_names(const Json *templates, char *known, size_t capacity) {
  size_t n = strlen(known);
  for (const Json *item = json_is_array(templates) ? json_first(templates) : NULL; item;
       item = json_next(item)) {
    size_t size;
    const Json *own = json_member(item, "name");
    if (!json_is_string(own) || n + 64 > capacity) continue;
    n += (size_t)snprintf(known + n, capacity - n, "%s%.50s", n ? ", " : "", json_string(own, &size));
  }
}

static int is_template_file(const struct dirent *entry) {
  const char *end = strrchr(entry->d_name, '.');
  return end && end > entry->d_name && strcmp(end, ".jinja") == 0;
}

/* Appends ", NAME" for each additional_chat_templates/NAME.jinja, where transformers keeps further
 * templates. */
static Status append_files(const char *directory, char *known, size_t capacity, Error *err) {
  OWNED(mem_release) char *path = path_join(directory, "additional_chat_templates", err);
  if (!path) return STATUS_FAILED;
  struct dirent **entries = NULL;
  const int n_entries = scandir(path, &entries, is_template_file, alphasort);
  const bool failed = n_entries < 0 && errno != ENOENT && errno != ENOTDIR;
  if (failed) error_set(err, STATUS_FAILED, "cannot list %s: %s", path, strerror(errno));
  for (int i = 0; i < n_entries; i++) {
    const char *name = entries[i]->d_name;
    const int size = (int)(strlen(name) - strlen(".jinja"));
    const size_t n = strlen(known);
    if (n + 64 <= capacity)
      snprintf(known + n, capacity - n, "%s%.*s", n ? ", " : "", size < 50 ? size : 50, name);
    free(entries[i]);
  }
  free(entries);
  return failed ? STATUS_FAILED : STATUS_OK;
}

/* Refuses a member that is neither a string nor a list of objects with names. */
static Status check_member(const Json *templates, const char *source, Error *err) {
  char described[64];
  int i = 0;
  if (!templates || json_is_string(templates)) return STATUS_OK;
  if (!json_is_array(templates))
    return error_set(err, STATUS_MODEL, "%s: chat_template is %s, expected a string or an array", source,
                     json_describe(templates, described));
  for (const Json *item = json_first(templates); item; item = json_next(item), i++)
    if (!json_is_string(json_member(item, "name")))
      return error_set(err, STATUS_MODEL, "%s: chat_template[%d] is %s, expected an object with a name",
                       source, i, json_describe(item, described));
  return STATUS_OK;
}

/* Parses the member chat_template. With a `name` it takes the entry `name` of a list. Without one it takes a
 * string, or the entry "default" of a list. A member of another type is refused only without a `name`, since
 * --chat-template is the way around it. */
static Status parse_member(Chat *chat, const Json *config, const char *source, const char *name, Error *err) {
  const Json *templates = json_member(config, "chat_template"), *found = NULL;
  char described[64];
  if (!name) TRY(check_member(templates, source, err));
  if (json_is_string(templates) && !name) found = templates;
  for (const Json *item = json_first(templates); json_is_array(templates) && item; item = json_next(item))
    if (json_string_is(json_member(item, "name"), name ? name : "default"))
      found = json_member(item, "template");
  if (!found) return STATUS_OK;
  if (!json_is_string(found))
    return error_set(err, STATUS_MODEL, "%s: template \"%s\" of chat_template is %s, expected a string",
                     source, name ? name : "default", json_describe(found, described));
  size_t size;
  const char *text = json_string(found, &size);
  return parse_as(chat, source, text, size, err);
}

/* Appends ", NAME" for each named template of the checkpoint: in the lists of tokenizer_config.json and
 * chat_template.json, and in additional_chat_templates/. */
static Status append_all(const char *directory, const Json *config, char *known, size_t capacity,
                         Error *err) {
  OWNED(json_release) Json *own = NULL;
  TRY(checkpoint_json(directory, "chat_template.json", &own, err));
  append_names(json_member(config, "chat_template"), known, capacity);
  append_names(json_member(own, "chat_template"), known, capacity);
  return append_files(directory, known, capacity, err);
}

/* Refuses a checkpoint with named templates but no default: transformers chooses none of them either. */
static Status refuse_lists(const char *directory, const Json *config, Error *err) {
  char known[512] = "";
  TRY(append_all(directory, config, known, sizeof known, err));
  if (!*known) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "none of this model's chat templates is named \"default\": choose one with "
                   "--chat-template: %s",
                   known);
}

/* Parses the checkpoint's own template, searched in transformers' order. With a `name` only the entries of
 * this name in the checkpoint's lists count. If no template is found, chat->template stays NULL. */
static Status parse_own(Chat *chat, const char *directory, const Json *config, const char *name, Error *err) {
  OWNED(mem_release) char *path = path_join(directory, "chat_template.jinja", err);
  if (!path) return STATUS_FAILED;
  if (!name && file_is_named(path)) TRY(parse_part(chat, path, "chat_template.jinja", err));
  if (!chat->template) TRY(parse_member(chat, config, "tokenizer_config.json", name, err));
  if (chat->template) return STATUS_OK;
  OWNED(json_release) Json *own = NULL;
  TRY(checkpoint_json(directory, "chat_template.json", &own, err));
  TRY(parse_member(chat, own, "chat_template.json", name, err));
  return name || chat->template ? STATUS_OK : refuse_lists(directory, config, err);
}

/* Parses additional_chat_templates/NAME.jinja. */
static Status parse_additional(Chat *chat, const char *directory, const char *name, Error *err) {
  OWNED(buffer_release) Buffer path = {0};
  if (strchr(name, '/')) return STATUS_OK;
  TRY(buffer_printf(&path, err, "%s/additional_chat_templates/%s.jinja%c", directory, name, 0));
  return file_is_named(path.data) ? parse_part(chat, path.data, name, err) : STATUS_OK;
}

/* --- choosing one */

static Status refuse_name(const char *directory, const char *name, const Json *config, Error *err) {
  char known[512] = "";
  size_t n = 0;
  for (const ChatBuiltin *builtin = chat_builtins; builtin->name; builtin++)
    n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", builtin->name);
  if (directory) TRY(append_all(directory, config, known, sizeof known, err));
  return error_set(err, STATUS_USAGE, "there is no chat template \"%s\": expected a file, or one of %s", name,
                   known);
}

static Status choose(Chat *chat, const char *directory, const Json *config, const char *choice, Error *err) {
  const ChatBuiltin *builtin = chat_builtin_named(choice);
  if (directory) TRY(parse_own(chat, directory, config, choice, err));
  if (directory && !chat->template) TRY(parse_additional(chat, directory, choice, err));
  if (chat->template) return STATUS_OK;
  if (builtin) return parse_builtin(chat, builtin, err);
  if (strchr(choice, '/') || file_exists(choice)) return parse_file(chat, choice, choice, err);
  return refuse_name(directory, choice, config, err);
}

static bool lists_tool_use(const Json *file) {
  const Json *templates = json_member(file, "chat_template"), *item;
  for (item = json_is_array(templates) ? json_first(templates) : NULL; item; item = json_next(item))
    if (json_string_is(json_member(item, "name"), "tool_use")) return true;
  return false;
}

static Status find_tool_use(Chat *chat, const char *directory, const Json *config, Error *err) {
  OWNED(json_release) Json *own = NULL;
  OWNED(mem_release) char *path = path_join(directory, "additional_chat_templates/tool_use.jinja", err);
  if (!path) return STATUS_FAILED;
  checkpoint_json(directory, "chat_template.json", &own, NULL); /* if faulty, refused where it is needed */
  chat->has_tool_use = lists_tool_use(config) || lists_tool_use(own) || file_is_named(path);
  return STATUS_OK;
}

static Status open_into(Chat *chat, const char *directory, const char *choice, const Tokenizer *tokenizer,
                        const Json *config, Error *err) {
  TRY(read_specials(directory, config, chat, err));
  if (directory) TRY(find_tool_use(chat, directory, config, err));
  if (choice) return choose(chat, directory, config, choice, err);
  if (directory) TRY(parse_own(chat, directory, config, NULL, err));
  const ChatBuiltin *builtin = tokenizer && !chat->template ? chat_builtin_of(tokenizer) : NULL;
  return builtin ? parse_builtin(chat, builtin, err) : STATUS_OK;
}

Status chat_open(const char *directory, const char *choice, const Tokenizer *tokenizer, Chat **chat,
                 Error *err) {
  OWNED(json_release) Json *config = NULL;
  OWNED(chat_release) Chat *opened = NULL;
  *chat = NULL;
  TRY(NEW(opened, 1, "a chat template", err));
  if (directory) TRY(checkpoint_json(directory, "tokenizer_config.json", &config, err));
  TRY(open_into(opened, directory, choice, tokenizer, config, err));
  if (opened->template) chat_try_parts(*chat = TAKE(opened));
  return STATUS_OK;
}

void chat_close(Chat *chat) {
  if (!chat) return;
  template_close(chat->template);
  json_free(chat->specials);
  free(chat->source);
  free(chat);
}

uint64_t chat_hash(const Chat *chat) {
  return chat->hash;
}

const char *chat_source(const Chat *chat) {
  return chat->source;
}

const char *chat_missing_control(const Chat *chat, const Tokenizer *tokenizer) {
  for (int i = 0; chat->builtin && i < 2; i++) {
    const char *control = chat->builtin->controls[i];
    if (control && tokenizer_find(tokenizer, control) < 0) return control;
  }
  return NULL;
}
