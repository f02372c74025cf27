/* internal.h - private to tokenizer/: the parts of a Tokenizer. */
#pragma once

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"

/* Marks the place of the text among the special ids of TemplateProcessing (template_ids). */
#define TEMPLATE_TEXT (-1)

/* The vocabulary and the model that encodes pieces of text: `unigram` if is_unigram, else `bpe`. */
typedef struct {
  Where where; /* begins the messages */
  /* [image_bytes] the mapping that has the tables of vocab, bpe and unigram (image.c); NULL: each table has
   * an allocation of its own */
  const void *image;
  size_t image_bytes;
  Vocab vocab;
  bool is_unigram;
  Bpe bpe;
  Unigram unigram;
} Model;

struct Tokenizer {
  Steps normalizer, pre_tokenizer, decoder;
  Model model;
  Buffer declared; /* tokens that files beside tokenizer.json add (declared.h) */
  AddedTokens added;
  bool has_template;
  IdList template_ids;
  int32_t n_ids;
  bool *skipped;       /* [added.count] omitted when decoding without special tokens */
  bool normal_special; /* some special token is looked for in normalized text */
  const volatile int *interrupted;
};

/* The members of tokenizer.json that are read from their JSON text, without a parsed tree. */
#define TOKENIZER_SKIPS                                                                                      \
  {.path = "model.vocab"}, {                                                                                 \
    .path = "model.merges"                                                                                   \
  }

/* Fills a tokenizer from JSON text. PRECOND it is zeroed, except `declared` and, for an image, `model` */
Status tokenizer_load(const char *name, const char *text, size_t size, Tokenizer *tokenizer, Error *err);

/* A token's content for the decoders, or the normal form of an added token that has one. NULL if no token has
 * this id, or if skip_special leaves the token out. */
const char *decoded_content(const Tokenizer *tokenizer, int32_t id, bool skip_special, size_t *size);
