/* line_editor.h - a line from a person at a terminal, edited as readline's users expect; libedit stays behind
 * this.
 *
 * What is pasted comes in as it is, newlines too, and waits for Enter; where it is longer than a few lines
 * the editor shows "[120 lines]" for it. Alt-Enter puts a newline in, Ctrl-R searches, the arrows move
 * through several lines and then through what was entered before, Tab completes. ~/.editrc is heeded. */
#ifndef AUK_TERMINAL_LINE_EDITOR_H
#define AUK_TERMINAL_LINE_EDITOR_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buffer.h"

typedef struct LineEditor LineEditor;

/* What could stand for the word that ends the line[0..size): appends to `word` what is still missing of the
 * only one, or of all that there are. Prints nothing. */
typedef Status (*LineCompleter)(void *user, const char *line, size_t size, Buffer *rest, Error *err);

/* PRECOND console_begin(). `screen` is where it draws (the stream of a terminal). */
Status line_editor_open(FILE *screen, bool ansi, LineCompleter complete, void *user, LineEditor **editor,
                        Error *err);
void line_editor_close(LineEditor *editor); /* NULL is fine */

typedef enum {
  LINE_ENTERED,
  LINE_INTERRUPTED /* Ctrl-C */,
  LINE_END /* Ctrl-D, or the terminal went away */
} LineResult;
/* Reads a line behind `prompt` (ASCII), without its newline, in place of what `line` held.
 */
Status line_editor_read(LineEditor *editor, const char *prompt, Buffer *line, LineResult *result, Error *err);

/* Whether the line that was read last had begun to be typed when line_editor_mark() was called. */
void line_editor_mark(LineEditor *editor);
bool line_editor_was_early(const LineEditor *editor);

/* Makes text[0..size) the latest of what was entered before. */
Status line_editor_remember(LineEditor *editor, const char *text, size_t size, Error *err);

#endif
