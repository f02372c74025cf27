/* vocabulary.h - the tokens of a tokenizer as bytes, in tries that masks are computed over. Read-only once
 * made. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

#define MAX_TOKEN_BYTES 255 /* longer tokens are never allowed */

/* A trie in preorder: the nodes below node i are i + 1 .. skip[i] - 1. The root has no node. */
typedef struct {
  uint8_t *bytes;    /* [n] */
  uint32_t *skip;    /* [n] */
  uint32_t *entries; /* [n + 1] values of node i: values[entries[i] .. entries[i + 1]) */
  uint32_t n;
  int32_t *values; /* [n_values] */
  uint32_t n_values;
} Trie;

/* A token that closes a string: CONTENT"REST. */
typedef struct {
  int32_t id;
  uint32_t rest;         /* value in `rests` */
  uint32_t n_characters; /* of CONTENT, decoded */
  uint32_t size;         /* bytes of CONTENT */
  bool escaped;          /* CONTENT has a backslash */
} QuoteToken;

typedef struct {
  int32_t n_ids;
  uint32_t n_words;  /* of a mask: n_ids / 64 rounded up */
  char *bytes;       /* of all tokens */
  uint32_t *offsets; /* [n_ids + 1] into bytes */
  Trie tokens;       /* by their bytes; values: ids */
  Trie unspaced;     /* by their bytes after white space; values: ids */
  uint64_t *space;   /* [n_words] tokens of white space alone */
  uint64_t
      *inside; /* [n_words] tokens that may stand inside any JSON string, from one character to another */
  uint64_t *unfinished; /* [n_words] those of `inside` that end within a character or an escape */
  uint8_t *characters;  /* [n_ids] decoded characters of `inside` tokens */
  uint32_t max_characters;
  QuoteToken *quotes; /* [n_quotes], sorted by CONTENT */
  uint32_t n_quotes;
  bool *has_quote; /* [tokens.n] some token below the node has a quote after it */
  Trie rests;      /* what follows the quote; values: numbers of rests */
  uint32_t n_rests;
} Vocabulary;

Status vocabulary_open(const Tokenizer *tokenizer, Vocabulary *vocabulary, Error *err);
void vocabulary_close(Vocabulary *vocabulary);

static inline const char *vocabulary_bytes(const Vocabulary *v, int32_t id, size_t *size) {
  *size = v->offsets[id + 1] - v->offsets[id];
  return v->bytes + v->offsets[id];
}
/* The tokens inside strings of at most n characters. */
static inline const uint64_t *vocabulary_inside(const Vocabulary *v, uint32_t n) {
  return v->inside + (size_t)v->n_words * (n < v->max_characters ? n : v->max_characters);
}
static inline bool mask_has(const uint64_t *mask, int32_t id) {
  return mask[(uint32_t)id >> 6] >> (id & 63) & 1;
}
static inline void mask_add(uint64_t *mask, int32_t id) {
  mask[(uint32_t)id >> 6] |= UINT64_C(1) << (id & 63);
}
