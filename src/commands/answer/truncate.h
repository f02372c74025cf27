/* truncate.h - a text cut by whole tokens until the prompt that it stands in has room. */
#ifndef AUK_COMMANDS_ANSWER_TRUNCATE_H
#define AUK_COMMANDS_ANSWER_TRUNCATE_H

#include "tokenizer/tokenizer.h"

typedef struct {
  const Tokenizer *tokenizer;
  bool middle;     /* cut from the middle: beginning and end stay; else from the start */
  size_t n_places; /* how often the text stands in the prompt, >= 1 */
  size_t room;     /* tokens that the prompt may have */
  /* Appends the ids of the whole prompt with this text in it. */
  Status (*encode)(void *user, const char *text, size_t size, IdList *ids, Error *err);
  void *user;
} Truncator;

typedef struct {
  size_t n_before;   /* tokens of the prompt as it was */
  size_t n_cut;      /* tokens of the text that were cut */
  size_t begin, end; /* its bytes [begin, end) */
} TruncationResult;

/* ids holds the whole prompt's, more than there is room for; afterwards those of the cut one. The cut lies
 * between tokens of the text as it is encoded alone, and never within a character. STATUS_USAGE, with the
 * counts, where the prompt has no room even without the text. */
Status truncate_text(const Truncator *truncator, const char *text, size_t size, IdList *ids,
                     TruncationResult *result, Error *err);

#endif
