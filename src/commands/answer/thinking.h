/* thinking.h - a thought told from the answer behind it, in text that comes in pieces.
 *
 * A thought stands at the beginning, between two marks ("<think>" and "</think>"), or the prompt has opened
 * it and only the second mark comes. What it yields does not depend on where the pieces were cut:
 *   thought   without the marks and the white space at both its ends
 *   answer    what follows, without the white space behind the mark; where no thought comes first, all text
 * Marks that come later are the answer's own words: whoever asks about them must see them. */
#ifndef AUK_COMMANDS_ANSWER_THINKING_H
#define AUK_COMMANDS_ANSWER_THINKING_H

#include <stdbool.h>

#include "base/buffer.h"

typedef enum {
  THINKING_UNKNOWN, /* nothing came but white space and what could be the beginning of a mark */
  THINKING_INSIDE,
  THINKING_BEHIND, /* white space behind the mark is still dropped */
  THINKING_ANSWER
} ThinkingState;

typedef struct {
  const char *open, *close; /* the marks, none empty */
  ThinkingState state;
  bool begun;  /* the thought has had a character that is no white space */
  Buffer held; /* what the next piece decides on */
} ThinkingSplitter;

/* Begins anew. open and close NULL: there are no thoughts. inside: the prompt ends in an open one. */
void thinking_begin(ThinkingSplitter *splitter, const char *open, const char *close, bool inside);
/* Appends what is known now that text[0..size) came; of one piece, all of `thought` comes before `answer`. */
Status thinking_push(ThinkingSplitter *splitter, const char *text, size_t size, Buffer *thought,
                     Buffer *answer, Error *err);
/* Appends what is held back: nothing comes any more. */
Status thinking_end(ThinkingSplitter *splitter, Buffer *thought, Buffer *answer, Error *err);
void thinking_release(ThinkingSplitter *splitter);

#endif
