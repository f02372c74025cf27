/* added.h - added tokens: strings that are cut out of a text before it is split and encoded. */
#pragma once

#include "tokenizer/matcher.h"
#include "tokenizer/normalize.h"
#include "tokenizer/vocab.h"

#define MAX_ADDED_BYTES ((size_t)16 << 20)

typedef struct {
  char *content; /* [size] as in the file, NUL-terminated */
  size_t size;
  char *normal; /* [normal_size] the form to look for in normalized text; NULL: the content itself */
  size_t normal_size;
  int32_t id;
  bool single_word, lstrip, rstrip, normalized, special;
} AddedToken;

/* Read-only once loaded. Zero-initialise it. */
typedef struct {
  AddedToken *tokens; /* [count] */
  size_t count, capacity;
  int32_t *by_id; /* [n_ids] index of the last token that took this id, or -1 */
  int32_t n_ids;
  Matcher plain;  /* tokens that are looked for in the original text */
  Matcher normal; /* tokens that are looked for in normalized text */
  Vocab indices;  /* index of each token by its content */
  size_t bytes;   /* size of all contents and normal forms */
} AddedTokens;

/* Loads the array `added_tokens`, then the tokens of declared.h (either may be NULL). As in the reference the
 * ids in the file are ignored. A token that the vocabulary has gets its id from there; any other token gets
 * the next id of a count. The count begins at the vocabulary's number of tokens; before the declared tokens
 * it is raised above all ids of `added_tokens`. STATUS_MODEL if all contents and normal forms together exceed
 * MAX_ADDED_BYTES (real files have less than 2 MB). Release *added also after a failure. */
Status added_load(const char *where, const Json *json, const Json *declared, const Vocab *vocab,
                  const Steps *normalizer, AddedTokens *added, Error *err);
void added_release(AddedTokens *added);

/* The token with this content, or NULL. */
const AddedToken *added_find(const AddedTokens *added, const char *content, size_t size);

/* The trusted parts of a text; special tokens are recognised only there. `first` says whether the text before
 * the first border is trusted; trust flips at each border. */
typedef struct {
  const size_t *borders; /* [n_borders] increasing offsets */
  size_t n_borders;
  bool first;
} Trust;

/* A part of a text: a token, or text between tokens (token -1). */
typedef struct {
  uint32_t start, end;
  int32_t token; /* index into tokens */
} AddedPart;

typedef struct {
  AddedPart *items; /* [count] */
  size_t count, capacity;
} AddedParts;
void added_parts_release(AddedParts *parts);

/* Appends the parts into which the tokens of `matcher` (added->plain or added->normal) cut `text`. Trust is
 * checked at offsets of the original text: text->origin[i] or, without an origin, i + shift. Takes time
 * linear in the text, however many tokens there are. `interrupted`: see tokenizer_heed(). */
Status added_cut(const AddedTokens *added, const Matcher *matcher, const Traced *text, size_t shift,
                 const Trust *trust, const volatile int *interrupted, AddedParts *parts, Error *err);
