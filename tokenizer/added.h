/* added.h - added tokens: strings that are cut out of a text before anything else looks at it. */
#ifndef AUK_TOKENIZER_ADDED_H
#define AUK_TOKENIZER_ADDED_H

#include "tokenizer/normalize.h"
#include "tokenizer/vocab.h"

typedef struct {
  char *content; /* [size] as given, NUL-terminated */
  size_t size;
  char *normal; /* [normal_size] what to look for in normalized text; NULL where that is the content */
  size_t normal_size;
  int32_t id;
  bool single_word, lstrip, rstrip, normalized, special;
} AddedToken;

/* A node's child by a byte. */
typedef struct {
  uint64_t key; /* (node << 8 | byte) + 1; 0: empty */
  uint32_t child;
} TrieEdge;

/* Finds the longest of several strings at a place. Zero-initialise it. */
typedef struct {
  TrieEdge *edges; /* [mask + 1] */
  size_t mask, n_edges;
  int32_t *token; /* [n_nodes] the string that ends there: an index, or -1; node 0 is the root */
  size_t n_nodes, capacity;
  bool begins[256]; /* whether a string begins with this byte */
  uint64_t seed;
} Trie;

/* Read-only once loaded. Zero-initialise it. */
typedef struct {
  AddedToken *tokens; /* [count] */
  size_t count, capacity;
  int32_t *by_id; /* [n_ids] index of the last token that took this id, or -1 */
  int32_t n_ids;
  Trie plain;    /* those that are looked for in the text as it came */
  Trie normal;   /* those that are looked for in normalized text */
  Trie contents; /* all of them by content */
} AddedTokens;

/* From the array `added_tokens` (NULL: none). Ids are those of the vocabulary, or follow it in the order
 * of the array, as in the reference, whatever the file says. Release it also after a failure. */
Status added_load(const char *where, const Json *json, const Vocab *vocab, const Normalizer *normalizer,
                  AddedTokens *added, Error *err);
void added_release(AddedTokens *added);

/* The token with this content, or NULL. */
const AddedToken *added_find(const AddedTokens *added, const char *content, size_t size);

/* Which part of a text is trusted: special tokens count only there. The text before the first border is as
 * `first` says, and it changes at each border. */
typedef struct {
  const size_t *borders; /* [n_borders] increasing offsets */
  size_t n_borders;
  bool first;
} Trust;

/* A part of a text: a token, or (token -1) text between tokens. */
typedef struct {
  uint32_t start, end;
  int32_t token; /* index into tokens */
} AddedPart;

typedef struct {
  AddedPart *items; /* [count] */
  size_t count, capacity;
} AddedParts;
void added_parts_release(AddedParts *parts);

/* Appends the parts of `text` that the tokens of `trie` (one of the two of `added`) cut it into. Trust is
 * asked at original offsets: text->origin says them, or, where it is NULL, they are `shift` more than the
 * text's own. */
Status added_cut(const AddedTokens *added, const Trie *trie, const Traced *text, size_t shift,
                 const Trust *trust, AddedParts *parts, Error *err);

#endif
