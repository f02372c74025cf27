/* declared.c - see declared.h.
 *
 * Called by: tokenizer.c, chat_open.c. Some fine-tunes declare their chat tokens only in
 * tokenizer_config.json (added_tokens_decoder) or added_tokens.json. Encoded as ordinary text, these tokens
 * would never end an answer. The rules are transformers 5.24's. First come the tokens of added_tokens_decoder
 * or, without it, of added_tokens.json, in the order of their ids. Then come the special tokens that are not
 * added tokens yet. */
#include "tokenizer/load/declared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tokenizer/load/fields.h"

Status checkpoint_json(const char *directory, const char *name, Json **json, Error *err) {
  *json = NULL;
  OWNED(mem_release) char *path = path_join(directory, name, err);
  OWNED(file_unmap) MappedFile file = {0};
  if (!path) return STATUS_FAILED;
  if (!file_is_named(path)) return STATUS_OK;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  OWNED(json_release) Json *read = NULL;
  TRY(json_parse(path, STATUS_MODEL, (const char *)file.data, file.size, NULL, 0, &read, err));
  if (!json_is_object(read)) return field_expected(path, "its JSON", read, "an object", err);
  *json = TAKE(read);
  return STATUS_OK;
}

/* The sources of special tokens. member_of() prefers `map`, special_tokens_map.json, which is not read if
 * tokenizer_config.json has added_tokens_decoder. NULL: missing. */
typedef struct {
  Json *config, *map;
} DeclaredFiles;

/* The member `key` of special_tokens_map.json or, if that file has no such member, of tokenizer_config.json.
 * It can have any type. */
static const Json *member_of(const DeclaredFiles *files, const char *key) {
  const Json *own = json_member(files->map, key);
  return own ? own : json_member(files->config, key);
}

static const Json *content_of(const Json *token) {
  const Json *content = json_is_object(token) ? json_member(token, "content") : token;
  return json_is_string(content) ? content : NULL;
}

/* --- tokens */

static const char *const named[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
enum { N_NAMED = sizeof named / sizeof *named };

static bool is_named(const char *key) {
  bool is = false;
  for (int i = 0; i < N_NAMED; i++) is |= strcmp(key, named[i]) == 0;
  return is;
}

/* True for a model's own name, such as image_token. */
static bool is_own_name(const char *key) {
  return name_ends_with(key, "_token") && !is_named(key);
}

/* The object of further names, such as {"image_token": "<image>"}, or NULL. */
static const Json *own_names(const DeclaredFiles *files) {
  const Json *extra = json_member(files->config, "extra_special_tokens");
  if (!extra) extra = json_member(files->map, "extra_special_tokens");
  return json_is_object(extra) ? extra : NULL;
}

/* The list of special tokens without names, or NULL. */
static const Json *nameless(const DeclaredFiles *files) {
  const Json *const owners[] = {files->config, files->map};
  for (int i = 0; i < 2; i++) {
    const Json *list = json_member(owners[i], "extra_special_tokens"),
               *old = json_member(owners[i], "additional_special_tokens");
    if (json_is_array(list) && (json_count(list) || !old)) return list;
    if (json_is_array(old)) return old;
  }
  return NULL;
}

static bool is_text(const Json *string, const char *text, size_t size) {
  size_t n = 0;
  const char *own = string ? json_string(string, &n) : NULL;
  return own && n == size && memcmp(own, text, n) == 0;
}

/* True if `text` is the content of a token that has a name, such as "bos_token". */
static bool has_name(const DeclaredFiles *files, const char *text, size_t size) {
  const Json *const owners[] = {files->config, files->map, own_names(files)};
  bool has = false;
  for (int i = 0; i < N_NAMED; i++) has |= is_text(content_of(member_of(files, named[i])), text, size);
  for (int i = 0; i < 3; i++)
    for (const Json *item = json_first(owners[i]); item; item = json_next(item))
      if (i == 2 || is_own_name(json_key(item))) has |= is_text(content_of(item), text, size);
  return has;
}

/* True if `text`, a token of added_tokens.json, is special: if it is one of the tokens named[] in
 * special_tokens_map.json or, for a name that the map lacks, a string in tokenizer_config.json. A string in
 * the list nameless() is special, too, unless the list is the map's additional_special_tokens. */
static bool is_special(const DeclaredFiles *files, const char *text, size_t size) {
  bool is = false;
  for (int i = 0; i < N_NAMED; i++) {
    const Json *own = json_member(files->map, named[i]);
    if (!own) own = json_member(files->config, named[i]);
    if (json_is_string(own) || json_member(files->map, named[i])) is |= is_text(content_of(own), text, size);
  }
  const Json *list = nameless(files);
  if (list == json_member(files->map, "additional_special_tokens")) list = NULL;
  for (const Json *item = json_first(list); item; item = json_next(item))
    is |= json_is_string(item) && is_text(item, text, size);
  return is;
}

/* Appends a token for added_load(); `rule`: further members as JSON (", \"unless_id\": 5"), or "". If neither
 * `flags` nor `rule` has "normalized", added_load() sets that flag unless the token is special. */
static Status append_token(const char *where, const char *content, size_t size, const Json *flags,
                           bool special, const char *rule, Buffer *out, Error *err) {
  static const char *const keys[] = {"single_word", "lstrip", "rstrip", "normalized"};
  TRY(field_bool_or(where, flags, "special", special, &special, err));
  TRY(buffer_append_string(out, out->size ? ", {\"content\": " : "[{\"content\": ", err));
  TRY(json_write_string(out, content, size, err));
  for (int i = 0; i < 4; i++) {
    bool flag;
    TRY(field_bool_or(where, flags, keys[i], false, &flag, err));
    if (i < 3 || json_member(flags, keys[i]))
      TRY(buffer_printf(out, err, ", \"%s\": %s", keys[i], flag ? "true" : "false"));
  }
  return buffer_printf(out, err, ", \"special\": %s%s}", special ? "true" : "false", rule);
}

/* A token with the id that the file gives it. */
typedef struct {
  int64_t id;
  size_t place; /* index in the file */
  const Json *entry;
} Numbered;

static int by_id(const void *a, const void *b) {
  const Numbered *x = a, *y = b;
  return x->id == y->id ? (x->place > y->place) - (x->place < y->place) : x->id < y->id ? -1 : 1;
}

/* Lists, by id, the members of added_tokens_decoder ("ID": {...}, by_key) or of added_tokens.json ("content":
 * ID). */
static Status number(const char *where, const Json *object, bool by_key, Numbered *list, size_t *n,
                     Error *err) {
  *n = 0;
  for (const Json *item = json_first(object); item; item = json_next(item)) {
    const char *key = json_key(item);
    char *end = NULL;
    int64_t id = by_key ? strtol(key, &end, 10) : -1;
    if (by_key && (end == key || *end)) id = -1;
    if (!by_key && !json_int64(item, &id)) id = -1;
    if (id < 0)
      return error_set(err, STATUS_MODEL, "%s: \"%.80s\" has no id, expected a whole number", where, key);
    list[*n] = (Numbered){id, *n, item};
    ++*n;
  }
  qsort(list, *n, sizeof *list, by_id);
  return STATUS_OK;
}

static Status append_numbered(const char *where, const DeclaredFiles *files, const Numbered *it, bool by_key,
                              Buffer *out, Error *err) {
  char rule[96];
  if (!by_key) {
    const char *text = json_key(it->entry);
    const size_t size = strlen(text);
    const bool special = is_special(files, text, size);
    snprintf(rule, sizeof rule, ", \"normalized\": %s, \"unless_id\": %lld%s", special ? "false" : "true",
             (long long)it->id, has_name(files, text, size) ? ", \"named\": true" : "");
    return append_token(where, text, size, NULL, special, rule, out, err);
  }
  const Json *content = json_is_object(it->entry) ? content_of(it->entry) : NULL;
  size_t size;
  if (!content)
    return error_set(err, STATUS_MODEL, "%s: token %lld has no content, a string", where, (long long)it->id);
  const char *text = json_string(content, &size);
  return append_token(where, text, size, it->entry, false,
                      has_name(files, text, size) ? ", \"named\": true" : "", out, err);
}

static Status append_all(const char *where, const DeclaredFiles *files, const Json *object, bool by_key,
                         Buffer *out, Error *err) {
  size_t n;
  if (!object) return STATUS_OK;
  if (!json_is_object(object)) return field_expected(where, NULL, object, "an object", err);
  OWNED(mem_release) Numbered *list = NULL;
  TRY(NEW(list, json_count(object), "added tokens", err));
  TRY(number(where, object, by_key, list, &n, err));
  for (size_t i = 0; i < n; i++)
    if (i + 1 == n || list[i + 1].id != list[i].id) /* of two tokens with one id the later counts */
      TRY(append_numbered(where, files, &list[i], by_key, out, err));
  return STATUS_OK;
}

/* Appends a special token. If a token of tokenizer.json or one declared with an id has the same content,
 * added_load() adds no second one: that token stays as it is or, with "promotes" in `rule`, becomes
 * special. */
static Status append_special(const Json *token, const char *rule, Buffer *out, Error *err) {
  const Json *content = content_of(token);
  size_t size;
  if (!content) return STATUS_OK;
  const char *text = json_string(content, &size);
  return append_token("special tokens", text, size, token, true, rule, out, err);
}

static Status append_specials(const DeclaredFiles *files, Buffer *out, Error *err) {
  const Json *const owners[] = {files->config, files->map};
  const char *rule = json_member(files->config, "added_tokens_decoder")
                         ? ", \"unless_known\": true, \"named\": true"
                         : ", \"unless_known\": true, \"named\": true, \"promotes\": true";
  for (int i = 0; i < N_NAMED; i++) TRY(append_special(member_of(files, named[i]), rule, out, err));
  for (int i = 0; i < 2; i++)
    for (const Json *item = json_first(owners[i]); item; item = json_next(item))
      if (is_own_name(json_key(item))) TRY(append_special(member_of(files, json_key(item)), rule, out, err));
  for (const Json *item = json_first(own_names(files)); item; item = json_next(item))
    TRY(append_special(item, rule, out, err));
  for (const Json *item = json_first(nameless(files)); item; item = json_next(item))
    TRY(append_special(item, ", \"unless_known\": true", out, err));
  return STATUS_OK;
}

static void files_release(DeclaredFiles *files) {
  json_free(files->config);
  json_free(files->map);
}

Status declared_read(const char *path, Buffer *out, Error *err) {
  const char *slash = strrchr(path, '/');
  if (strcmp(slash ? slash + 1 : path, "tokenizer.json") != 0) return STATUS_OK;
  OWNED(files_release) DeclaredFiles files = {0};
  OWNED(json_release) Json *added = NULL;
  OWNED(mem_release) char *directory = path_directory(path, err);
  if (!directory) return STATUS_FAILED;
  TRY(checkpoint_json(directory, "tokenizer_config.json", &files.config, err));
  const Json *decoder = json_member(files.config, "added_tokens_decoder");
  if (!decoder) {
    TRY(checkpoint_json(directory, "special_tokens_map.json", &files.map, err));
    TRY(checkpoint_json(directory, "added_tokens.json", &added, err));
  }
  TRY(append_all("tokenizer_config.json: added_tokens_decoder", &files, decoder, true, out, err));
  TRY(append_all("added_tokens.json", &files, added, false, out, err));
  TRY(append_specials(&files, out, err));
  return out->size ? buffer_append(out, "]", 1, err) : STATUS_OK;
}
