/* show.h - formats thought and answer for a terminal, a pipe or a file. Pipes and files get the model's text
 * unchanged, terminals get terminal_text()'s form. A thought is dim on a terminal with colours; elsewhere
 * (NO_COLOR, TERM=dumb, a pipe) it stands between the model's marks. Each write resets the dimness itself, so
 * that the terminal is in order whenever the program ends. */
#pragma once

#include "commands/answer/assistant.h"

/* True if the descriptor is a terminal that may get colours: NO_COLOR is unset or empty, TERM is not "dumb"
 * (https://no-color.org). */
bool terminal_has_colours(int descriptor);

typedef struct {
  Status (*write)(void *user, const char *bytes, size_t size, Error *err); /* NULL: standard output */
  void *user;
  bool terminal;            /* control characters become pictures; the last line is ended */
  bool dim;                 /* thoughts are dim; PRECOND terminal */
  bool thoughts;            /* thoughts are shown */
  const char *open, *close; /* marks around a thought that is not dim; owned by the chat */

  TextKind kind;  /* kind of the previous text */
  bool begun;     /* something was written */
  bool ends_line; /* its last byte was a newline */
  Buffer out;     /* buffer for one write */
} Show;           /* set the upper part, zero the lower one; release with show_release() */

/* Configures Show from the flags and the descriptor; the caller sets `write` and `user`. */
Show show_to(const Assistant *assistant, int descriptor);

/* Begin an answer, take its texts, end its last line on a terminal. */
void show_begin(Show *show);
Status show_text(Show *show, TextKind kind, const char *text, size_t size, Error *err);
Status show_end(Show *show, Error *err);
void show_release(Show *show);
