/* reader.h - typed members of a config's JSON object, with messages that name the file. Private to
 * src/model. */
#ifndef AUK_MODEL_CONFIG_READER_H
#define AUK_MODEL_CONFIG_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

/* An object of a file, and how to report failures of its members. */
typedef struct ConfigReader {
  JsonSource source;
  const Json *object;
  Error *err;
} ConfigReader;

Status __attribute__((format(printf, 2, 3))) reader_refuse(const ConfigReader *r, const char *format, ...);
/* "KEY is VALUE, expected EXPECTED". */
Status reader_expected(const ConfigReader *r, const char *key, const Json *value, const char *expected);

/* Typed members; absent or null gives `fallback`, what is out of [low, high] is refused. */
Status reader_int(const ConfigReader *r, const char *key, int64_t low, int64_t high, int fallback, int *out);
Status reader_double(const ConfigReader *r, const char *key, double low, double high, double fallback,
                     double *out);
Status reader_bool(const ConfigReader *r, const char *key, bool fallback, bool *out);
Status reader_string(const ConfigReader *r, const char *key, const char **out); /* NULL where it is absent */

/* Whether the member is there and null, for members where that differs from absence. */
bool reader_is_null(const ConfigReader *r, const char *key);

/* Makes a reader of the member `key`, whose object is NULL if absent. `name` keeps its name for messages. */
Status reader_object(const ConfigReader *r, const char *key, char name[1024], ConfigReader *out);

#endif
