/* line_display.h - a line that is being edited, as it stands on the screen.
 *
 * libedit draws lines, too, but where a character of two columns takes another's place, and where a line is
 * higher than the screen, it loses its place. So this draws what libedit edits: the prompt and the cells,
 * broken at the screen's width where the terminal itself breaks them, of a line higher than the screen the
 * part around the cursor. */
#ifndef AUK_TERMINAL_LINE_DISPLAY_H
#define AUK_TERMINAL_LINE_DISPLAY_H

#include <stdio.h>

#include "terminal/cells.h"

typedef struct {
  const Cells *cells;
  FILE *screen;
  bool ansi;          /* it takes escape sequences */
  const char *prompt; /* ASCII */
  int columns, rows;  /* of the screen */

  CellString line; /* what stands there */
  bool drawn;      /* anything does */
  size_t cursor;   /* the cell before which the cursor stands */
  int top, height; /* rows of the line that are above the screen; that are on it */
  Buffer out;      /* of one write */
} LineDisplay;     /* set the upper part, zero the lower one; release with line_display_release() */

/* The next line begins: the cursor stands at the beginning of an empty row. */
void line_display_begin(LineDisplay *display, const char *prompt);
/* Makes line[0..n), with the cursor before the cell `cursor`, what stands there; as little is written as can
 * be known to be enough. */
Status line_display_show(LineDisplay *display, const wchar_t *line, size_t n, size_t cursor, Error *err);
/* Draws all of it anew, at the screen's new size; a screen that was cleared or written to is begun anew at
 * its top, or where its cursor stands now. */
typedef enum { REDRAW_RESIZED, REDRAW_CLEARED, REDRAW_HERE } Redraw;
Status line_display_redraw(LineDisplay *display, Redraw why, int columns, int rows, Error *err);
/* Writes `mark` behind the line and goes to the row below. */
Status line_display_end(LineDisplay *display, const char *mark, Error *err);
void line_display_release(LineDisplay *display);

/* Rows that a line would have. */
int line_display_height(const LineDisplay *display, const wchar_t *line, size_t n);

#endif
