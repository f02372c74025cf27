/* line_display.c - see line_display.h.
 *
 * Called by: line_editor.c.
 * Always true: between two calls, `line`, `cursor` and `top` give the position of the terminal's cursor; a
 *              call that draws flushes the screen once. */
#include "terminal/line_display.h"

#include <string.h>

/* A position on the screen, relative to the beginning of the line. */
typedef struct {
  int row, column;
} Place;

static int prompt_width(const LineDisplay *d) {
  return (int)strlen(d->prompt);
}

/* The place of a cell if the cell before it ended at `at`: a cell that does not fit goes to the next row. */
static Place place_of(const LineDisplay *d, wchar_t cell, Place at) {
  const bool fits = at.column + cells_width(d->cells, cell, at.column) <= d->columns;
  return fits || at.column == 0 ? at : (Place){at.row + 1, 0};
}

/* The end of a cell at `at`; after a full row, the beginning of the next one. */
static Place place_behind(const LineDisplay *d, wchar_t cell, Place at) {
  const int end = cell == L'\n' ? d->columns : at.column + cells_width(d->cells, cell, at.column);
  return (Place){at.row + end / d->columns, end % d->columns};
}

static Place place_after(const LineDisplay *d, const wchar_t *line, size_t n) {
  Place at = {prompt_width(d) / d->columns, prompt_width(d) % d->columns};
  for (size_t i = 0; i < n; i++) at = place_behind(d, line[i], place_of(d, line[i], at));
  return at;
}

/* The place of the cursor before cell number `cursor`. */
static Place cursor_place(const LineDisplay *d, const wchar_t *line, size_t n, size_t cursor) {
  Place at = place_after(d, line, cursor);
  return cursor < n ? place_of(d, line[cursor], at) : at;
}

int line_display_height(const LineDisplay *d, const wchar_t *line, size_t n) {
  return place_after(d, line, n).row + 1;
}

/* --- writing */

static Status put(LineDisplay *d, const char *text, Error *err) {
  return buffer_append_string(&d->out, text, err);
}

static Status send(LineDisplay *d) {
  if (d->out.size) {
    fputs(style_begin(d->style), d->screen);
    fwrite(d->out.data, 1, d->out.size, d->screen);
    fputs(style_end(d->style), d->screen);
  }
  fflush(d->screen);
  d->out.size = 0;
  return STATUS_OK;
}

/* Moves the terminal's cursor from one place of the line to another. */
static Status move(LineDisplay *d, Place from, Place to, Error *err) {
  if (to.row < from.row) TRY(buffer_printf(&d->out, err, "\033[%dA", from.row - to.row));
  if (to.row > from.row) TRY(buffer_printf(&d->out, err, "\033[%dB", to.row - from.row));
  if (to.row == from.row && to.column == from.column) return STATUS_OK;
  TRY(put(d, "\r", err));
  return to.column ? buffer_printf(&d->out, err, "\033[%dC", to.column) : STATUS_OK;
}

/* True if the last cell of line[first..n), which ends at `at`, fills up a row that is not the last one drawn.
 * The terminal then leaves the cursor in that row until another character follows. */
static bool keeps_cursor(const LineDisplay *d, const wchar_t *line, size_t first, size_t n, Place at) {
  return n > first && line[n - 1] != L'\n' && at.column == 0 && at.row > d->top &&
         at.row < d->top + d->height;
}

/* Writes the cells of line[first..n) that lie in rows [top, top + height). *at: where the text before
 * line[first] ends; afterwards, where line[n - 1] ends. With d->ansi a row that ends early is erased to
 * its end. The terminal itself wraps full rows, so that it treats them as one line. */
static Status put_cells(LineDisplay *d, const wchar_t *line, size_t first, size_t n, Place *at, Error *err) {
  const int end = d->top + d->height;
  const char *erase = d->ansi ? "\033[K" : "";
  for (size_t i = first; i < n; i++) {
    Place place = place_of(d, line[i], *at), behind = place_behind(d, line[i], place);
    bool seen = place.row >= d->top && place.row < end, last_row = place.row + 1 == end;
    bool shortened =
        place.row > at->row && at->row >= d->top && at->row < end; /* the cell did not fit there */
    if (shortened) TRY(put(d, erase, err));
    if (line[i] == L'\n' && keeps_cursor(d, line, first, i, *at)) TRY(put(d, " \r", err));
    if (seen && line[i] == L'\n') TRY(put(d, erase, err));
    if (seen && line[i] == L'\n' && !last_row) TRY(put(d, "\r\n", err));
    if (seen && line[i] != L'\n') TRY(cells_show(d->cells, line[i], place.column, &d->out, err));
    *at = behind;
  }
  return keeps_cursor(d, line, first, n, *at) ? put(d, " \r", err) : STATUS_OK;
}

/* Writes line[first..n), all rows of it, after line[0..first). */
static Status put_rows(LineDisplay *d, const wchar_t *line, size_t first, size_t n, Error *err) {
  Place at = place_after(d, line, first);
  d->top = 0;
  d->height = line_display_height(d, line, n);
  return put_cells(d, line, first, n, &at, err);
}

/* --- a terminal with escape sequences */

/* Draws the line or, if the line is higher than the screen, the rows around the cursor. PRECOND the
 * terminal's cursor is at the beginning of the first row */
static Status draw(LineDisplay *d, const wchar_t *line, size_t n, size_t cursor, Error *err) {
  Place at = {prompt_width(d) / d->columns, prompt_width(d) % d->columns};
  const Place place = cursor_place(d, line, n, cursor);
  const int total = line_display_height(d, line, n);
  d->height = total < d->rows ? total : d->rows;
  d->top = place.row - d->height / 2;
  if (d->top > total - d->height) d->top = total - d->height;
  if (d->top < 0) d->top = 0;
  if (d->top == 0) TRY(put(d, d->prompt, err));
  TRY(put_cells(d, line, 0, n, &at, err));
  Place end = at;
  if (end.row >= d->top + d->height)
    end = (Place){d->top + d->height - 1, 0}; /* the line goes on below the screen */
  TRY(end.row == at.row ? put(d, "\033[J", err) : put(d, "\r", err));
  return move(d, end, place, err);
}

static Place drawn_place(const LineDisplay *d) {
  return cursor_place(d, d->line.data, d->line.size, d->cursor);
}

/* Draws the line; if it is drawn (`same`) and the cursor's new row is shown, only moves the cursor. */
static Status show_ansi(LineDisplay *d, const wchar_t *line, size_t n, size_t cursor, bool same, Error *err) {
  if (!d->drawn) return draw(d, line, n, cursor, err);
  const Place from = drawn_place(d), to = cursor_place(d, line, n, cursor);
  if (same && to.row >= d->top && to.row < d->top + d->height) return move(d, from, to, err);
  TRY(move(d, from, (Place){d->top, 0}, err));
  if (from.row == d->top && from.column == 0) TRY(put(d, "\r", err));
  return draw(d, line, n, cursor, err);
}

/* --- a terminal without escape sequences, where only the current row can be overwritten */

static Status show_plain(LineDisplay *d, const wchar_t *line, size_t n, size_t cursor, Error *err) {
  const Place end = place_after(d, line, n), old_end = place_after(d, d->line.data, d->line.size);
  const bool one_row = end.row == 0 && old_end.row == 0;
  if (d->drawn) TRY(put(d, one_row ? "\r" : "\r\n", err));
  TRY(put(d, d->prompt, err));
  TRY(put_rows(d, line, 0, n, err));
  if (!one_row) return STATUS_OK;
  for (int i = end.column; i < old_end.column; i++) TRY(put(d, " ", err));
  if (!d->drawn && cursor == n) return STATUS_OK;
  TRY(put(d, "\r", err));
  TRY(put(d, d->prompt, err));
  return put_rows(d, line, 0, cursor, err);
}

/* --- */

void line_display_begin(LineDisplay *d, const char *prompt) {
  d->prompt = prompt;
  d->drawn = false;
  d->line.size = d->cursor = 0;
  d->top = d->height = 0;
}

Status line_display_show(LineDisplay *d, const wchar_t *line, size_t n, size_t cursor, Error *err) {
  const size_t old = d->line.size;
  const bool begins = d->drawn && n >= old && (old == 0 || wmemcmp(line, d->line.data, old) == 0);
  const bool fits = !d->ansi || (d->top == 0 && line_display_height(d, line, n) <= d->rows);
  if (begins && n == old && cursor == d->cursor) return STATUS_OK;
  if (begins && fits && d->cursor == old && cursor == n) /* cells were appended */
    TRY(put_rows(d, line, old, n, err));
  else
    TRY(d->ansi ? show_ansi(d, line, n, cursor, begins && n == old, err)
                : show_plain(d, line, n, cursor, err));
  d->line.size = 0;
  for (size_t i = 0; i < n; i++) TRY(cell_string_append(&d->line, line[i], err));
  d->cursor = cursor;
  d->drawn = true;
  return send(d);
}

/* Terminals differ in what they do with rows when they are resized. Unless this terminal is known to reflow
 * rows, the cursor goes up by the fewest rows that the line may cover. At worst a part of the line then stays
 * above; earlier output is never erased. */
Status line_display_redraw(LineDisplay *d, Redraw why, int columns, int rows, Error *err) {
  LineDisplay wider = *d;
  wider.columns = columns;
  const int before = drawn_place(d).row - d->top, now = drawn_place(&wider).row;
  const bool anew = d->rewraps && d->top == 0;
  const int up = why != REDRAW_RESIZED ? 0 : anew || now < before ? now : before;
  d->columns = columns;
  d->rows = rows;
  d->drawn = false;
  if (up && d->ansi) TRY(buffer_printf(&d->out, err, "\033[%dA", up));
  TRY(put(d, !d->ansi ? "\r\n" : why == REDRAW_CLEARED ? "\033[H\033[2J" : "\r\033[J", err));
  TRY(d->ansi ? draw(d, d->line.data, d->line.size, d->cursor, err)
              : show_plain(d, d->line.data, d->line.size, d->cursor, err));
  d->drawn = true;
  return send(d);
}

Status line_display_end(LineDisplay *d, const char *mark, Error *err) {
  Place end = place_after(d, d->line.data, d->line.size);
  if (end.row >= d->top + d->height) end = (Place){d->top + d->height - 1, 0};
  if (d->ansi && d->drawn) TRY(move(d, drawn_place(d), end, err));
  TRY(put(d, mark, err));
  TRY(put(d, "\n", err));
  d->drawn = false;
  return send(d);
}

void line_display_release(LineDisplay *d) {
  cell_string_release(&d->line);
  buffer_release(&d->out);
}
