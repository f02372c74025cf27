/* vocabulary.h - the tokens of a tokenizer as bytes, in tries over which masks are computed. Once made, they
 * are only read. */
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
  uint64_t *below; /* [n] classes of the node and the nodes below; NULL in Vocabulary.partial */
  int32_t *values; /* [n_values] */
  uint32_t n_values;
} Trie;

/* A token that closes a string: CONTENT"REST. */
typedef struct {
  int32_t id;
  uint32_t rest; /* number of REST, which is its value in Vocabulary.rests; 0: REST is empty */
  uint32_t size; /* bytes of CONTENT */
} QuoteToken;

/* Quotes first .. last-1, which have the same CONTENT. */
typedef struct {
  uint32_t first, last;
} QuoteGroup;

/* Classes of characters; most languages of strings treat the characters of a class alike. A set of classes is
 * a uint64_t. Above U+007F the first byte in UTF-8 decides: a byte with which white space or a line end can
 * begin has a class of its own, any other byte has CLASS_WIDE. */
enum {
  CLASS_DIGITS,
  CLASS_LOWER_HEX, /* a-f */
  CLASS_LOWER,     /* g-z */
  CLASS_UPPER_HEX,
  CLASS_UPPER,
  CLASS_CONTROL,                 /* which no string has */
  CLASS_DELETE,                  /* U+007F */
  CLASS_ASCII,                   /* the first of 33 classes of one character: the space, then punctuation */
  CLASS_WIDE = CLASS_ASCII + 33, /* UTF-8 with first bytes that no class below has */
  CLASS_WIDE_C2,
  CLASS_WIDE_E1,
  CLASS_WIDE_E2,
  CLASS_WIDE_E3,
  CLASS_WIDE_EF,
  CLASS_MIDDLE,  /* continuation bytes of UTF-8, and bytes that UTF-8 never has */
  CLASS_PARTIAL, /* the class of a token that is not whole characters of UTF-8 */
  N_CLASSES
};
#define CLASS_BIT(c) (UINT64_C(1) << (c))
/* The class of a byte; for the first byte of a character, the character's class. */
int class_of_byte(unsigned char byte);

/* Tokens with the same classes: class_ids[first .. first + n). */
typedef struct {
  uint64_t classes;
  uint32_t first, n;
} ClassSet;

typedef struct {
  int32_t n_ids;
  uint32_t n_words;  /* of a mask: n_ids / 64 rounded up */
  char *bytes;       /* of all tokens */
  uint32_t *offsets; /* [n_ids + 1] into bytes */
  Trie tokens;       /* tokens by their bytes; values: ids */
  Trie unspaced;     /* tokens by their bytes after leading white space; values: ids */
  uint64_t *space;   /* [n_words] tokens of white space alone */
  /* [max_characters + 1][n_words] row n: tokens of up to n characters that may stand inside a string without
   * restrictions. */
  uint64_t *inside;
  uint8_t *characters; /* [n_ids] number of decoded characters of `inside` tokens, 0: other tokens */
  uint32_t max_characters;
  QuoteToken *quotes; /* [n_quotes], sorted by CONTENT */
  uint32_t n_quotes;
  QuoteGroup *groups; /* [n_groups] */
  uint32_t n_groups;
  uint8_t class_of[256];             /* class_of_byte() */
  uint8_t *height;                   /* [tokens.n] nodes on the longest path down from node i, i included */
  uint64_t *has_class;               /* [N_CLASSES][n_words] tokens with a character of the class */
  uint32_t class_weights[N_CLASSES]; /* number of tokens in each row of has_class */
  ClassSet *class_sets;              /* [n_class_sets] of tokens of whole characters */
  uint32_t n_class_sets;
  int32_t *class_ids;
  Trie partial; /* tokens of CLASS_PARTIAL; values: ids */
  Trie rests;   /* what follows the quote; values: numbers of rests */
  uint32_t n_rests;
} Vocabulary;

Status vocabulary_open(const Tokenizer *tokenizer, Vocabulary *vocabulary, Error *err);
void vocabulary_close(Vocabulary *vocabulary);

static inline const char *vocabulary_bytes(const Vocabulary *v, int32_t id, size_t *size) {
  *size = v->offsets[id + 1] - v->offsets[id];
  return v->bytes + v->offsets[id];
}
/* Row n of Vocabulary.inside; its last row for a larger n. */
static inline const uint64_t *vocabulary_inside(const Vocabulary *v, uint32_t n) {
  return v->inside + (size_t)v->n_words * (n < v->max_characters ? n : v->max_characters);
}
static inline bool mask_has(const uint64_t *mask, int32_t id) {
  return mask[(uint32_t)id >> 6] >> (id & 63) & 1;
}
static inline void mask_add(uint64_t *mask, int32_t id) {
  mask[(uint32_t)id >> 6] |= UINT64_C(1) << (id & 63);
}
