/* internal.h - private to tokenizer/: what a Tokenizer is made of. */
#ifndef AUK_TOKENIZER_INTERNAL_H
#define AUK_TOKENIZER_INTERNAL_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"

/* TemplateProcessing: special ids around the text, which stands as TEMPLATE_TEXT. */
#define TEMPLATE_TEXT (-1)

struct Tokenizer {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokens added;
  Decoder decoder;
  bool has_template;
  IdList template_ids;
  int32_t n_ids;
  bool *skipped;       /* [added.count] left out of a text without special tokens */
  bool normal_special; /* a special token is looked for in normalized text */
  const volatile int *interrupted;
};

/* Fills a zeroed tokenizer from JSON text. */
Status tokenizer_load(const char *name, const char *text, size_t size, Tokenizer *tokenizer, Error *err);

#endif
