/* json_text.h - declarations shared by json*.c. Private to src/base. */
#pragma once

#include <string.h>

#include "base/json.h"

#define JSON_MAX_DEPTH 512
#define JSON_MAX_SIZE  ((size_t)1 << 30)
#define JSON_MAX_SKIPS 32
/* Bounds the memory of a tree: two bytes of text can take a hundred bytes there. */
#define JSON_MAX_VALUES ((size_t)1 << 20)

/* First byte of a cJSON string that represents a number; not valid in UTF-8. */
#define JSON_NUMBER_MARK '\xff'

static inline const char *json_pass_space(const char *at, const char *end) {
  for (;;) {
    while (end - at >= 8 && memcmp(at, "        ", 8) == 0) at += 8; /* half of some files is indentation */
    if (at == end || (*at != ' ' && *at != '\n' && *at != '\t' && *at != '\r')) return at;
    at++;
  }
}

/* Validates text[0..size) to RFC 8259 and fills the skips' spans. Appends to `copy` (unless NULL) the text
 * for cJSON: skipped members are null, U+0000 is C0 80, a number is a string of JSON_NUMBER_MARK and its
 * text. python: as json_parse_python() says. */
Status json_validate(const char *name, Status refused, bool python, const char *text, size_t size,
                     JsonSkip *skips, size_t n_skips, Buffer *copy, Error *err);

/* A valid number's text as an integer; false for a fraction or outside int64. 1e3 and 2.50e1 are integers. */
bool json_text_int64(const char *text, size_t size, int64_t *out);

typedef struct {
  uint64_t hash;
  uint32_t at, size; /* offset and size in the text, without the quotes, with escapes as written */
} JsonKey;

/* A stack of the keys of all open objects, for finding duplicates: an object's keys are those above `mark`,
 * the value of n_keys when it began. */
typedef struct {
  uint64_t seed[2];
  JsonKey *keys; /* [capacity], n_keys in use */
  size_t n_keys, capacity;
  uint32_t *slots; /* [slot_capacity] scratch of json_keys_close() */
  size_t slot_capacity;
} JsonKeys;

void json_keys_begin(JsonKeys *keys);
/* Pushes the key at text[at .. at + size), whose decoded bytes are content[0..content_size). */
Status json_keys_push(JsonKeys *keys, const char *content, size_t content_size, size_t at, size_t size,
                      Error *err);
/* Pops the keys above `mark`; *duplicate is the offset in the text of a repeated key, or SIZE_MAX. */
Status json_keys_close(JsonKeys *keys, size_t mark, const char *text, size_t *duplicate, Error *err);
void json_keys_release(JsonKeys *keys);
