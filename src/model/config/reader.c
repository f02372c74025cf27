/* reader.c - see reader.h. Called by: config.c, positions.c, src/model/quant.   Calls: base/json.c. */
#include "model/config/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

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
  TRY(json_get_int(source(r), r->object, key, low, high, fallback, &value, r->err));
  *out = (int)value;
  return STATUS_OK;
}

Status reader_int64(const ConfigReader *r, const char *key, int64_t fallback, int64_t *out) {
  return json_get_int(source(r), r->object, key, INT64_MIN, INT64_MAX, fallback, out, r->err);
}

Status reader_double(const ConfigReader *r, const char *key, double low, double high, double fallback,
                     double *out) {
  return json_get_double(source(r), r->object, key, low, high, fallback, out, r->err);
}

Status reader_bool(const ConfigReader *r, const char *key, bool fallback, bool *out) {
  return json_get_bool(source(r), r->object, key, fallback, out, r->err);
}

Status reader_refuse_true(const ConfigReader *r, const char *key) {
  bool on;
  TRY(reader_bool(r, key, false, &on));
  return on ? reader_refuse(r, "%s is true, which is not supported, expected false", key) : STATUS_OK;
}

Status reader_string(const ConfigReader *r, const char *key, const char **out) {
  return json_get_string(source(r), r->object, key, out, r->err);
}

Status reader_names_of_layers(const ConfigReader *r, const Json *names, int n_layers) {
  if (!json_is_array(names)) return reader_expected(r, "layer_types", names, "a list of names");
  if (json_count(names) == (size_t)n_layers) return STATUS_OK;
  return reader_refuse(r, "layer_types is a list of %zu, expected a list of %d names (num_hidden_layers)",
                       json_count(names), n_layers);
}

Status reader_numbers_of_layers(const ConfigReader *r, const char *key, const Json *list, int n_layers,
                                bool *listed) {
  char found[64];
  memset(listed, 0, (size_t)n_layers * sizeof *listed);
  if (list && !json_is_array(list)) return reader_expected(r, key, list, "a list of numbers of layers");
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    int64_t layer;
    if (!json_int64(item, &layer) || layer < 0)
      return reader_refuse(r, "%s holds %s, expected numbers of layers", key, json_describe(item, found));
    if (layer < n_layers) listed[layer] = true;
  }
  return STATUS_OK;
}

const char *reader_first_key(const Json *object, const char *const *keys) {
  while (*keys && !json_member(object, *keys)) keys++;
  return *keys;
}

bool reader_is_null(const ConfigReader *r, const char *key) {
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
