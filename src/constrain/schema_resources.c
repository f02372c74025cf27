/* schema_resources.c - documents within a schema ($id), anchors, and what a $ref means; see
 * schema_internal.h.
 *
 * Called by: schema.c, schema_compile.c. URIs are resolved as in RFC 3986, section 5.2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/schema_internal.h"
#include "tokenizer/unicode/unicode.h"

#define MAX_URI 2000

/* --- drafts */

/* The draft that "$schema" names; `fallback` without one. */
static Status find_draft(const Json *json, Draft fallback, Draft *draft, Error *err) {
  static const struct {
    const char *name;
    Draft draft;
  } drafts[] = {
      {"json-schema.org/draft-04/schema", DRAFT_4},
      {"json-schema.org/draft-06/schema", DRAFT_6},
      {"json-schema.org/draft-07/schema", DRAFT_7},
      {"json-schema.org/draft/2019-09/schema", DRAFT_2019},
      {"json-schema.org/draft/2020-12/schema", DRAFT_2020},
      {"json-schema.org/schema", DRAFT_2020},
  };
  const Json *named = schema_find(json, "$schema");
  *draft = fallback;
  if (!named || !json_is_string(named)) return STATUS_OK;
  size_t size;
  const char *uri = json_string(named, &size);
  const char *rest = strncmp(uri, "http://", 7) == 0    ? uri + 7
                     : strncmp(uri, "https://", 8) == 0 ? uri + 8
                                                        : uri;
  for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
    size_t n = strlen(drafts[i].name);
    if (strncmp(rest, drafts[i].name, n) != 0 || (rest[n] && strcmp(rest + n, "#") != 0)) continue;
    *draft = drafts[i].draft;
    return STATUS_OK;
  }
  return error_set(
      err, STATUS_USAGE,
      "$schema: \"%s\" is no draft that is known (4, 6, 7, 2019-09, 2020-12; without $schema 2020-12)", uri);
}

/* --- URIs */

typedef struct {
  const char *at;
  size_t size;
} Part;

typedef struct {
  Part scheme, authority, path, query; /* `at` is NULL in a missing part */
} Uri;

static Uri split(const char *text) {
  Uri uri = {.path = {text, 0}};
  size_t n = strcspn(text, "#"), colon = strcspn(text, ":/?#");
  const char *end = text + n, *at = text;
  if (colon < n && text[colon] == ':') {
    uri.scheme = (Part){text, colon};
    at += colon + 1;
  }
  if (end - at >= 2 && at[0] == '/' && at[1] == '/') {
    uri.authority = (Part){at + 2, strcspn(at + 2, "/?#")};
    at += 2 + uri.authority.size;
  }
  size_t path = strcspn(at, "?#");
  uri.path = (Part){at, path};
  if (at[path] == '?') uri.query = (Part){at + path + 1, (size_t)(end - (at + path + 1))};
  return uri;
}

/* Removes "." and ".." segments in place. */
static void remove_dots(char *path) {
  char *out = path;
  for (const char *in = path; *in;) {
    size_t n = 1 + strcspn(in + 1, "/");
    if (*in != '/') n = strcspn(in, "/");
    bool dot = n == 2 && memcmp(in, "/.", 2) == 0, dots = n == 3 && memcmp(in, "/..", 3) == 0;
    if (dots)
      while (out > path && *--out != '/') continue;
    if (dot || dots) {
      if (!in[n]) *out++ = '/';
    } else {
      memmove(out, in, n);
      out += n;
    }
    in += n;
    if (n == 0) break;
  }
  *out = '\0';
}

static void append(char *out, const char *before, Part part, const char *after) {
  size_t n = strlen(out);
  if (n + part.size + strlen(before) + strlen(after) + 1 > MAX_URI || !part.at) return;
  strcpy(out + n, before);
  memcpy(out + n + strlen(before), part.at, part.size);
  strcpy(out + n + strlen(before) + part.size, after);
}

/* The absolute URI of `reference` seen from `base`, without a fragment, in out[0..MAX_URI). */
static void resolve(const char *base_text, const char *reference, char *out) {
  const Uri base = split(base_text), ref = split(reference);
  char path[MAX_URI] = "";
  Part query = ref.query, authority = ref.authority;
  if (ref.scheme.at || ref.authority.at) {
    append(path, "", ref.path, "");
  } else {
    authority = base.authority;
    if (ref.path.size == 0) {
      append(path, "", base.path, "");
      if (!ref.query.at) query = base.query;
    } else if (*ref.path.at == '/') {
      append(path, "", ref.path, "");
    } else {
      size_t keep = base.path.size;
      while (keep > 0 && base.path.at[keep - 1] != '/') keep--;
      if (base.authority.at && base.path.size == 0) append(path, "", (Part){"/", 1}, "");
      append(path, "", (Part){base.path.at, keep}, "");
      append(path, "", ref.path, "");
    }
  }
  if (path[0] == '/') remove_dots(path);
  out[0] = '\0';
  append(out, "", ref.scheme.at ? ref.scheme : base.scheme, ":");
  append(out, "//", authority, "");
  append(out, "", (Part){path, strlen(path)}, "");
  append(out, "?", query, "");
}

/* --- documents and anchors */

static Status add_resource(SchemaSet *set, const char *uri, const Json *json, Draft draft, Error *err) {
  TRY(mem_grow(&set->resources, &set->resources_capacity, set->n_resources + 1, sizeof *set->resources,
               "a schema", err));
  char *copy = strdup(uri);
  if (!copy) return error_set(err, STATUS_FAILED, "out of memory");
  set->resources[set->n_resources++] = (Resource){copy, json, draft};
  return STATUS_OK;
}

static Status add_anchor(SchemaSet *set, uint32_t resource, const char *name, const Json *json, bool dynamic,
                         Error *err) {
  TRY(mem_grow(&set->anchors, &set->anchors_capacity, set->n_anchors + 1, sizeof *set->anchors, "a schema",
               err));
  char *copy = strdup(name);
  if (!copy) return error_set(err, STATUS_FAILED, "out of memory");
  set->anchors[set->n_anchors++] = (Anchor){resource, copy, json, dynamic};
  return STATUS_OK;
}

static const char *member_string(const Json *json, const char *key) {
  const Json *member = schema_find(json, key);
  size_t size;
  return member && json_is_string(member) ? json_string(member, &size) : NULL;
}

static Status find_in(SchemaSet *set, const Json *json, uint32_t resource, Draft draft, int depth,
                      Error *err);

static Status find_in_each(SchemaSet *set, const Json *json, uint32_t resource, Draft draft, int depth,
                           Error *err) {
  for (const Json *one = json_first(json); one; one = json_next(one))
    TRY(find_in(set, one, resource, draft, depth, err));
  return STATUS_OK;
}

/* True if `word` is one of `words`. These are one text, with a blank after each word. */
static bool is_one_of(const char *word, const char *words) {
  const size_t n = strlen(word);
  for (; *words; words += strcspn(words, " ") + 1)
    if (strcspn(words, " ") == n && memcmp(words, word, n) == 0) return true;
  return false;
}

/* Looks for documents and anchors where keywords hold schemas. */
static Status find_below(SchemaSet *set, const Json *json, uint32_t resource, Draft draft, int depth,
                         Error *err) {
  static const char single[] = "additionalItems additionalProperties contains propertyNames not if then else "
                               "unevaluatedItems unevaluatedProperties contentSchema ",
                    lists[] = "allOf anyOf oneOf prefixItems ",
                    maps[] = "properties patternProperties $defs definitions dependentSchemas dependencies ";
  for (const Json *member = json_first(json); member; member = json_next(member)) {
    const char *key = json_key(member);
    bool items = strcmp(key, "items") == 0;
    if (is_one_of(key, single) || (items && json_is_object(member))) {
      TRY(find_in(set, member, resource, draft, depth, err));
    } else if (((is_one_of(key, lists) || items) && json_is_array(member)) ||
               (is_one_of(key, maps) && json_is_object(member))) {
      TRY(find_in_each(set, member, resource, draft, depth, err));
    }
  }
  return STATUS_OK;
}

static Status find_in(SchemaSet *set, const Json *json, uint32_t resource, Draft draft, int depth,
                      Error *err) {
  if (!json_is_object(json) || depth > 512) return STATUS_OK;
  const char *id = member_string(json, draft <= DRAFT_4 ? "id" : "$id");
  bool alone = draft <= DRAFT_7 && schema_find(json, "$ref"); /* these drafts ignore siblings of $ref */
  if (id && !alone && depth > 0 && id[0] != '#') {
    char uri[MAX_URI];
    Draft own;
    TRY(find_draft(json, draft, &own, err));
    resolve(set->resources[resource].uri, id, uri);
    TRY(add_resource(set, uri, json, own, err));
    resource = (uint32_t)set->n_resources - 1;
    draft = own;
  }
  const char *fragment = id ? strchr(id, '#') : NULL;
  if (fragment && fragment[1] && draft <= DRAFT_7 && !alone)
    TRY(add_anchor(set, resource, fragment + 1, json, false, err));
  const char *anchor = draft >= DRAFT_2019 ? member_string(json, "$anchor") : NULL;
  const char *dynamic = draft >= DRAFT_2020 ? member_string(json, "$dynamicAnchor") : NULL;
  if (anchor) TRY(add_anchor(set, resource, anchor, json, false, err));
  if (dynamic) TRY(add_anchor(set, resource, dynamic, json, true, err));
  return find_below(set, json, resource, draft, depth + 1, err);
}

Status schema_find_resources(SchemaSet *set, Error *err) {
  Draft draft;
  char uri[MAX_URI];
  TRY(find_draft(set->tree, DRAFT_2020, &draft, err));
  const char *id = member_string(set->tree, draft <= DRAFT_4 ? "id" : "$id");
  resolve("", id ? id : "", uri);
  TRY(add_resource(set, uri, set->tree, draft, err));
  return find_in(set, set->tree, 0, draft, 0, err);
}

void schema_enter(const SchemaSet *set, const Json *json, uint32_t *resource, Draft *draft) {
  for (size_t i = 0; i < set->n_resources; i++) {
    if (set->resources[i].json != json) continue;
    *resource = (uint32_t)i;
    *draft = set->resources[i].draft;
  }
}

/* --- references */

/* Decodes %XX in place. */
static void decode_percent(char *text) {
  char *out = text;
  for (const char *in = text; *in; in++) {
    bool escape = *in == '%' && digit_value(in[1]) < 16 && digit_value(in[2]) < 16;
    *out++ = escape ? (char)(digit_value(in[1]) * 16 + digit_value(in[2])) : *in;
    if (escape) in += 2;
  }
  *out = '\0';
}

/* schema_find() of an object that a pointer leads through. Thousands of references may lead through one
 * "$defs": on first use its members are indexed. If no memory is left for the index, the members are
 * searched. */
static const Json *member_of(SchemaSet *set, const Json *object, const char *key) {
  const uint64_t place = (uintptr_t)object; /* the object's own entry says that its members have entries */
  if (!key_table_find(&set->members, place) && key_table_add(&set->members, (KeyEntry){place, {object}}))
    for (const Json *one = json_first(object); one; one = json_next(one))
      key_table_add(&set->members, (KeyEntry){hash64(json_key(one), strlen(json_key(one)), place), {one}});
  const KeyEntry *entry = key_table_find(&set->members, hash64(key, strlen(key), place));
  return entry && strcmp(json_key(entry->value.pointer), key) == 0 ? entry->value.pointer
                                                                   : schema_find(object, key);
}

/* The member or element that one token of a pointer names. */
static const Json *step(SchemaSet *set, const Json *json, char *token) {
  char *out = token;
  for (const char *in = token; *in; in++) {
    bool escape = *in == '~' && (in[1] == '0' || in[1] == '1');
    *out++ = escape ? (in[1] == '0' ? '~' : '/') : *in;
    if (escape) in++;
  }
  *out = '\0';
  if (json_is_object(json)) return member_of(set, json, token);
  if (!json_is_array(json) || !*token || strspn(token, "0123456789") != strlen(token) || strlen(token) > 8)
    return NULL;
  const Json *element = json_first(json);
  for (long n = strtol(token, NULL, 10); n > 0 && element; n--) element = json_next(element);
  return element;
}

/* The value to which a JSON pointer leads from `json`, or NULL. The pointer's text is modified. *resource and
 * *draft become those of the last resource that begins on the way. */
static const Json *follow(SchemaSet *set, const Json *json, char *pointer, uint32_t *resource, Draft *draft) {
  char *at = pointer;
  while (json && *at == '/') {
    char *end = strchrnul(at + 1, '/');
    char after = *end;
    *end = '\0';
    json = step(set, json, at + 1);
    *end = after;
    if (json) schema_enter(set, json, resource, draft);
    at = end;
  }
  return json;
}

/* Refuses a $dynamicRef if several schemas bear its dynamic anchor. Otherwise the $dynamicRef means what a
 * $ref would. */
static Status check_dynamic(SchemaSet *set, const char *name, const char *pointer, Error *err) {
  size_t n = 0;
  for (size_t i = 0; i < set->n_anchors; i++)
    n += set->anchors[i].dynamic && strcmp(set->anchors[i].name, name) == 0;
  if (n <= 1) return STATUS_OK;
  set->langs.unsupported = true;
  return error_set(
      err, STATUS_USAGE,
      "%s/$dynamicRef: %zu schemas have the $dynamicAnchor \"%s\", expected one (a $ref can name the "
      "one that is meant)",
      pointer, n, name);
}

Status schema_resolve(SchemaSet *set, uint32_t resource, const char *reference, bool dynamic,
                      const char *pointer, uint32_t *number, Error *err) {
  char uri[MAX_URI], fragment[MAX_URI];
  const char *hash = strchr(reference, '#'), *keyword = dynamic ? "$dynamicRef" : "$ref";
  if (strlen(reference) >= MAX_URI)
    return error_set(err, STATUS_USAGE, "%s/%s is too long", pointer, keyword);
  resolve(set->resources[resource].uri, reference, uri);
  strcpy(fragment, hash ? hash + 1 : "");
  decode_percent(fragment);
  size_t found = 0;
  while (found < set->n_resources && strcmp(set->resources[found].uri, uri) != 0) found++;
  set->langs.unsupported = found == set->n_resources;
  if (found == set->n_resources)
    return error_set(err, STATUS_USAGE,
                     "%s/%s: \"%s\" is not in the schema, and nothing is fetched "
                     "(a copy below $defs, with that as its $id, is found)",
                     pointer, keyword, reference);
  uint32_t at = (uint32_t)found;
  Draft draft = set->resources[at].draft;
  const Json *json = set->resources[at].json;
  if (fragment[0] == '/') {
    char copy[MAX_URI];
    strcpy(copy, fragment);
    json = follow(set, json, copy, &at, &draft);
  } else if (fragment[0]) {
    json = NULL;
    for (size_t i = 0; i < set->n_anchors && !json; i++) {
      const Anchor *anchor = &set->anchors[i];
      if (anchor->resource != at || strcmp(anchor->name, fragment) != 0) continue;
      json = anchor->json;
      if (dynamic && anchor->dynamic) TRY(check_dynamic(set, fragment, pointer, err));
    }
  }
  if (!json)
    return error_set(err, STATUS_USAGE, "%s/%s: \"%s\" leads nowhere: the schema has no such place", pointer,
                     keyword, reference);
  char place[MAX_URI + 2];
  snprintf(place, sizeof place, "%s#%s", at == 0 ? "" : set->resources[at].uri, fragment);
  return schema_add(set, json, at, draft, place, number, err);
}
