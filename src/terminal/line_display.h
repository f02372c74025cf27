/* line_display.h - draws the line that is being edited.
 *
 * libedit's own drawing loses the cursor's position if a character of two columns replaces another one, and
 * if a line is higher than the screen. So this file draws the line that libedit edits: the prompt and the
 * cells, wrapped where the terminal itself wraps. If the line is higher than the screen, it draws the rows
 * around the cursor. */
#pragma once

#include <stdio.h>

#include "terminal/cells.h"
#include "terminal/word_wrap.h"

typedef struct {
  const Cells *cells;
  FILE *screen;
  bool ansi;          /* the screen understands escape sequences */
  bool rewraps;       /* the screen reflows lines when its width changes; xterm cuts them */
  TextStyle style;    /* style of prompt and line; STYLE_NONE unless `ansi` */
  const char *prompt; /* ASCII */
  int columns, rows;  /* size of the screen */

  CellString line; /* the drawn line */
  bool drawn;      /* the prompt and `line` are on the screen */
  size_t cursor;   /* the cursor is before this cell */
  int top, height; /* rows of the line: `top` above the screen, `height` on the screen */
  Buffer out;      /* bytes of one write */
} LineDisplay;     /* set the members above the blank line, zero the rest; line_display_release() frees it */

/* Begins a new line. PRECOND the cursor is at the beginning of an empty row */
void line_display_begin(LineDisplay *display, const char *prompt);
/* Shows line[0..n) with the cursor before the cell `cursor`. Where it can, it only writes appended cells, or
 * moves the cursor. */
Status line_display_show(LineDisplay *display, const wchar_t *line, size_t n, size_t cursor, Error *err);
/* Draws the whole line again for the screen's new size. REDRAW_RESIZED: in its old place; REDRAW_CLEARED: on
 * a cleared screen; REDRAW_HERE: from the cursor's row on. Without `ansi`: always in the next row. */
typedef enum { REDRAW_RESIZED, REDRAW_CLEARED, REDRAW_HERE } Redraw;
Status line_display_redraw(LineDisplay *display, Redraw why, int columns, int rows, Error *err);
/* Writes `mark` after the line and goes to the next row. */
Status line_display_end(LineDisplay *display, const char *mark, Error *err);
void line_display_release(LineDisplay *display);

/* The number of rows that the prompt and a line would take. */
int line_display_height(const LineDisplay *display, const wchar_t *line, size_t n);
