/* split.h - the pre-tokenizers ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit and
 * Punctuation, applied in order. They cut a text into the pieces that the model encodes one by one. */
#pragma once

#include "tokenizer/normalize.h"

#define MAX_PRE_TOKENIZERS 64

/* The treatment of a match (reference: SplitDelimiterBehavior). */
typedef enum {
  BEHAVIOR_REMOVED,
  BEHAVIOR_ISOLATED,
  BEHAVIOR_MERGED_WITH_PREVIOUS,
  BEHAVIOR_MERGED_WITH_NEXT,
  BEHAVIOR_CONTIGUOUS,
} Behavior;

typedef enum {
  SPLIT_PATTERN,    /* Split */
  SPLIT_CHARACTERS, /* Digits, Punctuation, WhitespaceSplit: each character of a set is a match */
  SPLIT_RUNS,       /* Whitespace: runs of word characters, and runs of characters neither word nor space */
  SPLIT_METASPACE,
  SPLIT_BYTE_LEVEL,
} SplitKind;

typedef enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } PrependScheme;

typedef struct {
  SplitKind kind;
  Pattern pattern; /* PATTERN; METASPACE: its replacement; BYTE_LEVEL: GPT-2's expression, or nothing */
  Behavior behavior;
  bool invert;
  KindMap map; /* CHARACTERS, RUNS */
  /* Role of a character by its kind in `map`. CHARACTERS: 1 is a match. RUNS: 0 is white space; neighbouring
   * characters of equal role, other than 0, form a run. */
  uint8_t role[4];
  PrependScheme scheme;
  bool split;            /* METASPACE: also cut */
  bool add_prefix_space; /* BYTE_LEVEL */
} SplitStep;

/* Read-only once loaded. */
typedef struct {
  SplitStep *steps; /* [count], at most MAX_PRE_TOKENIZERS */
  size_t count, capacity;
  bool bytes;        /* the last step is ByteLevel: pieces stay bytes, which the model maps to its alphabet */
  bool needs_origin; /* a step needs the offset of a piece in the original text */
  Where where;       /* begins the messages */
} PreTokenizer;

/* Reads the options of Metaspace, pre-tokenizer or decoder, from new and old files: mark[0 .. *size) is the
 * replacement, one character, NUL-terminated; *split is true by default. STATUS_MODEL if options contradict
 * each other. */
Status metaspace_load(const char *where, const Json *json, char mark[5], size_t *size, PrependScheme *scheme,
                      bool *split, Error *err);

/* Loads the JSON of a pre-tokenizer (NULL: none). Release it also after a failure. */
Status pre_tokenizer_load(const char *where, const Json *json, PreTokenizer *pre_tokenizer, Error *err);
void pre_tokenizer_release(PreTokenizer *pre_tokenizer);

/* Working memory of one thread. Zero-initialise it. */
typedef struct {
  ByteSpanList lists[2];
  TracedBuffer buffers[2];
} SplitScratch;
void split_scratch_release(SplitScratch *scratch);

/* Cuts *text into *pieces. A step may replace *text; *pieces and a new *text belong to the scratch. */
Status pre_tokenize(const PreTokenizer *pre_tokenizer, SplitScratch *scratch, RegexScratch *regex,
                    Traced *text, const ByteSpanList **pieces, Error *err);

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
