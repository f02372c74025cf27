/* fields.h - private to the loaders: reads members of a component's JSON by name and type.
 *
 * `where` names file and component ("FILE: decoder.Sequence[1]"). Failures are STATUS_MODEL, for lack of
 * memory STATUS_FAILED. */
#pragma once

#include "base/json.h"

typedef struct {
  char text[320];
} Where;

/* A copy of the text. */
Where where_copy(const char *where);
/* "WHERE.name", or "WHERE[index]" where name is NULL. */
Where where_in(const char *where, const char *name, size_t index);

/* Refuses a value: "WHERE: KEY is VALUE, expected EXPECTED", or "WHERE is VALUE, ..." where key is NULL. */
Status field_expected(const char *where, const char *key, const Json *value, const char *expected,
                      Error *err);
/* Refuses members whose key is not in `keys` (separated by spaces), except "type" and nulls. */
Status field_known(const char *where, const Json *json, const char *keys, Error *err);

Status field_bool(const char *where, const Json *json, const char *key, bool *out, Error *err); /* required */
Status field_bool_or(const char *where, const Json *json, const char *key, bool fallback, bool *out,
                     Error *err);
/* Copies a string to new memory, NUL-terminated; required. */
Status field_string(const char *where, const Json *json, const char *key, char **out, size_t *size,
                    Error *err);
/* Copies a string of exactly one character, NUL-terminated; required. */
Status field_character(const char *where, const Json *json, const char *key, char out[5], size_t *size,
                       Error *err);
/* Reads an integer from 0 to `high`; required. */
Status field_count(const char *where, const Json *json, const char *key, int64_t high, int64_t *out,
                   Error *err);
/* Finds the array `key`; required. */
Status field_array(const char *where, const Json *json, const char *key, const Json **out, Error *err);

/* Refuses the component, naming its type. */
Status field_unknown_type(const char *where, const char *type, Error *err);
