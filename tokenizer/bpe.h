/* bpe.h - the model: byte-pair encoding of one piece of text at a time. */
#ifndef AUK_TOKENIZER_BPE_H
#define AUK_TOKENIZER_BPE_H

#include "tokenizer/vocab.h"
#include "tokenizer/words.h"

/* A merge rule: left and right next to each other become `product`; the lowest rank goes first. */
typedef struct {
  uint64_t pair; /* left << 32 | right; NO_PAIR: empty slot */
  uint32_t rank;
  int32_t product;
} Merge;

#define NO_PAIR UINT64_MAX
#define NO_RANK UINT32_MAX

/* Which two symbols can ever meet inside a token: the last one of a merge's left side and the first one of
 * its right side. A word can be cut wherever its neighbours cannot, without any difference to what comes
 * out. */
typedef struct {
  bool known;    /* false: never cut */
  uint8_t *near; /* [256 * 256 / 8] bits of (byte, byte), or of (code, code) where both are below 256 */
  uint64_t *far; /* [far_mask + 1] left << 32 | right for other codes; 0: empty */
  size_t far_mask, n_far;
} Joints;

/* Read-only once loaded. Zero-initialise it. */
typedef struct {
  char *where; /* begins the messages */
  Vocab vocab;
  Merge *merges; /* [merge_mask + 1], more than half of them empty */
  size_t merge_mask;
  uint64_t seed;

  bool bytes;            /* pieces come as bytes, to be mapped to ByteLevel's alphabet */
  int32_t byte_ids[256]; /* with `bytes`: the symbol of each byte, or -1 */
  int32_t *code_ids;     /* [65536] without: the symbol of each character of the basic plane, or -1 */
  Joints joints;

  char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix: "" where there is none */
  size_t prefix_size, suffix_size;
  bool has_unk;
  char *unk; /* [unk_size] unk_token */
  size_t unk_size;
  int32_t unk_id; /* -1: not in the vocabulary, an error when it is needed */
  bool fuse_unk, byte_fallback, ignore_merges;
  int32_t fallback_ids[256]; /* with byte_fallback: "<0x00>" and so on, or -1 */
} Bpe;

/* From the model's JSON, whose vocab and merges are these spans; `bytes` as above. Release it also after a
 * failure. */
Status bpe_load(const char *where, const Json *json, JsonSpan vocab, JsonSpan merges, bool bytes, Bpe *bpe,
                Error *err);
void bpe_release(Bpe *bpe);

/* The rule for two symbols, or NULL. */
const Merge *bpe_merge(const Bpe *bpe, int32_t left, int32_t right);

/* What one thread needs. Zero-initialise it. */
typedef struct {
  const volatile int *interrupted; /* see tokenizer_heed() */
  WordCache words;
  Buffer text; /* a word in ByteLevel's alphabet */
  IdList symbols;
  uint32_t *ranks, *next, *prev; /* [capacity] */
  uint64_t *heap;                /* [2 * capacity] */
  size_t capacity;
} BpeScratch;
void bpe_scratch_release(BpeScratch *scratch);

/* Appends the ids of a piece. */
Status bpe_encode(const Bpe *bpe, BpeScratch *scratch, const char *piece, size_t size, IdList *ids,
                  Error *err);

#endif
