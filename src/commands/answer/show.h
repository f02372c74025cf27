/* show.h - formats thought and answer for a terminal, a pipe or a file. Pipes and files get the model's text
 * unchanged; without `exact`, a last line without a newline gets one. On a terminal terminal_text() makes the
 * text safe, words wrap, and Markdown has styles (markdown.h). An answer of -x, in a form or with tools has
 * neither wrapped words nor styles: each of its bytes means something. A thought is dim on a terminal with
 * colours; elsewhere (NO_COLOR, --plain, TERM=dumb, a pipe) it stands between the model's marks, such as
 * <think>. Each write also resets its style, so that the terminal is in order whenever the program ends. */
#pragma once

#include "commands/answer/answer_result.h"
#include "terminal/markdown.h"

/* True if the descriptor is a terminal that may get colours: NO_COLOR is unset or empty, TERM is set and not
 * "dumb" (https://no-color.org). */
bool terminal_has_colours(int descriptor);

typedef struct {
  Status (*write)(void *user, const char *bytes, size_t size, Error *err); /* NULL: standard output */
  void *user;
  bool terminal;            /* the output is a terminal: control characters become pictures */
  int screen;               /* descriptor of the terminal at whose width words wrap; -1: they do not wrap */
  bool styles;              /* thoughts are dim, Markdown has styles; PRECOND terminal */
  bool source;              /* -x, a form or tools: no Markdown styles or wrapped words in answers */
  bool thoughts;            /* thoughts are shown */
  bool exact;               /* in a pipe or file, the last line gets no newline */
  const char *open, *close; /* marks around a thought that is not dim; owned by Assistant.chat */

  TextKind kind;     /* kind of the previous text */
  bool begun;        /* something was written */
  bool ends_line;    /* the texts so far end with a newline */
  Markdown markdown; /* on a terminal */
  Buffer safe;       /* text that terminal_text() made safe */
  Buffer out;        /* buffer for one write */
} Show;              /* set the upper part, zero the lower one; release with show_release() */

/* Configures Show from the flags and the descriptor; the caller sets `write` and `user`. */
Show show_to(const Assistant *assistant, int descriptor);

/* Call in this order: begin an answer, show its texts, end its last line (an empty answer becomes an empty
 * line). */
void show_begin(Show *show);
Status show_text(Show *show, TextKind kind, const char *text, size_t size, Error *err);
Status show_answer(Show *show, const AnswerText *answer, Error *err); /* the texts of a whole answer */
Status show_end(Show *show, Error *err);
void show_release(Show *show);
