/* word_wrap.h - breaks text at blanks where a word does not fit into the row of a terminal, and writes
 * styles.
 *
 * A break is a newline in place of one blank or tab. Blanks at a line's end that do not fit are left out. So
 * the rows that a user copies from the screen, joined by blanks, have the words of the text. The terminal
 * itself breaks words that are wider than a row, and texts without blanks (Chinese, Japanese); it joins such
 * rows again when they are copied. The last word is held back until its end, or until its row is decided.
 *
 * PRECOND setlocale() has set an LC_CTYPE that knows Unicode: cells_begin(). */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef enum { STYLE_NONE, STYLE_BOLD, STYLE_DIM, STYLE_CODE, STYLE_MINE } TextStyle;
/* The escape sequences that begin and end a style. */
const char *style_begin(TextStyle style);
const char *style_end(TextStyle style);

typedef struct {
  bool styles; /* write escape sequences */
  int columns; /* columns of the screen; may change at any time; below 2: no row is broken */

  int known_columns;  /* columns when `column` was computed */
  int column;         /* column of the cursor; equal to `columns`: the row is full */
  long long n_cells;  /* columns written since the last newline */
  bool passing;       /* the current word's row is decided: its characters are written at once */
  Buffer word;        /* characters held back */
  Buffer word_styles; /* the TextStyle of each byte of `word` */
  int word_width;     /* columns of `word` */
  Buffer blanks;      /* blanks and tabs before `word` */
  TextStyle shown;    /* style of what was written last */
  Buffer out;         /* what is to be written; the caller empties it */
} WordWrap;           /* set the members above the blank line, zero the rest; word_wrap_release() frees it */

/* Takes one printable character, text[0..size), or a newline or tab. keep: the line is left as it is; the
 * terminal alone breaks it. */
Status word_wrap_put(WordWrap *wrap, const char *text, size_t size, TextStyle style, bool keep, Error *err);
/* Ends the style: the bytes in `out` leave the terminal without a style, wherever the program ends. */
Status word_wrap_rest(WordWrap *wrap, Error *err);
/* Writes the blanks and the word that were held back. */
Status word_wrap_end(WordWrap *wrap, Error *err);
void word_wrap_release(WordWrap *wrap);
