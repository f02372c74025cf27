/* bpe.h - the model "BPE": byte-pair encoding of one piece of text at a time. */
#pragma once

#include "tokenizer/vocab.h"
#include "tokenizer/word_cache.h"

/* A merge rule: adjacent left and right become `product`; the lowest rank goes first. */
typedef struct {
  uint64_t pair; /* left << 32 | right; NO_PAIR: empty slot */
  uint32_t rank;
  int32_t product;
} Merge;

#define NO_PAIR UINT64_MAX
#define NO_RANK UINT32_MAX

/* The pairs of symbols across which merges can join text: the last symbol of a rule's left side and the
 * first of its right side. A word can be cut between any other two neighbours without changing its ids. */
typedef struct {
  bool known;    /* false: never cut */
  uint8_t *near; /* [256 * 256 / 8] bits of (byte, byte), or of (code, code) where both are below 256 */
  uint64_t *far; /* [far_mask + 1] left << 32 | right for other codes; 0: empty */
  size_t far_mask, n_far;
} Joints;

/* Read-only once loaded. Zero-initialise it. */
typedef struct {
  const char *where; /* begins the messages */
  const Vocab *vocab;
  Merge *merges; /* [merge_mask + 1], more than half of them empty */
  size_t merge_mask;
  uint64_t seed;

  bool bytes;            /* pieces are bytes, to be mapped to ByteLevel's alphabet */
  int32_t byte_ids[256]; /* with `bytes`: the symbol of each byte, or -1 */
  int32_t *code_ids;     /* [65536] without `bytes`: the symbol of each character below U+10000, or -1 */
  Joints joints;

  char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; "" if absent */
  size_t prefix_size, suffix_size;
  bool has_unk;
  char *unk; /* [unk_size] unk_token */
  size_t unk_size;
  int32_t unk_id; /* -1: not in the vocabulary, an error once it is needed */
  bool fuse_unk, byte_fallback, ignore_merges;
  int32_t fallback_ids[256]; /* with byte_fallback: "<0x00>" and so on, or -1 */
} Bpe;

/* Loads the model's options from `json` and its rules from `merges`. `vocab` and `where` must outlive the
 * Bpe. `bytes`: see Bpe. Release it also after a failure. */
Status bpe_load(const char *where, const Json *json, const Vocab *vocab, JsonSpan merges, bool bytes,
                Bpe *bpe, Error *err);
void bpe_release(Bpe *bpe);

/* The rule for two symbols, or NULL. */
const Merge *bpe_merge(const Bpe *bpe, int32_t left, int32_t right);

/* Working memory of one thread. Zero-initialise it. */
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
