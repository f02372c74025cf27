/* json.h - JSON that is held to RFC 8259 before cJSON sees it.
 *
 * cJSON takes trailing text, duplicate keys, 01, raw control bytes and invalid UTF-8, cuts strings at \u0000
 * and rounds integers above 2^53. Here all of that is refused (line and column in the message) or kept exact:
 * read members only through the functions below, never through valuestring or valuedouble.
 *
 * Two ways in: json_parse() gives a tree of a whole text; JsonCursor walks a text without building anything,
 * for the large arrays of tokenizer.json and for safetensors headers. json_parse() can leave named members as
 * text ("skip"), to be walked by a cursor: the text has been validated then, so the cursor cannot fail on
 * syntax. Limits: nesting 512 deep; a text of 1 GB; a tree of a million values. */
#ifndef AUK_BASE_JSON_H
#define AUK_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

typedef struct cJSON Json; /* an object, array or value of a parsed tree */

typedef struct {
  const char *text; /* [size], points into the text that was parsed; NULL where the member is absent */
  size_t size;
} JsonSpan;

typedef struct {
  const char *path; /* members by name from the root, separated by '.', as "model.vocab" */
  JsonSpan span;    /* filled: the member's value as text; in the tree it is null */
} JsonSkip;

/* Parses text[0..size). `name` is the file's name for messages, `refused` their status. The tree does not
 * refer to the text (a JsonSpan does). Free with json_free(). `tree` may be NULL: the text is validated only,
 * for a cursor. At most 32 skips. */
Status json_parse(const char *name, Status refused, const char *text, size_t size, JsonSkip *skips,
                  size_t n_skips, Json **tree, Error *err);
void json_free(Json *tree);

/* Look-up. Absent members and null are the same: NULL. Objects only; any other kind gives NULL. */
const Json *json_member(const Json *object, const char *key);
bool json_is_object(const Json *value);
bool json_is_array(const Json *value);
bool json_is_string(const Json *value);
bool json_is_number(const Json *value);
bool json_is_bool(const Json *value);
size_t json_count(const Json *value);       /* elements of an array, members of an object, else 0 */
const Json *json_first(const Json *value);  /* first element or member, or NULL */
const Json *json_next(const Json *element); /* the one after it, or NULL */
const char *json_key(const Json *element);  /* of a member: its key; a U+0000 in it stands as C0 80 */
/* The bytes of a string, with their number, which may hold NULs. PRECOND json_is_string(). */
const char *json_string(const Json *value, size_t *size);
bool json_string_is(const Json *value, const char *expected);
/* The digits of a number as they stood in the text. PRECOND json_is_number(). */
const char *json_number(const Json *value, size_t *size);
/* An integer of any int64 exactly: false for fractions, exponents that are not whole, out of range,
 * non-numbers. */
bool json_int64(const Json *value, int64_t *out);
bool json_double(const Json *value, double *out);
bool json_bool(const Json *value, bool *out);
/* What is there in place of what was expected, for messages: "an object", "an array", true, null, 12 or
 * "text"; for NULL "missing". What varies is written into `text`. */
const char *json_describe(const Json *value, char text[64]);

/* Typed members, for configs: absent or null gives `fallback`; a wrong type or a value outside [low, high] is
 * refused with "NAME: KEY is FOUND, expected EXPECTED". */
typedef struct {
  const char *name; /* the file, for messages */
  Status refused;
} JsonSource;
Status json_get_int(JsonSource source, const Json *object, const char *key, int64_t low, int64_t high,
                    int64_t fallback, int64_t *out, Error *err);
Status json_get_double(JsonSource source, const Json *object, const char *key, double low, double high,
                       double fallback, double *out, Error *err);
Status json_get_bool(JsonSource source, const Json *object, const char *key, bool fallback, bool *out,
                     Error *err);
/* The string of a member or NULL in *out where absent; refused where it is no string or holds a NUL. It
 * belongs to the tree. */
Status json_get_string(JsonSource source, const Json *object, const char *key, const char **out, Error *err);

/* Walks a JSON text that json_parse() has accepted (a JsonSpan of it, or all of it). */
typedef struct {
  const char *at, *end;
} JsonCursor;

JsonCursor json_cursor(JsonSpan span);
/* Enters the array or object at the cursor: false where it is something else (the cursor stays). */
bool json_cursor_enter(JsonCursor *cursor, char open /* '[' or '{' */);
/* Inside one: moves to the next element; false at the end, with the cursor behind the closing bracket. */
bool json_cursor_next(JsonCursor *cursor, bool *first /* true before the first call */);
/* Reads the string at the cursor (a member's key too; the ':' behind a key is passed over) as bytes appended
 * to `out`: false where there is none. */
Status json_cursor_string(JsonCursor *cursor, Buffer *out, bool *is_string, Error *err);
bool json_cursor_int64(JsonCursor *cursor, int64_t *out); /* false: no integer there; the cursor stays */
JsonSpan json_cursor_value(JsonCursor *cursor);           /* passes over any value and gives its text */
/* json_describe() of the value at the cursor, of which an array is its own text, cut where it is long. */
const char *json_cursor_describe(JsonCursor cursor, char text[64]);

/* Appends text[0..size) as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD; control characters,
 * U+007F..U+009F, U+2028 and U+2029 are written as \n, \t and the like or as \uXXXX, everything else as it
 * is. */
Status json_write_string(Buffer *out, const char *text, size_t size, Error *err);

#endif
