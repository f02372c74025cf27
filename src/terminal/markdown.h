/* markdown.h - shows a text on a terminal as it comes: words wrap, and light Markdown has styles.
 *
 *   fence lines (``` or ~~~)              dim
 *   lines between them, `code`            coloured
 *   headings (# to ######), **text**      bold
 *
 * The text stays as it is, marks too, so that what is copied from the screen is the source. Lines of code
 * and of tables are not wrapped: where they end has a meaning. A mark that is not closed ends with its line.
 * Styles depend only on the text so far, so nothing is ever written again. */
#pragma once

#include "terminal/word_wrap.h"

typedef enum {
  LINE_BEGINS,  /* the kind is not known yet; the line's characters so far are in `begun` */
  LINE_TEXT,    /* a paragraph, or a line of a list */
  LINE_HEADING, /* # Title */
  LINE_TABLE,   /* | cell | */
  LINE_CODE,    /* between fences, or a fence */
} LineKind;

typedef struct {
  WordWrap wrap; /* where the text goes; the caller sets the members above its blank line */
  bool is_plain; /* marks set no style */
  bool is_dim;   /* all text is dim instead */

  LineKind line;
  Buffer begun;        /* first characters of a line, until its kind is known */
  char fence;          /* '`' or '~' that opened the code, 0 outside of code */
  size_t fence_length; /* characters of the opening fence */
  bool is_bold;        /* between ** and ** */
  size_t n_ticks;      /* backticks that opened `code`; 0 outside of code */
  char run;            /* '`' or '*': the character of a mark that is not complete */
  size_t run_length;   /* number of this mark's characters so far; 0: there is no such mark */
  /* First bytes of the character before the mark (before_run) and of the last character so far (before). */
  char before_run, before;
  bool escaped;    /* a backslash is before the next character */
  char partial[4]; /* [n_partial] the first bytes of a character */
  size_t n_partial;
} Markdown; /* set the members above the blank line, zero the rest; markdown_release() frees it */

/* Takes text[0..size), which terminal_text() has made safe; it may begin and end within a character. Appends
 * to wrap.out what can be shown. */
Status markdown_push(Markdown *markdown, const char *text, size_t size, Error *err);
/* Appends what was held back, but drops an incomplete character. The next push begins a new text at the
 * cursor, with no open marks. */
Status markdown_end(Markdown *markdown, Error *err);
void markdown_release(Markdown *markdown); /* also zeroes it */
