/* reader.h - typed members of JSON objects, with messages that name the file. Private to src/model. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

/* A family's own name for a member. OWN_FIRST: read if it is given, else `usual` is. OWN_LAST: read unless
 * `usual` is given. OWN_ALONE: read in any case. */
typedef struct {
  const char *usual, *own;
  enum { OWN_FIRST, OWN_LAST, OWN_ALONE } when;
} MemberName;

typedef struct ConfigReader {
  char name[1024];         /* the file's name, or "FILE: MEMBER", for messages */
  const Json *object;      /* NULL: all members are absent */
  const MemberName *names; /* ends with a usual name of NULL; or NULL */
  Error *err;
} ConfigReader;

/* The name under which a member with this usual name is read. */
const char *reader_key(const ConfigReader *r, const char *usual);
const Json *reader_member(const ConfigReader *r, const char *key); /* NULL: absent or null */

/* Parses the text of a file and reads its object; free *tree also after a failure. */
Status reader_open(const char *file, const char *text, size_t size, Json **tree, ConfigReader *r, Error *err);
/* Reads the member `key` of an object; if it is absent, the new reader's object is NULL. */
Status reader_object(const ConfigReader *r, const char *key, ConfigReader *member);

/* STATUS_MODEL with "NAME: " and the message, or with "NAME: KEY is VALUE, expected EXPECTED". */
Status __attribute__((format(printf, 2, 3))) reader_refuse(const ConfigReader *r, const char *format, ...);
Status reader_expected(const ConfigReader *r, const char *key, const Json *value, const char *expected);

/* Typed members; here and in reader_choice(), reader_names_of_layers() and reader_is_null() `key` is a usual
 * name, elsewhere the one in the file. An absent or null member gives `fallback`, which is not checked.
 * Another type, or a number out of [low, high], is refused. */
Status reader_int(const ConfigReader *r, const char *key, int64_t low, int64_t high, int fallback, int *out);
Status reader_int64(const ConfigReader *r, const char *key, int64_t fallback, int64_t *out); /* of any size */
Status reader_double(const ConfigReader *r, const char *key, double low, double high, double fallback,
                     double *out);
Status reader_bool(const ConfigReader *r, const char *key, bool fallback, bool *out);
/* Refuses a bool that is not `expected`. */
Status reader_expect_bool(const ConfigReader *r, const char *key, bool expected);
Status reader_string(const ConfigReader *r, const char *key, const char **out); /* NULL: absent */

/* *which: the index of the member's value in `names`, which ends with NULL; `usual` if the member is absent.
 * Refuses any other value. */
Status reader_choice(const ConfigReader *r, const char *key, const char *const *names, int usual, int *which);

/* Refuses `list`, the member `key`, unless it is a list of n items; `what` is the message's word for
 * items. */
Status reader_list(const ConfigReader *r, const char *key, const Json *list, int n, const char *what);
/* As reader_list(), with one item for each layer. Items for the num_nextn_predict_layers layers of
 * multi-token prediction may follow. */
Status reader_list_of_layers(const ConfigReader *r, const char *key, const Json *list, int n_layers,
                             const char *what);
/* Refuses item i of the list `key`, as reader_expected() does; `expected` is a format. */
Status __attribute__((format(printf, 5, 6))) reader_refuse_item(const ConfigReader *r, const char *key, int i,
                                                                const Json *item, const char *expected, ...);

/* Reads the member `key`, a list with a name for each layer. which[layer]: the index of the layer's name in
 * `names`, which ends with NULL; -1 for all layers if the member is absent. */
Status reader_names_of_layers(const ConfigReader *r, const char *key, const char *const *names, int n_layers,
                              int8_t *which);

/* Fills listed[n_layers]: whether the list `key` holds the layer's number, counted from `first` on. Numbers
 * below `first` are refused. Numbers beyond the last layer are refused if `bounded`, else ignored. */
Status reader_numbers_of_layers(const ConfigReader *r, const char *key, int first, int n_layers, bool bounded,
                                bool *listed);

/* The first of `keys`, a NULL-terminated list, that the object has; NULL: none. */
const char *reader_first_key(const Json *object, const char *const *keys);

/* True if the member is there and null. For members where null differs from absence. */
bool reader_is_null(const ConfigReader *r, const char *key);
/* Refuses a member that must be absent or null. */
Status reader_refuse_given(const ConfigReader *r, const char *key);
