/* word_wrap.c - see word_wrap.h.
 *
 * Always true: `column` is where the terminal's cursor is after `out`; `word` and `blanks` are empty while
 *              `passing`. */
#include "terminal/word_wrap.h"

#include "base/utf8.h"
#include "terminal/cells.h"

enum { TAB = 8 };

/* --- styles */

static const char *const sequences[][2] = {
    [STYLE_NONE] = {"", ""},
    [STYLE_BOLD] = {"\033[1m", "\033[22m"},
    [STYLE_DIM] = {"\033[2m", "\033[22m"},
    [STYLE_CODE] = {"\033[36m", "\033[39m"},
    [STYLE_MINE] = {"\033[32m", "\033[39m"},
};

const char *style_begin(TextStyle style) {
  return sequences[style][0];
}

const char *style_end(TextStyle style) {
  return sequences[style][1];
}

static Status show_style(WordWrap *w, TextStyle style, Error *err) {
  if (style == w->shown || !w->styles) return STATUS_OK;
  TRY(buffer_append_string(&w->out, style_end(w->shown), err));
  w->shown = style;
  return buffer_append_string(&w->out, style_begin(style), err);
}

Status word_wrap_rest(WordWrap *w, Error *err) {
  return show_style(w, STYLE_NONE, err);
}

/* --- columns */

/* The column after a character of `width` columns. A character that does not fit is put into the next row by
 * the terminal. */
static int column_after(const WordWrap *w, int column, int width) {
  if (w->columns < 2) return column + width;
  return column + width > w->columns ? width : column + width;
}

/* A tab goes to the next multiple of 8, at most to the last column. */
static int blank_width(const WordWrap *w, char blank, int column) {
  if (blank != '\t') return 1;
  const int width = TAB - column % TAB, most = w->columns - 1 - column;
  return w->columns < 2 || width < most ? width : most > 0 ? most : 0;
}

/* When resized, a terminal either reflows long rows, or cuts them and keeps the cursor on the screen.
 * `column` becomes the larger of the two columns where the cursor may be. So no word is written beyond the
 * end of the row; at worst one row is short. */
static void follow_resizing(WordWrap *w) {
  if (w->columns == w->known_columns) return;
  w->known_columns = w->columns;
  if (w->columns < 2 || w->n_cells == 0) return;
  const int broken_anew = (int)((w->n_cells - 1) % w->columns) + 1;
  const int cut = w->column < w->columns ? w->column : w->columns;
  w->column = cut > broken_anew ? cut : broken_anew;
}

/* --- writing */

static Status write_text(WordWrap *w, const char *text, size_t size, int width, Error *err) {
  w->column = column_after(w, w->column, width);
  w->n_cells += width;
  return buffer_append(&w->out, text, size, err);
}

static Status write_newline(WordWrap *w, Error *err) {
  w->column = 0;
  w->n_cells = 0;
  TRY(show_style(w, STYLE_NONE, err));
  return buffer_append(&w->out, "\n", 1, err);
}

/* Writes blanks, which show no style. only_fitting: blanks that do not fit into the row are left out. */
static Status write_blanks(WordWrap *w, const char *blanks, size_t n, bool only_fitting, Error *err) {
  for (size_t i = 0; i < n; i++) {
    const int width = blank_width(w, blanks[i], w->column);
    if (only_fitting && w->columns >= 2 && w->column + width > w->columns) return STATUS_OK;
    TRY(write_text(w, &blanks[i], 1, width, err));
  }
  return STATUS_OK;
}

static bool word_fits(const WordWrap *w) {
  int column = w->column;
  for (size_t i = 0; i < w->blanks.size; i++) column += blank_width(w, w->blanks.data[i], column);
  return column + w->word_width <= w->columns;
}

/* Writes a newline in place of one blank. If there are several blanks, as many as fit stay in the row, and
 * the others begin the next row. */
static Status break_row(WordWrap *w, Error *err) {
  size_t n_before = 0;
  int column = w->column;
  while (n_before + 1 < w->blanks.size) {
    column += blank_width(w, w->blanks.data[n_before], column);
    if (column > w->columns) break;
    n_before++;
  }
  TRY(write_blanks(w, w->blanks.data, n_before, false, err));
  TRY(write_newline(w, err));
  const size_t n_rest = w->blanks.size - n_before - 1;
  return write_blanks(w, w->blanks.data + n_before + 1, n_rest, false, err);
}

static Status write_word(WordWrap *w, Error *err) {
  for (size_t at = 0; at < w->word.size;) {
    uint32_t code;
    const int length = utf8_decode(w->word.data + at, w->word.size - at, &code);
    TRY(show_style(w, (TextStyle)w->word_styles.data[at], err));
    TRY(write_text(w, w->word.data + at, (size_t)length, cells_columns(code), err));
    at += (size_t)length;
  }
  w->word.size = w->word_styles.size = 0;
  w->word_width = 0;
  return STATUS_OK;
}

/* Writes what is held back, in this row or in the next one. */
static Status place_word(WordWrap *w, Error *err) {
  if (w->passing) return STATUS_OK;
  if (w->blanks.size && w->word.size && w->columns >= 2 && w->column > 0 && !word_fits(w))
    TRY(break_row(w, err));
  else if (w->blanks.size)
    TRY(write_blanks(w, w->blanks.data, w->blanks.size, w->word.size == 0, err));
  w->blanks.size = 0;
  return write_word(w, err);
}

/* --- characters */

static Status put_blank(WordWrap *w, char blank, bool keep, Error *err) {
  if (w->word.size) TRY(place_word(w, err));
  w->passing = false;
  TRY(buffer_append(&w->blanks, &blank, 1, err));
  if (!keep) return STATUS_OK;
  Status status = write_blanks(w, w->blanks.data, w->blanks.size, false, err);
  w->blanks.size = 0;
  return status;
}

/* A character of two columns (Chinese, Japanese) is written at once, after what is held back: in such text a
 * row may end after any character. */
static Status put_letter(WordWrap *w, const char *text, size_t size, TextStyle style, bool keep, Error *err) {
  uint32_t code = 0;
  utf8_decode(text, size, &code);
  const int width = cells_columns(code);
  if (keep || w->blanks.size == 0) { /* no break is possible before the character */
    TRY(place_word(w, err));
    w->passing = true;
  }
  if (w->passing) {
    TRY(show_style(w, style, err));
    return write_text(w, text, size, width, err);
  }
  TRY(buffer_append(&w->word, text, size, err));
  for (size_t i = 0; i < size; i++) TRY(buffer_append(&w->word_styles, &(char){(char)style}, 1, err));
  w->word_width += width;
  if (w->columns >= 2 && width < 2 && word_fits(w)) return STATUS_OK;
  TRY(place_word(w, err));
  w->passing = true;
  return STATUS_OK;
}

Status word_wrap_put(WordWrap *w, const char *text, size_t size, TextStyle style, bool keep, Error *err) {
  follow_resizing(w);
  if (*text == ' ' || *text == '\t') return put_blank(w, *text, keep, err);
  if (*text != '\n') return put_letter(w, text, size, style, keep, err);
  TRY(word_wrap_end(w, err));
  return write_newline(w, err);
}

Status word_wrap_end(WordWrap *w, Error *err) {
  TRY(place_word(w, err));
  w->passing = false;
  return STATUS_OK;
}

void word_wrap_release(WordWrap *w) {
  buffer_release(&w->word);
  buffer_release(&w->word_styles);
  buffer_release(&w->blanks);
  buffer_release(&w->out);
}
