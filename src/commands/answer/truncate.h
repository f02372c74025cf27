/* truncate.h - cuts whole tokens from a text until the prompt around it fits. */
#pragma once

#include "tokenizer/tokenizer.h"

typedef struct {
  const Tokenizer *tokenizer;
  bool middle;     /* true: cut from the middle; false: from the start */
  size_t n_places; /* occurrences of the text in the prompt, >= 1 */
  size_t room;     /* tokens that the prompt may have */
  /* Appends the ids of the whole prompt with text[0..size) in it. */
  Status (*encode)(void *user, const char *text, size_t size, IdList *ids, Error *err);
  void *user;
} Truncator;

typedef struct {
  size_t n_before;   /* tokens of the uncut prompt */
  size_t n_cut;      /* tokens of the text that were cut */
  size_t begin, end; /* bytes [begin, end) of the text were cut */
} TruncationResult;

/* ids: on entry the whole prompt, longer than the room; on return the cut prompt. Cuts are at token
 * boundaries of the text encoded alone (estimated if the tokenizer changes the text), never within a
 * character. STATUS_USAGE, with the counts, if the prompt does not fit even without the text. */
Status truncate_text(const Truncator *truncator, const char *text, size_t size, IdList *ids,
                     TruncationResult *result, Error *err);
