/* small_vocabulary.h - the tokens of the stories model, as fixtures for tests in C that need a vocabulary. */
#pragma once

#include "constrain/masks/vocabulary.h"

static Tokenizer *tokenizer;
static Vocabulary vocabulary;

static int open_vocabulary(void **state) {
  Error err;
  return tokenizer_open("test/data/stories260K-f32/tokenizer.json", &tokenizer, &err) ||
         vocabulary_open(tokenizer, &vocabulary, &err);
}

static int close_vocabulary(void **state) {
  vocabulary_close(&vocabulary);
  tokenizer_close(tokenizer);
  return 0;
}
