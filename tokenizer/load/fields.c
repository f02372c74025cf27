/* fields.c - reads members of components; see fields.h. */
#include "tokenizer/load/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

Where where_copy(const char *where) {
  Where copy;
  snprintf(copy.text, sizeof copy.text, "%s", where);
  return copy;
}

Where where_in(const char *where, const char *name, size_t index) {
  Where out;
  if (name) {
    snprintf(out.text, sizeof out.text, "%.240s.%.60s", where, name);
  } else {
    snprintf(out.text, sizeof out.text, "%.280s[%zu]", where, index);
  }
  return out;
}

Status field_expected(const char *where, const char *key, const Json *value, const char *expected,
                      Error *err) {
  char found[64];
  return error_set(err, STATUS_MODEL, "%s%s%s is %s, expected %s", where, key ? ": " : "", key ? key : "",
                   json_describe(value, found), expected);
}

Status field_unknown_type(const char *where, const char *type, Error *err) {
  return error_set(err, STATUS_MODEL, "%s: type \"%.80s\" is not supported", where, type);
}

/* Returns whether `key` is one of the words of `keys`. */
static bool listed(const char *keys, const char *key) {
  size_t n = strlen(key);
  for (const char *at = keys; *at; at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' '))
    if (strcspn(at, " ") == n && memcmp(at, key, n) == 0) return true;
  return false;
}

/* Tests the value itself: a lookup by key would search the object again for each member. */
static bool is_null(const Json *value) {
  return !json_is_object(value) && !json_is_array(value) && !json_is_string(value) &&
         !json_is_number(value) && !json_is_bool(value);
}

Status field_known(const char *where, const Json *json, const char *keys, Error *err) {
  if (!json_is_object(json)) return field_expected(where, NULL, json, "an object", err);
  for (const Json *member = json_first(json); member; member = json_next(member)) {
    const char *key = json_key(member);
    if (strcmp(key, "type") == 0 || listed(keys, key) || is_null(member)) continue;
    return error_set(err, STATUS_MODEL, "%s: %.80s is not supported", where, key);
  }
  return STATUS_OK;
}

static Status missing(const char *where, const char *key, Error *err) {
  return error_set(err, STATUS_MODEL, "%s: %s is missing", where, key);
}

Status field_bool(const char *where, const Json *json, const char *key, bool *out, Error *err) {
  if (!json_member(json, key)) return missing(where, key, err);
  return field_bool_or(where, json, key, false, out, err);
}

Status field_bool_or(const char *where, const Json *json, const char *key, bool fallback, bool *out,
                     Error *err) {
  return json_get_bool((JsonSource){where, STATUS_MODEL}, json, key, fallback, out, err);
}

Status field_string(const char *where, const Json *json, const char *key, char **out, size_t *size,
                    Error *err) {
  const Json *value = json_member(json, key);
  if (!value) return missing(where, key, err);
  if (!json_is_string(value)) return field_expected(where, key, value, "a string", err);
  const char *bytes = json_string(value, size);
  TRY(NEW(*out, *size + 1, key, err));
  memcpy(*out, bytes, *size);
  return STATUS_OK;
}

Status field_character(const char *where, const Json *json, const char *key, char out[5], size_t *size,
                       Error *err) {
  const Json *value = json_member(json, key);
  if (!value) return missing(where, key, err);
  uint32_t code;
  const char *bytes = json_is_string(value) ? json_string(value, size) : "";
  if (!json_is_string(value) || *size == 0 || utf8_decode(bytes, *size, &code) != (int)*size)
    return field_expected(where, key, value, "a string of one character", err);
  memcpy(out, bytes, *size);
  out[*size] = '\0';
  return STATUS_OK;
}

Status field_count(const char *where, const Json *json, const char *key, int64_t high, int64_t *out,
                   Error *err) {
  if (!json_member(json, key)) return missing(where, key, err);
  return json_get_int((JsonSource){where, STATUS_MODEL}, json, key, 0, high, 0, out, err);
}

Status field_array(const char *where, const Json *json, const char *key, const Json **out, Error *err) {
  *out = json_member(json, key);
  if (!*out) return missing(where, key, err);
  return json_is_array(*out) ? STATUS_OK : field_expected(where, key, *out, "an array", err);
}
