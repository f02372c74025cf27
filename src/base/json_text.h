/* json_text.h - JSON as text: what json.c, json_validate.c, json_keys.c and json_cursor.c share. Private to
 * src/base. */
#ifndef AUK_BASE_JSON_TEXT_H
#define AUK_BASE_JSON_TEXT_H

#include <string.h>

#include "base/json.h"

#define JSON_MAX_DEPTH 512
#define JSON_MAX_SIZE  ((size_t)1 << 30)
#define JSON_MAX_SKIPS 32
/* Of a tree: a value that takes two bytes of text takes a hundred of memory. */
#define JSON_MAX_VALUES ((size_t)1 << 20)

/* The first byte of a string that stands for a number: no UTF-8 has it. */
#define JSON_NUMBER_MARK '\xff'

static inline const char *json_pass_space(const char *at, const char *end) {
  for (;;) {
    while (end - at >= 8 && memcmp(at, "        ", 8) == 0) at += 8; /* half of some files is indentation */
    if (at == end || (*at != ' ' && *at != '\n' && *at != '\t' && *at != '\r')) return at;
    at++;
  }
}

/* Holds text[0..size) to RFC 8259, fills the skips' spans, and appends to `copy` (unless NULL) the text that
 * cJSON may see: skipped members are null, a U+0000 is C0 80, a number is a string of JSON_NUMBER_MARK and
 * its digits. */
Status json_validate(const char *name, Status refused, const char *text, size_t size, JsonSkip *skips,
                     size_t n_skips, Buffer *copy, Error *err);

/* Appends what the inside of a string's quotes stands for. A lone surrogate, which no valid one has, is
 * U+FFFD. */
Status json_unescape(const char *text, size_t size, Buffer *out, Error *err);

/* A valid number's text as an integer: false where it is not whole or not within int64. 1e3 and 2.50e1 are
 * whole. */
bool json_text_int64(const char *text, size_t size, int64_t *out);

/* The keys of the objects that are open, for finding duplicates: expected linear time whatever the keys. A
 * stack: an object's keys are those above the mark it took when it began. */
typedef struct {
  uint64_t hash;
  uint32_t at, size; /* where in the text it is, and how long, between its quotes and with its escapes */
} JsonKey;

typedef struct {
  uint64_t seed[2];
  JsonKey *keys; /* [capacity], n_keys in use */
  size_t n_keys, capacity;
  uint32_t *slots; /* [slot_capacity] scratch of json_keys_close() */
  size_t slot_capacity;
} JsonKeys;

void json_keys_begin(JsonKeys *keys);
/* Pushes the key at text[at .. at + size), which means content[0..content_size). */
Status json_keys_push(JsonKeys *keys, const char *content, size_t content_size, size_t at, size_t size,
                      Error *err);
/* Pops the keys above `mark`; *duplicate is the offset in the text of one that was there before, or SIZE_MAX.
 */
Status json_keys_close(JsonKeys *keys, size_t mark, const char *text, size_t *duplicate, Error *err);
void json_keys_release(JsonKeys *keys);

#endif
