/* own_vocabulary.h - a vocabulary of tokens that a test chooses. Failures are assertions. */
#pragma once

#include <unistd.h>

#include "constrain/masks/vocabulary.h"
#include "test/unit.h"

typedef struct {
  Tokenizer *tokenizer;
  Vocabulary vocabulary;
} Own;

/* The members of "vocab" are JSON, in the alphabet of byte-level BPE. */
static inline void open_own(const char *vocab, Own *own) {
  static const char byte_level[] =
      "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
      "\"use_regex\": false}";
  char path[] = "/tmp/auk-vocabulary-XXXXXX";
  Error err;
  const int file = mkstemp(path);
  assert_true(file >= 0);
  assert_true(
      dprintf(file,
              "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"post_processor\": null, "
              "\"pre_tokenizer\": %s, \"decoder\": %s, \"model\": {\"type\": \"BPE\", \"dropout\": null, "
              "\"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
              "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false, \"merges\": [], "
              "\"vocab\": {%s}}}",
              byte_level, byte_level, vocab) > 0);
  close(file);
  const Status opened = tokenizer_open(path, &own->tokenizer, &err);
  unlink(path);
  if (opened) fail_msg("%s", err.text);
  assert_int_equal(vocabulary_open(own->tokenizer, &own->vocabulary, &err), STATUS_OK);
}

static inline void close_own(Own *own) {
  vocabulary_close(&own->vocabulary);
  tokenizer_close(own->tokenizer);
}
