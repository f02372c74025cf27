/* chat_input.h - what a person sends: lines from the editor on a terminal, or lines of a pipe; a block
 * between """ as one; and what was sent before, remembered. */
#ifndef AUK_COMMANDS_CHAT_CHAT_INPUT_H
#define AUK_COMMANDS_CHAT_CHAT_INPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buffer.h"
#include "terminal/line_editor.h"

typedef struct {
  LineEditor *editor; /* NULL: lines of standard input */
  FILE *screen;       /* where the editor draws */
  char *history;      /* the file, or NULL */
  bool history_fails; /* it was said once */
  Buffer line, last;  /* the line just read; what was remembered last */
  Buffer kept;        /* lines that are no answer to a question, each with a NUL: read next */
} ChatInput;          /* starts zeroed */

/* For a terminal: PRECOND console_begin(). Without it the input is standard input's lines. */
Status chat_input_open(ChatInput *input, FILE *screen, bool ansi, bool with_history, Error *err);
void chat_input_close(ChatInput *input);

typedef enum {
  INPUT_LINE,
  INPUT_BLOCK /* between """: text, whatever it begins with */,
  INPUT_NONE /* Ctrl-C */,
  INPUT_END
} InputKind;
/* Reads the next message or command in place of what `text` held. */
Status chat_input_read(ChatInput *input, Buffer *text, InputKind *kind, Error *err);

/* Adds to what the arrow keys bring back, and to the file. A file that cannot be written is told once, on
 * standard error. */
Status chat_input_remember(ChatInput *input, const char *text, size_t size, Error *err);

/* Asks a question that is answered by y or n. Ctrl-C, Ctrl-D and an input that is no terminal are a no. After
 * any other line the question comes again; one that was typed before the first time is kept, to be read
 * next. */
Status chat_input_ask(ChatInput *input, const char *question, bool *yes, Error *err);

#endif
