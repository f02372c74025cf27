/* added.h - added tokens: strings that are cut out of a text before anything else looks at it. */
#ifndef AUK_TOKENIZER_ADDED_H
#define AUK_TOKENIZER_ADDED_H

#include "tokenizer/matcher.h"
#include "tokenizer/normalize.h"
#include "tokenizer/vocab.h"

#define MAX_ADDED_BYTES ((size_t)16 << 20)

typedef struct {
  char *content; /* [size] as given, NUL-terminated */
  size_t size;
  char *normal; /* [normal_size] what to look for in normalized text; NULL where that is the content */
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
  Matcher plain;   /* those that are looked for in the text as it came */
  Matcher normal;  /* those that are looked for in normalized text */
  uint32_t *slots; /* [mask + 1] all of them by content: index + 1, 0: empty; at most half full */
  size_t mask;
  uint64_t seed;
  size_t bytes; /* of contents and normal forms */
} AddedTokens;

/* From the array `added_tokens` (NULL: none). Ids are those of the vocabulary, or follow it in the order
 * of the array, as in the reference, whatever the file says. Refused where all of them have more than
 * MAX_ADDED_BYTES (those in use have less than 2 MB). Release it also after a failure. */
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

/* Appends the parts of `text` that the tokens of `matcher` (one of the two of `added`) cut it into. Trust
 * is asked at original offsets: text->origin says them, or, where it is NULL, they are `shift` more than
 * the text's own. Takes time proportional to the text, whatever the tokens. `interrupted`: see
 * tokenizer_heed(). */
Status added_cut(const AddedTokens *added, const Matcher *matcher, const Traced *text, size_t shift,
                 const Trust *trust, const volatile int *interrupted, AddedParts *parts, Error *err);

#endif
