/* chat_input.h - the user's input: lines from the editor on a terminal, or from a pipe; blocks between """;
 * and the history. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buffer.h"
#include "terminal/line_editor.h"

typedef struct {
  LineEditor *editor; /* NULL: lines of standard input */
  FILE *screen;       /* output of the editor */
  TextStyle style;    /* style of the user's lines */
  char *history;      /* path of the history file, or NULL */
  bool history_fails; /* a failure of the history was reported */
  bool begun;         /* a line of standard input was read */
  Buffer line, last;  /* the current line; the entry that this chat added last to the history */
  Buffer kept;        /* lines typed before a question appeared, each with a NUL, to be read next */
} ChatInput;          /* starts zeroed */

/* Opens the editor on a terminal (`ansi`: it takes escape sequences), and the history if with_history. The
 * user's lines appear in `style`. Without this call, input is the lines of standard input. PRECOND
 * console_begin(); style is STYLE_NONE unless `ansi` */
Status chat_input_open(ChatInput *input, FILE *screen, bool ansi, TextStyle style, bool with_history,
                       Error *err);
void chat_input_close(ChatInput *input);

Status chat_input_read(ChatInput *input, Buffer *text, LineResult *result, Error *err);

/* Adds an entry to the arrow keys' history and to the file, unless it is empty or repeats the last entry of
 * this chat. Does nothing without an editor. Only the first failure of the file is reported, on standard
 * error. */
Status chat_input_remember(ChatInput *input, const char *text, size_t size, Error *err);

/* Shows a message on the terminal as if it were typed now. */
Status chat_input_show(const ChatInput *input, const char *text, size_t size, Error *err);

/* Asks a yes/no question. Ctrl-C, Ctrl-D and input from a pipe mean no. After a line other than y, yes, n and
 * no the question is repeated. If such a line is not empty and was typed before the question, it is saved and
 * read next; Ctrl-C discards saved lines. */
Status chat_input_ask(ChatInput *input, const char *question, bool *yes, Error *err);
