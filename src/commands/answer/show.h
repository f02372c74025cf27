/* show.h - thought and answer on their way to a reader: a terminal, a pipe or a file.
 *
 * To a pipe or a file the model's text goes as it is, on a terminal as terminal_text() has it. A thought is
 * dim, or where the terminal has no colours (NO_COLOR, TERM=dumb) and on the way to a pipe, between the marks
 * that the model knows. Each write takes its dimness back itself: whatever ends the program, the terminal is
 * as it was. */
#ifndef AUK_COMMANDS_ANSWER_SHOW_H
#define AUK_COMMANDS_ANSWER_SHOW_H

#include "commands/answer/assistant.h"

/* Whether the descriptor is a terminal that may be sent more than text: NO_COLOR is not set (or empty), TERM
 * is not "dumb" (https://no-color.org). */
bool terminal_has_colours(int descriptor);

typedef struct {
  Status (*write)(void *user, const char *bytes, size_t size, Error *err); /* NULL: standard output */
  void *user;
  bool terminal;            /* steering characters become pictures; the last line is ended */
  bool dim;                 /* thoughts are; PRECOND terminal */
  bool thoughts;            /* are shown at all */
  const char *open, *close; /* around a thought that is not dim; belong to the chat */

  TextKind kind;  /* of the text before */
  bool begun;     /* something was written */
  bool ends_line; /* and its last byte was a newline */
  Buffer out;     /* of one write */
} Show;           /* set the upper part, zero the lower one; release with show_release() */

/* To a descriptor as the flags say and what it is; `write` and `user` are the caller's, NULL: standard
 * output. */
Show show_to(const Assistant *assistant, int descriptor);

/* Begins an answer, takes its texts, ends its last line on a terminal. */
void show_begin(Show *show);
Status show_text(Show *show, TextKind kind, const char *text, size_t size, Error *err);
Status show_end(Show *show, Error *err);
void show_release(Show *show);

#endif
