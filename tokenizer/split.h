/* split.h - the pre-tokenizers ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit and
 * Punctuation, applied in order. They cut a text into the pieces that the model encodes one by one. */
#pragma once

#include "tokenizer/normalize.h"

typedef enum {
  SPLIT_PATTERN,    /* Split */
  SPLIT_CHARACTERS, /* Digits, Punctuation, Whitespace, WhitespaceSplit: a character of role 1 is a match */
  SPLIT_METASPACE,
  SPLIT_BYTE_LEVEL, /* if it is the last step, pieces stay bytes, which the model maps to its alphabet */
} SplitKind;

/* Loads the JSON of a pre-tokenizer (NULL: none). Release it also after a failure. */
Status pre_tokenizer_load(const char *where, const Json *json, Steps *pre_tokenizer, Error *err);

/* Working memory of one thread. Zero-initialise it. */
typedef struct {
  ByteSpanList lists[2];
  TracedBuffer buffers[2];
} SplitScratch;
void split_scratch_release(SplitScratch *scratch);

/* Cuts *text into *pieces. A step may replace *text; *pieces and a new *text belong to the scratch. */
Status pre_tokenize(const Steps *pre_tokenizer, SplitScratch *scratch, RegexScratch *regex, Traced *text,
                    const ByteSpanList **pieces, Error *err);

/* ByteLevel's alphabet: every byte as one printable character (GPT-2's encoder.py, bytes_to_unicode). */
static inline uint32_t byte_level_char(uint8_t byte) {
  if (byte <= 32) return 256u + byte;
  if (byte >= 127 && byte <= 160) return 289u + (byte - 127u);
  return byte == 173 ? 323 : byte;
}

/* Replaces `out` by bytes[0 .. size) in that alphabet. */
Status byte_level_map(const char *bytes, size_t size, Buffer *out, Error *err);

/* The byte that `code` stands for, or -1. */
static inline int byte_level_byte(uint32_t code) {
  if (code >= 256)
    return code <= 288 ? (int)code - 256 : code <= 322 ? (int)code - 162 : code == 323 ? 173 : -1;
  return code <= 32 || (code >= 127 && code <= 160) || code == 173 ? -1 : (int)code;
}
