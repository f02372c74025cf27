/* internal.h - private to tokenizer/: the parts of a Tokenizer. */
#pragma once

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"

/* TemplateProcessing: special ids around the text, whose place is marked by TEMPLATE_TEXT. */
#define TEMPLATE_TEXT (-1)

/* The vocabulary, and what makes its tokens of pieces of text: one of the two others. */
typedef struct {
  Where where; /* begins the messages */
  /* [image_bytes] The mapping that holds all that is pointed at here (image.c); NULL: each is memory of its
   * own. */
  const void *image;
  size_t image_bytes;
  Vocab vocab;
  bool is_unigram;
  Bpe bpe;
  Unigram unigram;
} Model;

struct Tokenizer {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Model model;
  Buffer declared; /* tokens that files beside tokenizer.json add (declared.h) */
  AddedTokens added;
  Decoder decoder;
  bool has_template;
  IdList template_ids;
  int32_t n_ids;
  bool *skipped;       /* [added.count] omitted when decoding without special tokens */
  bool normal_special; /* some special token is looked for in normalized text */
  const volatile int *interrupted;
};

/* The members of tokenizer.json that are read from their text, without a tree. */
#define TOKENIZER_SKIPS                                                                                      \
  {.path = "model.vocab"}, {                                                                                 \
    .path = "model.merges"                                                                                   \
  }

/* Fills a tokenizer from JSON text, zeroed but for `declared` and the model of an image. */
Status tokenizer_load(const char *name, const char *text, size_t size, Tokenizer *tokenizer, Error *err);
