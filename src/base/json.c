/* json.c - trees of validated JSON: cJSON parses the copy that json_validate() makes.
 *
 * Always true: a number in a tree is a cJSON string of JSON_NUMBER_MARK and the number's own text, so nothing
 *              is rounded; any other string is valid UTF-8; the size of both is in valueint. Only this file
 *              looks into a cJSON. */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"

_Static_assert(JSON_MAX_DEPTH < CJSON_NESTING_LIMIT, "what was validated must parse");
_Static_assert(JSON_MAX_SIZE < 0x7fffffff, "sizes fit valueint");

/* --- parsing */

/* Turns each C0 80 in text[0..size) back into a NUL, and returns the new size. */
static size_t restore_nuls(char *text, size_t size) {
  size_t kept = 0;
  for (size_t i = 0; i < size; i++) {
    bool nul = (unsigned char)text[i] == 0xc0;
    text[kept++] = nul ? 0 : text[i];
    i += nul;
  }
  return kept;
}

/* Restores each string's NULs and stores its size in valueint. */
static void restore_strings(cJSON *item) {
  for (; item; item = item->next) {
    if (item->child) restore_strings(item->child);
    if (!cJSON_IsString(item)) continue;
    const size_t kept = restore_nuls(item->valuestring, strlen(item->valuestring));
    item->valuestring[kept] = 0;
    item->valueint = (int)kept;
  }
}

static Status parse(const char *name, Status refused, bool python, const char *text, size_t size,
                    JsonSkip *skips, size_t n_skips, Json **tree, Error *err) {
  OWNED(buffer_release) Buffer copy = {0};
  if (tree) *tree = NULL;
  TRY(json_validate(name, refused, python, text, size, skips, n_skips, tree ? &copy : NULL, err));
  if (!tree) return STATUS_OK;
  *tree = cJSON_ParseWithLength(copy.data, copy.size);
  if (!*tree)
    return error_set(err, STATUS_FAILED, "out of memory: the JSON of %s", name); /* the text is valid */
  restore_strings(*tree);
  return STATUS_OK;
}

Status json_parse(const char *name, Status refused, const char *text, size_t size, JsonSkip *skips,
                  size_t n_skips, Json **tree, Error *err) {
  return parse(name, refused, false, text, size, skips, n_skips, tree, err);
}

Status json_parse_python(const char *name, Status refused, const char *text, size_t size, Json **tree,
                         Error *err) {
  return parse(name, refused, true, text, size, NULL, 0, tree, err);
}

void json_free(Json *tree) {
  cJSON_Delete(tree);
}

/* --- look-up */

const Json *json_member(const Json *object, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  return cJSON_IsNull(item) ? NULL : item;
}

bool json_is_object(const Json *value) {
  return cJSON_IsObject(value);
}

bool json_is_array(const Json *value) {
  return cJSON_IsArray(value);
}

bool json_is_string(const Json *value) {
  return cJSON_IsString(value) && value->valuestring[0] != JSON_NUMBER_MARK;
}

bool json_is_number(const Json *value) {
  return cJSON_IsString(value) && value->valuestring[0] == JSON_NUMBER_MARK;
}

bool json_is_bool(const Json *value) {
  return cJSON_IsBool(value);
}

bool json_is_null(const Json *value) {
  return cJSON_IsNull(value);
}

size_t json_count(const Json *value) {
  return (size_t)cJSON_GetArraySize(value);
}

const Json *json_first(const Json *value) {
  return json_is_array(value) || json_is_object(value) ? value->child : NULL;
}

const Json *json_next(const Json *element) {
  return element ? element->next : NULL;
}

const char *json_key(const Json *element) {
  return element->string;
}

Status json_key_bytes(const Json *element, Buffer *decoded, const char **bytes, size_t *size, Error *err) {
  *bytes = json_key(element);
  *size = strlen(*bytes);
  if (!memchr(*bytes, 0xc0, *size)) return STATUS_OK;
  decoded->size = 0;
  TRY(buffer_append(decoded, *bytes, *size, err));
  *size = restore_nuls(decoded->data, *size);
  *bytes = decoded->data;
  return STATUS_OK;
}

const char *json_string(const Json *value, size_t *size) {
  *size = (size_t)value->valueint;
  return value->valuestring;
}

const char *json_number(const Json *value, size_t *size) {
  *size = (size_t)value->valueint - 1;
  return value->valuestring + 1;
}

bool json_string_is(const Json *value, const char *expected) {
  if (!json_is_string(value)) return false;
  size_t size;
  const char *bytes = json_string(value, &size);
  return size == strlen(expected) && memcmp(bytes, expected, size) == 0;
}

bool json_text_int64(const char *text, size_t size, int64_t *out) {
  const char *at = text, *end = text + size;
  bool negative = at < end && *at == '-';
  if (negative) at++;
  /* The number is value * 10^exponent; `zeros` counts zeros that no other digit has followed yet. */
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
        given = given * 10 + (*at - '0'); /* 2^40 exceeds the number of digits of any text */
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

bool json_int64(const Json *value, int64_t *out) {
  return json_is_number(value) && json_text_int64(value->valuestring + 1, (size_t)value->valueint - 1, out);
}

bool json_double(const Json *value, double *out) {
  if (!json_is_number(value)) return false;
  char *end; /* strtod() expects '.' as long as LC_NUMERIC is not set; the program sets LC_CTYPE alone */
  *out = strtod(value->valuestring + 1, &end);
  return *end == 0 && isfinite(*out);
}

bool json_bool(const Json *value, bool *out) {
  if (!json_is_bool(value)) return false;
  *out = cJSON_IsTrue(value);
  return true;
}

const char *json_describe(const Json *value, char text[64]) {
  if (!value) return "missing";
  if (json_is_object(value)) return "an object";
  if (json_is_array(value)) return "an array";
  if (cJSON_IsBool(value)) return cJSON_IsTrue(value) ? "true" : "false";
  if (cJSON_IsNull(value)) return "null";
  if (json_is_number(value))
    snprintf(text, 64, "%.60s", value->valuestring + 1);
  else
    snprintf(text, 64, "\"%.40s\"", value->valuestring);
  return text;
}

/* --- typed members */

Status json_get_int(JsonSource source, const Json *object, const char *key, int64_t low, int64_t high,
                    int64_t fallback, int64_t *out, Error *err) {
  const Json *value = json_member(object, key);
  *out = fallback;
  if (!value || (json_int64(value, out) && *out >= low && *out <= high)) return STATUS_OK;
  char found[64];
  return error_set(err, source.refused, "%s: %s is %s, expected an integer from %lld to %lld", source.name,
                   key, json_describe(value, found), (long long)low, (long long)high);
}

Status json_get_double(JsonSource source, const Json *object, const char *key, double low, double high,
                       double fallback, double *out, Error *err) {
  const Json *value = json_member(object, key);
  *out = fallback;
  if (!value || (json_double(value, out) && *out >= low && *out <= high)) return STATUS_OK;
  char found[64];
  return error_set(err, source.refused, "%s: %s is %s, expected a number from %g to %g", source.name, key,
                   json_describe(value, found), low, high);
}

Status json_get_bool(JsonSource source, const Json *object, const char *key, bool fallback, bool *out,
                     Error *err) {
  const Json *value = json_member(object, key);
  *out = fallback;
  if (!value || json_bool(value, out)) return STATUS_OK;
  char found[64];
  return error_set(err, source.refused, "%s: %s is %s, expected true or false", source.name, key,
                   json_describe(value, found));
}

Status json_get_string(JsonSource source, const Json *object, const char *key, const char **out, Error *err) {
  const Json *value = json_member(object, key);
  *out = NULL;
  if (!value) return STATUS_OK;
  if (json_is_string(value) && strlen(value->valuestring) == (size_t)value->valueint) {
    *out = value->valuestring;
    return STATUS_OK;
  }
  char found[64];
  return error_set(err, source.refused, "%s: %s is %s, expected a string%s", source.name, key,
                   json_describe(value, found), json_is_string(value) ? " without NUL" : "");
}
