/* reader.c - see reader.h. */
#include "model/config/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

const char *reader_key(const ConfigReader *r, const char *usual) {
  for (const MemberName *name = r->names; name && name->usual; name++) {
    if (strcmp(name->usual, usual) != 0) continue;
    switch (name->when) {
    case OWN_FIRST: return json_member(r->object, name->own) ? name->own : usual;
    case OWN_LAST: return json_member(r->object, usual) ? usual : name->own;
    case OWN_ALONE: return name->own;
    }
  }
  return usual;
}

const Json *reader_member(const ConfigReader *r, const char *key) {
  return json_member(r->object, reader_key(r, key));
}

Status reader_refuse(const ConfigReader *r, const char *format, ...) {
  char what[900];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return error_set(r->err, STATUS_MODEL, "%s: %s", r->name, what);
}

Status reader_expected(const ConfigReader *r, const char *key, const Json *value, const char *expected) {
  char found[64];
  return reader_refuse(r, "%s is %s, expected %s", key, json_describe(value, found), expected);
}

static JsonSource source(const ConfigReader *r) {
  return (JsonSource){r->name, STATUS_MODEL};
}

Status reader_int(const ConfigReader *r, const char *key, int64_t low, int64_t high, int fallback, int *out) {
  int64_t value;
  TRY(json_get_int(source(r), r->object, reader_key(r, key), low, high, fallback, &value, r->err));
  *out = (int)value;
  return STATUS_OK;
}

Status reader_int64(const ConfigReader *r, const char *key, int64_t fallback, int64_t *out) {
  return json_get_int(source(r), r->object, reader_key(r, key), INT64_MIN, INT64_MAX, fallback, out, r->err);
}

Status reader_double(const ConfigReader *r, const char *key, double low, double high, double fallback,
                     double *out) {
  return json_get_double(source(r), r->object, reader_key(r, key), low, high, fallback, out, r->err);
}

Status reader_bool(const ConfigReader *r, const char *key, bool fallback, bool *out) {
  return json_get_bool(source(r), r->object, reader_key(r, key), fallback, out, r->err);
}

Status reader_expect_bool(const ConfigReader *r, const char *key, bool expected) {
  bool found;
  TRY(reader_bool(r, key, expected, &found));
  if (found == expected) return STATUS_OK;
  return reader_refuse(r, "%s is %s, which is not supported, expected %s", reader_key(r, key),
                       found ? "true" : "false", expected ? "true" : "false");
}

Status reader_string(const ConfigReader *r, const char *key, const char **out) {
  return json_get_string(source(r), r->object, reader_key(r, key), out, r->err);
}

/* "a, b or c" */
static const char *listing(const char *const *names, char text[200]) {
  size_t size = 0;
  for (int i = 0; names[i]; i++)
    size += (size_t)snprintf(text + size, 200 - size, "%s%s",
                             i == 0         ? ""
                             : names[i + 1] ? ", "
                                            : " or ",
                             names[i]);
  return text;
}

Status reader_choice(const ConfigReader *r, const char *key, const char *const *names, int usual,
                     int *which) {
  const char *name;
  char known[200];
  TRY(reader_string(r, key, &name));
  for (*which = name ? 0 : usual; name && names[*which]; ++*which)
    if (strcmp(name, names[*which]) == 0) return STATUS_OK;
  return !name ? STATUS_OK
               : reader_refuse(r, "%s %.60s is not supported, expected %s", reader_key(r, key), name,
                               listing(names, known));
}

Status reader_list(const ConfigReader *r, const char *key, const Json *list, int n, const char *what) {
  char found[64];
  if (!json_is_array(list))
    return reader_refuse(r, "%s is %s, expected a list of %d %s", key, json_describe(list, found), n, what);
  if (json_count(list) == (size_t)n) return STATUS_OK;
  return reader_refuse(r, "%s is a list of %zu, expected a list of %d %s", key, json_count(list), n, what);
}

Status reader_list_of_layers(const ConfigReader *r, const char *key, const Json *list, int n_layers,
                             const char *what) {
  int n_more;
  TRY(reader_int(r, "num_nextn_predict_layers", 0, INT32_MAX, 0, &n_more));
  const bool more = json_is_array(list) && json_count(list) == (size_t)n_layers + (size_t)n_more;
  return more ? STATUS_OK : reader_list(r, key, list, n_layers, what);
}

Status reader_refuse_item(const ConfigReader *r, const char *key, int i, const Json *item,
                          const char *expected, ...) {
  char name[100], what[400];
  va_list args;
  va_start(args, expected);
  vsnprintf(what, sizeof what, expected, args);
  va_end(args);
  snprintf(name, sizeof name, "%s[%d]", key, i);
  return reader_expected(r, name, item, what);
}

Status reader_names_of_layers(const ConfigReader *r, const char *key, const char *const *names, int n_layers,
                              int8_t *which) {
  key = reader_key(r, key);
  const Json *list = json_member(r->object, key), *item = json_first(list);
  char known[200];
  memset(which, -1, (size_t)n_layers * sizeof *which);
  if (!list) return STATUS_OK;
  TRY(reader_list_of_layers(r, key, list, n_layers, "names (num_hidden_layers)"));
  for (int layer = 0; layer < n_layers; layer++, item = json_next(item)) {
    which[layer] = 0;
    while (names[which[layer]] && !json_string_is(item, names[which[layer]])) which[layer]++;
    if (!names[which[layer]]) return reader_refuse_item(r, key, layer, item, "%s", listing(names, known));
  }
  return STATUS_OK;
}

Status reader_numbers_of_layers(const ConfigReader *r, const char *key, int first, int n_layers, bool bounded,
                                bool *listed) {
  const Json *list = json_member(r->object, key);
  char found[64], range[64] = "";
  memset(listed, 0, (size_t)n_layers * sizeof *listed);
  if (list && !json_is_array(list)) return reader_expected(r, key, list, "a list of numbers of layers");
  if (bounded) snprintf(range, sizeof range, " from %d to %d", first, first + n_layers - 1);
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    int64_t layer;
    if (!json_int64(item, &layer) || layer < first || (bounded && layer - first >= n_layers))
      return reader_refuse(r, "%s holds %s, expected numbers of layers%s", key, json_describe(item, found),
                           range);
    if (layer - first < n_layers) listed[layer - first] = true;
  }
  return STATUS_OK;
}

const char *reader_first_key(const Json *object, const char *const *keys) {
  while (*keys && !json_member(object, *keys)) keys++;
  return *keys;
}

bool reader_is_null(const ConfigReader *r, const char *key) {
  key = reader_key(r, key);
  for (const Json *item = json_first(r->object); item; item = json_next(item))
    if (strcmp(json_key(item), key) == 0) return !json_member(r->object, key);
  return false;
}

Status reader_refuse_given(const ConfigReader *r, const char *key) {
  if (!json_member(r->object, key)) return STATUS_OK;
  return reader_refuse(r, "%s is not supported, expected null", key);
}

Status reader_object(const ConfigReader *r, const char *key, ConfigReader *member) {
  const Json *object = json_member(r->object, key);
  if (object && !json_is_object(object)) return reader_expected(r, key, object, "an object");
  *member = (ConfigReader){.object = object, .err = r->err};
  snprintf(member->name, sizeof member->name, "%.900s: %s", r->name, key);
  return STATUS_OK;
}

Status reader_open(const char *file, const char *text, size_t size, Json **tree, ConfigReader *r,
                   Error *err) {
  TRY(content_expect_no_pointer(file, text, size, err));
  TRY(json_parse_python(file, STATUS_MODEL, text, size, tree, err));
  *r = (ConfigReader){.object = *tree, .err = err};
  snprintf(r->name, sizeof r->name, "%s", file);
  return json_is_object(*tree) ? STATUS_OK : reader_expected(r, "its JSON", *tree, "an object");
}
