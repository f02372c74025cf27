/* unigram.h - the model "Unigram" of SentencePiece: of all ways to cut a text into pieces of the vocabulary,
 * the way whose scores have the largest sum. */
#pragma once

#include "tokenizer/matcher.h"
#include "tokenizer/vocab.h"

/* Read-only once loaded. Zero-initialise it. */
typedef struct {
  const char *where;         /* begins the messages */
  const Vocab *vocab;        /* an id is the index of a piece in the file and in vocab->tokens */
  bool bytes;                /* texts are bytes, to be mapped to ByteLevel's alphabet */
  Matcher matcher;           /* finds the longest piece at each offset; numbers are ids */
  int32_t *shorter;          /* [vocab->n_ids] the longest piece that is a proper prefix of this one, or -1 */
  double *scores;            /* [vocab->n_ids] */
  double unk_score;          /* score of a character that is no piece */
  int32_t unk_id;            /* -1: none, an error once it is needed */
  int32_t fallback_ids[256]; /* with byte_fallback: "<0x00>" and so on, or -1 */
} Unigram;

/* Loads the model's options from `json`, and vocabulary and scores from `pieces`, its "vocab". `vocab` and
 * `where` must outlive the model. `bytes`: see Unigram. Release *vocab and *unigram also after a failure. */
Status unigram_load(const char *where, const Json *json, JsonSpan pieces, bool bytes, Vocab *vocab,
                    Unigram *unigram, Error *err);
void unigram_release(Unigram *unigram);

/* For an offset of a text: the best segmentation of the text before it, given by its last piece. */
typedef struct {
  double score;   /* sum of the pieces' scores */
  uint32_t start; /* where the last piece begins */
  uint32_t next;  /* in the best segmentation of the whole text: the end of the piece that starts here */
  int32_t id;     /* id of the last piece; -1: no piece ends here */
} UnigramPlace;

/* Working memory of one thread. Zero-initialise it. */
typedef struct {
  const volatile int *interrupted; /* see tokenizer_heed() */
  Buffer text;                     /* a piece in ByteLevel's alphabet */
  MatchList matches;
  UnigramPlace *places; /* [capacity] */
  size_t capacity;
} UnigramScratch;
void unigram_scratch_release(UnigramScratch *scratch);

/* Appends the ids of a text. */
Status unigram_encode(const Unigram *unigram, UnigramScratch *scratch, const char *text, size_t size,
                      IdList *ids, Error *err);
