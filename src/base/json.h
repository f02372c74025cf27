/* json.h - JSON that is validated to RFC 8259 before cJSON parses it.
 *
 * cJSON accepts trailing text, duplicate keys, 01, raw control bytes and invalid UTF-8, cuts strings at
 * \u0000 and rounds integers above 2^53. Here these are refused (with line and column) or kept exact: read
 * members only through the functions below, never through valuestring or valuedouble.
 *
 * json_parse() gives a tree of a whole text; JsonCursor walks a text without building a tree, for the large
 * arrays of tokenizer.json and for safetensors headers. json_parse() can leave named members as text ("skip")
 * for a cursor: it has validated that text, so the cursor cannot fail on syntax. Limits: nesting 512 deep; a
 * text of 1 GiB; a tree of 2^20 values. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

typedef struct cJSON Json; /* an object, array or value of a parsed tree */

typedef struct {
  const char *text; /* [size], points into the text that was parsed; NULL for an absent member */
  size_t size;
} JsonSpan;

typedef struct {
  const char *path; /* keys from the root, separated by '.': "model.vocab" */
  JsonSpan span;    /* filled with the member's value as text; in the tree the member is null */
} JsonSkip;

/* Parses text[0..size). `name` is the file's name for messages, `refused` their status. The tree does not
 * refer to the text (a JsonSpan does). Free with json_free(). If `tree` is NULL, the text is only validated.
 * At most 32 skips. */
Status json_parse(const char *name, Status refused, const char *text, size_t size, JsonSkip *skips,
                  size_t n_skips, Json **tree, Error *err);
/* json_parse() of a file that Python may have written: Infinity is a value, too. In the tree Infinity is the
 * object that transformers 5 writes, {"__float__": "Infinity"}. */
Status json_parse_python(const char *name, Status refused, const char *text, size_t size, Json **tree,
                         Error *err);
void json_free(Json *tree);
RELEASE_BY(json_release, Json, json_free)

/* The member's value; NULL if it is absent or null, or if `object` is no object. */
const Json *json_member(const Json *object, const char *key);
bool json_is_object(const Json *value);
bool json_is_array(const Json *value);
bool json_is_string(const Json *value);
bool json_is_number(const Json *value);
bool json_is_bool(const Json *value);
bool json_is_null(const Json *value);
size_t json_count(const Json *value);       /* elements of an array, members of an object, else 0 */
const Json *json_first(const Json *value);  /* first element or member, or NULL */
const Json *json_next(const Json *element); /* the next one; NULL after the last, and for NULL */
const char *json_key(const Json *element);  /* the key of a member, with U+0000 as C0 80 */
/* Gives the bytes of a member's key. The key may hold NULs: only then is it decoded, into the storage
 * `decoded`. */
Status json_key_bytes(const Json *element, Buffer *decoded, const char **bytes, size_t *size, Error *err);
/* The bytes of a string, which may hold NULs, and their number. PRECOND json_is_string(). */
const char *json_string(const Json *value, size_t *size);
bool json_string_is(const Json *value, const char *expected);
/* The number as it is written in the text. PRECOND json_is_number(). */
const char *json_number(const Json *value, size_t *size);
/* The exact integer; false for a fraction, a number outside int64 and any other value. */
bool json_int64(const Json *value, int64_t *out);
bool json_double(const Json *value, double *out);
bool json_bool(const Json *value, bool *out);
/* A description of a value for messages: "an object", "an array", true, null, 12 or "text"; "missing" for
 * NULL. `text` is storage for a description that is no constant. */
const char *json_describe(const Json *value, char text[64]);

/* Typed members of a config: absent or null gives `fallback`; a wrong type or a value outside [low, high] is
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
/* *out = a member's string, which belongs to the tree; NULL if the member is absent or null. Another type and
 * a string with a NUL are refused. */
Status json_get_string(JsonSource source, const Json *object, const char *key, const char **out, Error *err);

/* Walks a JSON text that json_parse() has accepted (a JsonSpan of it, or all of it). */
typedef struct {
  const char *at, *end;
} JsonCursor;

JsonCursor json_cursor(JsonSpan span);
/* Enters the array or object at the cursor; false, without moving, if the value is of another kind. */
bool json_cursor_enter(JsonCursor *cursor, char open /* '[' or '{' */);
/* Moves to the next element of the array or object; false after the last one: the cursor has then passed the
 * closing bracket. PRECOND the cursor has passed the element before */
bool json_cursor_next(JsonCursor *cursor, bool *first /* true before the first call */);
/* Appends the bytes of the string at the cursor to `out`. Skips the string and, after a key, the ':'. If the
 * value is no string, *is_string is false, and the cursor stays. */
Status json_cursor_string(JsonCursor *cursor, Buffer *out, bool *is_string, Error *err);
bool json_cursor_int64(JsonCursor *cursor, int64_t *out); /* false: no integer there; the cursor stays */
JsonSpan json_cursor_value(JsonCursor *cursor);           /* skips any value and gives its text */
/* The value of an object's first member with this key of `size` bytes; without one, its text is NULL. */
JsonSpan json_span_find(JsonSpan object, const char *key, size_t size);
JsonSpan json_span_member(JsonSpan object, const char *key);
/* A description of the value at the cursor for messages: "an object", else its text, cut after 40 bytes;
 * "missing" at the end. */
const char *json_cursor_describe(JsonCursor cursor, char text[64]);

/* Appends the text between a string's quotes with escapes decoded; a lone surrogate becomes U+FFFD. */
Status json_unescape(const char *text, size_t size, Buffer *out, Error *err);
/* Appends text[0..size) as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD; quotes,
 * backslashes and characters that steer a terminal (terminal_text.h) are escaped, all others unchanged. */
Status json_write_string(Buffer *out, const char *text, size_t size, Error *err);

/* Appends members of objects, and elements of arrays (key NULL), one after another. Each begins with ", "
 * unless `out` is empty or ends in an opening bracket or a newline. */
typedef struct {
  Buffer *out;
  Error *err;
} JsonWriter;
Status json_put_key(JsonWriter w, const char *key);                    /* the caller appends the value */
Status json_put_raw(JsonWriter w, const char *key, const char *value); /* "null", "{" */
Status json_put_int(JsonWriter w, const char *key, int64_t value);
Status json_put_size(JsonWriter w, const char *key, uint64_t value);
Status json_put_bool(JsonWriter w, const char *key, bool value);
Status json_put_string(JsonWriter w, const char *key, const char *value /* NULL: null */);
/* Appends a string that may hold NULs; text may be NULL if size is 0. */
Status json_put_text(JsonWriter w, const char *key, const char *text, size_t size);
Status json_end(JsonWriter w, const char *bracket);
