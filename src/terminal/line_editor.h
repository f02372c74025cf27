/* line_editor.h - reads a line from a terminal, with libedit and the keys that users of readline expect.
 *
 * Pasted text is inserted unchanged, newlines included, and waits for Enter; a long text is shown as
 * "[120 lines]". Alt-Enter inserts a newline, Ctrl-R searches, Up and Down move through the lines of the text
 * and then through the history, Tab completes. ~/.editrc applies. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buffer.h"
#include "terminal/word_wrap.h"

typedef struct LineEditor LineEditor;

/* Completes the word at the end of line[0..size). Appends to `rest` the missing end of the only candidate, or
 * the missing part that all candidates share. If they share no part, appends the candidates to `list`, to be
 * shown, each with a NUL at its end. */
typedef Status (*LineCompleter)(const char *line, size_t size, Buffer *rest, Buffer *list, Error *err);

/* `screen`: the terminal's stream for drawing. ansi: the terminal understands escape sequences; rewraps: it
 * reflows lines when its width changes; marks_pastes: it has bracketed paste (without that, several lines
 * that come at once are a paste). `style`: for the prompt and the line. PRECOND console_begin(); style is
 * STYLE_NONE unless `ansi` */
Status line_editor_open(FILE *screen, bool ansi, bool rewraps, bool marks_pastes, TextStyle style,
                        LineCompleter complete, LineEditor **editor, Error *err);
void line_editor_close(LineEditor *editor); /* NULL is fine */

typedef enum {
  LINE_ENTERED,
  LINE_BLOCK /* always text: lines between """, from chat_input_read() alone */,
  LINE_INTERRUPTED /* Ctrl-C */,
  LINE_END /* Ctrl-D, SIGTERM or SIGHUP, a failure, or the terminal went away */
} LineResult;
/* Shows `prompt` (ASCII) and reads a line into `line`, without its newline. */
Status line_editor_read(LineEditor *editor, const char *prompt, Buffer *line, LineResult *result, Error *err);

/* Remembers, for line_editor_was_early(), how many bytes have been typed by now, read or not. */
void line_editor_mark(LineEditor *editor);
/* True if the user began to type the last line before line_editor_mark() was called. */
bool line_editor_was_early(const LineEditor *editor);

/* Appends text[0..size) to the history. */
Status line_editor_remember(LineEditor *editor, const char *text, size_t size, Error *err);
