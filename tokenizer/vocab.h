/* vocab.h - strings to ids and back, in flat arrays and one hash table: the model's vocabulary, the added
 * tokens, and the variables of a template. */
#pragma once

#include <stdbool.h>

#include "base/json.h"

#define MAX_ID ((1 << 24) - 1) /* the largest id of a token; arrays are indexed by ids */

typedef struct {
  uint32_t hash;
  int32_t token; /* -1: empty */
} VocabSlot;

typedef struct {
  uint32_t offset, size; /* offset and size of the content, in bytes */
  uint32_t hash;
  int32_t id;
} VocabToken;

/* Zero-initialise it. */
typedef struct {
  Buffer bytes;       /* contents of all tokens, each NUL-terminated; under 1 GB, as JSON texts are */
  VocabToken *tokens; /* [count] */
  size_t count, capacity;
  VocabSlot *slots; /* [mask + 1], at least half of them empty */
  size_t mask;
  uint64_t seed;
  int32_t *token_of; /* [n_ids] index of the token with this id, or -1 */
  int32_t n_ids;     /* one more than the largest id */
} Vocab;

/* Loads {"content": id, ...}, a validated span. */
Status vocab_load(const char *where, JsonSpan span, Vocab *vocab, Error *err);
/* Fills token_of, so that vocab_content() finds all ids. Two tokens with the same id are refused. */
Status vocab_index_ids(const char *where, Vocab *vocab, Error *err);
void vocab_release(Vocab *vocab);
/* Adds a token whose content is not in the vocabulary yet; vocab_content() knows its id only after
 * vocab_index_ids(). */
Status vocab_add(Vocab *vocab, const char *content, size_t size, int32_t id, Error *err);

/* The id of a token by its content, or -1. */
int32_t vocab_find(const Vocab *vocab, const char *content, size_t size);
/* The first slot to look at for this hash. PRECOND count > 0 */
static inline const VocabSlot *vocab_slot(const Vocab *vocab, uint32_t hash) {
  return &vocab->slots[hash & vocab->mask];
}
/* Prefetches what vocab_find_hashed() will read: the VocabToken or, in a later call with `content`, the bytes
 * of its content. */
static inline void vocab_prefetch(const Vocab *vocab, uint32_t hash, bool content) {
  int32_t token = vocab_slot(vocab, hash)->token;
  if (token < 0) return;
  if (content) {
    __builtin_prefetch(vocab->bytes.data + vocab->tokens[token].offset);
  } else {
    __builtin_prefetch(&vocab->tokens[token]);
  }
}
/* vocab_find() with the content's vocab_hash(), which differs between vocabularies. */
int32_t vocab_find_hashed(const Vocab *vocab, const char *content, size_t size, uint32_t hash);
uint32_t vocab_hash(const Vocab *vocab, const char *content, size_t size);

/* The content of an id, NUL-terminated, or NULL. */
const char *vocab_content(const Vocab *vocab, int32_t id, size_t *size);

/* The ids of the tokens "<0x00>" to "<0xFF>"; -1 for a missing token, and for all if `wanted` is false. */
void vocab_fallback_ids(const Vocab *vocab, bool wanted, int32_t ids[256]);

/* Reads the string at the cursor, which can be a key. *bytes points into the JSON or, if the string has
 * escapes, into `unescaped`. *is_string is false if the cursor is at another value. */
Status read_string(JsonCursor *cursor, Buffer *unescaped, const char **bytes, size_t *size, bool *is_string,
                   Error *err);
