/* fields.h - private to the loaders: members of a component's JSON, each of a known name and type.
 *
 * `where` names file and component ("FILE: decoder.Sequence[1]"). All failures are STATUS_MODEL. */
#ifndef AUK_TOKENIZER_FIELDS_H
#define AUK_TOKENIZER_FIELDS_H

#include "base/json.h"

typedef struct {
  char text[320];
} Where;

/* The same, kept. */
Where where_copy(const char *where);
/* "WHERE.name", or "WHERE[index]" where name is NULL. */
Where where_in(const char *where, const char *name, size_t index);

/* Refuses a value: "WHERE: KEY is VALUE, expected EXPECTED", or "WHERE is VALUE, ..." where key is NULL. */
Status field_expected(const char *where, const char *key, const Json *value, const char *expected,
                      Error *err);
/* The component's "type"; refused where it is no object or has none. */
Status field_type(const char *where, const Json *json, const char **type, Error *err);
/* Refuses members that are neither "type" nor in `keys` (separated by spaces) and not null. */
Status field_known(const char *where, const Json *json, const char *keys, Error *err);

Status field_bool(const char *where, const Json *json, const char *key, bool *out,
                  Error *err); /* must be there */
Status field_bool_or(const char *where, const Json *json, const char *key, bool fallback, bool *out,
                     Error *err);
/* Bytes in new memory, NUL-terminated; must be there. */
Status field_string(const char *where, const Json *json, const char *key, char **out, size_t *size,
                    Error *err);
/* A string of exactly one character. */
Status field_character(const char *where, const Json *json, const char *key, char out[5], size_t *size,
                       Error *err);
Status field_count(const char *where, const Json *json, const char *key, int64_t high, int64_t *out,
                   Error *err);
/* The array `key`; must be there. */
Status field_array(const char *where, const Json *json, const char *key, const Json **out, Error *err);

/* Refuses the component by its type's name. */
Status field_unknown_type(const char *where, const char *type, Error *err);

#endif
