/* thinking.h - splits streamed text into thought and answer.
 *
 * A thought is at the beginning of the text, between two marks ("<think>" and "</think>"); if the prompt has
 * opened it, only the second mark appears. The result does not depend on how the text is cut into pieces:
 *   thought   without the marks and without white space at both ends
 *   answer    the text after it, without leading white space; the whole text if there is no thought
 * Later marks are part of the answer, since a user may ask about them. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef enum {
  THINKING_UNKNOWN, /* so far only white space and a possible beginning of a mark */
  THINKING_INSIDE,
  THINKING_AFTER, /* dropping white space after the mark */
  THINKING_ANSWER
} ThinkingState;

typedef struct {
  const char *open, *close; /* the marks, not empty; if one is NULL, there are no thoughts */
  ThinkingState state;
  bool begun;  /* the thought has a character that is not white space */
  Buffer held; /* text that the next piece decides on */
} ThinkingSplitter;

/* Starts a text. open or close NULL: no thoughts. inside: the prompt ends in an open thought. */
void thinking_begin(ThinkingSplitter *splitter, const char *open, const char *close, bool inside);
/* Takes text[0..size) and appends what is certain; within one call all of `thought` precedes `answer`. */
Status thinking_push(ThinkingSplitter *splitter, const char *text, size_t size, Buffer *thought,
                     Buffer *answer, Error *err);
/* At the end of the text: appends what was held back. */
Status thinking_end(ThinkingSplitter *splitter, Buffer *thought, Buffer *answer, Error *err);
void thinking_release(ThinkingSplitter *splitter);
