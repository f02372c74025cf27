/* test_line_display.c - a line that is edited, as it stands on a screen: random lines and cursors, drawn
 * step by step on a screen of the test's own, against where each cell belongs by counting columns. */
#include <wchar.h>

#include "terminal/line_display.h"
#include "test/tests.h"

enum { MAX_ROWS = 16, MAX_COLUMNS = 32, MAX_CELLS = 120, MAX_LINE_ROWS = 200 };

/* --- a terminal: characters of one and two columns, \r, \n and the sequences that a display may send */

typedef struct {
  int rows, columns, row,
      column; /* column == columns: the row is full, and breaks before the next character */
  wchar_t cells[MAX_ROWS][MAX_COLUMNS]; /* 0: blank, or the right half of a wide character */
  bool knows_sequences;
} Screen;

static void erase(Screen *s, int row, int from) {
  for (int i = from; i < s->columns; i++) s->cells[row][i] = 0;
}

static void line_feed(Screen *s) {
  if (++s->row < s->rows) return;
  s->row--;
  memmove(s->cells[0], s->cells[1], sizeof s->cells[0] * (size_t)(s->rows - 1));
  erase(s, s->rows - 1, 0);
}

static void put_character(Screen *s, wchar_t c) {
  const int width = wcwidth(c);
  assert_in_range(width, 1, 2);
  if (s->column + width > s->columns) {
    s->column = 0;
    line_feed(s);
  }
  s->cells[s->row][s->column] = c == L' ' ? 0 : c;
  if (width == 2) s->cells[s->row][s->column + 1] = 0;
  s->column += width;
}

/* CSI n LETTER. Returns what follows it. */
static const char *obey(Screen *s, const char *at) {
  char *letter;
  const int n = (int)strtol(at, &letter, 10);
  if (!s->knows_sequences) fail_msg("a sequence for a terminal that knows none");
  if (s->column == s->columns) s->column--;
  switch (*letter) {
  case 'A':
    assert_in_range(n, 1, s->row);
    s->row -= n;
    break;
  case 'B':
    assert_in_range(n, 1, s->rows - 1 - s->row);
    s->row += n;
    break;
  case 'C':
    assert_in_range(n, 1, s->columns - 1 - s->column);
    s->column += n;
    break;
  case 'H': s->row = s->column = 0; break;
  case 'K': erase(s, s->row, s->column); break;
  case 'J':
    erase(s, n == 2 ? 0 : s->row, n == 2 ? 0 : s->column);
    for (int row = n == 2 ? 0 : s->row + 1; row < s->rows; row++) erase(s, row, 0);
    break;
  default: fail_msg("no sequence of a display: %s", at);
  }
  return letter + 1;
}

static void feed(Screen *s, const char *text) {
  while (*text) {
    if (text[0] == '\033' && text[1] == '[') {
      text = obey(s, text + 2);
    } else if (*text == '\r') {
      s->column = 0;
      text++;
    } else if (*text == '\n') {
      line_feed(s);
      text++;
    } else {
      wchar_t c;
      const int length = mbtowc(&c, text, MB_CUR_MAX);
      assert_true(length > 0);
      put_character(s, c);
      text += length;
    }
  }
}

/* --- where each cell belongs */

typedef struct {
  wchar_t cells[MAX_LINE_ROWS][MAX_COLUMNS];
  int n_rows, row, column; /* of the cursor */
} Layout;

/* Counts columns: what does not fit begins a row, and a row that is full is followed by another one. */
static Layout lay_out(const char *prompt, const wchar_t *line, size_t n, size_t cursor, int columns) {
  static Layout out;
  int row = 0, column = 0;
  memset(&out, 0, sizeof out);
  for (size_t i = 0; i < strlen(prompt) + n; i++) {
    const bool in_prompt = i < strlen(prompt);
    const wchar_t c = in_prompt ? (wchar_t)prompt[i] : line[i - strlen(prompt)];
    const int width = c == L'\n' ? 0 : wcwidth(c);
    if (column + width > columns) row++, column = 0;
    if (!in_prompt && i - strlen(prompt) == cursor) out.row = row, out.column = column;
    if (width && c != L' ') out.cells[row][column] = c;
    column += width;
    if (c == L'\n' || column == columns) row++, column = 0;
  }
  if (cursor == n) out.row = row, out.column = column;
  out.n_rows = row + 1;
  return out;
}

/* True if rows first .. of the layout stand on the screen from `top` on, and nothing below them. */
static void assert_rows(const Screen *s, const Layout *want, int first, int n, int top, int to_row) {
  for (int i = 0; i < n; i++)
    for (int column = 0; column < s->columns; column++)
      if (s->cells[top + i][column] != want->cells[first + i][column])
        fail_msg("row %d, column %d: U+%04X, expected U+%04X", top + i, column,
                 (unsigned)s->cells[top + i][column], (unsigned)want->cells[first + i][column]);
  for (int row = top + n; row < to_row; row++)
    for (int column = 0; column < s->columns; column++) assert_int_equal(s->cells[row][column], 0);
}

/* --- random editing */

static uint32_t random_state = 5;

static size_t below(size_t n) {
  random_state = random_state * 1664525 + 1013904223;
  return (size_t)(((uint64_t)random_state * n) >> 32);
}

typedef struct {
  LineDisplay display;
  Cells cells;
  Screen screen;
  char *written;
  size_t n_written;
  wchar_t line[MAX_CELLS];
  size_t n, cursor;
} Editing;

static void begin(Editing *e, bool ansi, int rows, int columns, const char *prompt) {
  *e = (Editing){.screen = {.rows = rows, .columns = columns, .knows_sequences = ansi}};
  e->display = (LineDisplay){.cells = &e->cells, .ansi = ansi, .columns = columns, .rows = rows};
  e->display.screen = open_memstream(&e->written, &e->n_written);
  line_display_begin(&e->display, prompt);
}

/* Brings what was written to the screen. */
static void look(Editing *e) {
  fflush(e->display.screen);
  feed(&e->screen, e->written);
  rewind(e->display.screen);
  memset(e->written, 0, e->n_written);
}

static void end(Editing *e) {
  fclose(e->display.screen);
  free(e->written);
  line_display_release(&e->display);
  cells_release(&e->cells);
}

static void edit(Editing *e, size_t longest) {
  static const wchar_t letters[] = {L'a', L'b', L' ', L'é', L'中', L'文', L'か', L'\n'};
  const size_t what = below(10);
  if (what < 5 && e->n < longest) {
    const size_t at = what < 4 ? e->cursor : e->n, kind = below(16);
    wmemmove(e->line + at + 1, e->line + at, e->n - at);
    e->line[at] = letters[kind < 8 ? kind : kind % 3];
    e->n++;
    e->cursor = at + 1;
  } else if (what < 7) {
    e->cursor = below(e->n + 1);
  } else if (what == 7 && e->cursor > 0) {
    wmemmove(e->line + e->cursor - 1, e->line + e->cursor, e->n - e->cursor);
    e->n--, e->cursor--;
  } else if (what == 8 && below(5) == 0) {
    e->n = e->cursor;
  } else {
    e->cursor = e->n;
  }
}

/* All that fits of the line stands on the screen, the cursor in it, what was above it untouched. */
static void assert_shown(const Editing *e, const char *prompt) {
  const Screen *s = &e->screen;
  const Layout want = lay_out(prompt, e->line, e->n, e->cursor, s->columns);
  const int height = want.n_rows < s->rows ? want.n_rows : s->rows;
  const int top = s->row - (want.row - e->display.top); /* of the line on the screen */
  assert_int_equal(line_display_height(&e->display, e->line, e->n), want.n_rows);
  assert_int_equal(s->column, want.column);
  assert_in_range(top, 0, s->rows - height);
  assert_in_range(e->display.top, 0, want.n_rows - height);
  assert_in_range(want.row, e->display.top, e->display.top + height - 1);
  assert_rows(s, &want, e->display.top, height, top, s->rows);
  if (top > 0) assert_int_equal(s->cells[top - 1][0], L'~'); /* what stood there before */
}

static void put_marks(Screen *s, int n) {
  for (int i = 0; i < n; i++) feed(s, "~\r\n");
}

TEST(any_line_stands_where_it_belongs) {
  static const char *const prompts[] = {"> ", "... ", ""};
  static const int sizes[][2] = {{10, 20}, {4, 11}, {1, 9}, {16, 5}, {3, 7}};
  for (size_t k = 0; k < 15; k++) {
    const char *prompt = prompts[k % 3];
    Editing e;
    begin(&e, true, sizes[k / 3][0], sizes[k / 3][1], prompt);
    put_marks(&e.screen, (int)below(6));
    for (int step = 0; step < 400; step++) {
      for (size_t n = 1 + below(3); n > 0; n--) edit(&e, MAX_CELLS - 1);
      assert_int_equal(line_display_show(&e.display, e.line, e.n, e.cursor, NULL), STATUS_OK);
      look(&e);
      assert_shown(&e, prompt);
    }
    end(&e);
  }
}

TEST(a_line_is_drawn_anew) {
  static const Redraw reasons[] = {REDRAW_CLEARED, REDRAW_HERE};
  for (int round = 0; round < 200; round++) {
    Editing e;
    begin(&e, true, 8, 15, "> ");
    for (size_t n = below(100); n > 0; n--) edit(&e, 60);
    assert_int_equal(line_display_show(&e.display, e.line, e.n, e.cursor, NULL), STATUS_OK);
    look(&e);
    const Redraw why = reasons[round % 2];
    if (why == REDRAW_HERE) { /* another program wrote to the screen */
      feed(&e.screen, "\033[H\033[2J");
      put_marks(&e.screen, 3);
    }
    assert_int_equal(line_display_redraw(&e.display, why, 15, 8, NULL), STATUS_OK);
    look(&e);
    assert_shown(&e, "> ");
    const int top = e.screen.row - (lay_out("> ", e.line, e.n, e.cursor, 15).row - e.display.top);
    if (why == REDRAW_CLEARED) assert_int_equal(top, 0);
    edit(&e, 60);
    assert_int_equal(line_display_show(&e.display, e.line, e.n, e.cursor, NULL), STATUS_OK);
    look(&e);
    assert_shown(&e, "> ");
    end(&e);
  }
}

/* A screen that grows or shrinks in height alone breaks no row anew. */
TEST(a_line_takes_a_higher_screen) {
  for (int round = 0; round < 100; round++) {
    Editing e;
    begin(&e, true, 3, 15, "> ");
    for (size_t n = below(150); n > 0; n--) edit(&e, 100);
    assert_int_equal(line_display_show(&e.display, e.line, e.n, e.cursor, NULL), STATUS_OK);
    look(&e);
    e.screen.rows = 12;
    assert_int_equal(line_display_redraw(&e.display, REDRAW_RESIZED, 15, 12, NULL), STATUS_OK);
    look(&e);
    assert_shown(&e, "> ");
    assert_int_equal(e.screen.row - (lay_out("> ", e.line, e.n, e.cursor, 15).row - e.display.top), 0);
    end(&e);
  }
}

TEST(a_mark_stands_behind_the_line_and_the_cursor_below) {
  for (int round = 0; round < 300; round++) {
    Editing e;
    begin(&e, true, 4, 12, "> ");
    for (size_t n = below(60); n > 0; n--) edit(&e, round % 2 ? 8 : 80);
    assert_int_equal(line_display_show(&e.display, e.line, e.n, e.cursor, NULL), STATUS_OK);
    look(&e);
    const Layout want = lay_out("> ", e.line, e.n, e.n, 12);
    const int line_top = e.screen.row - (lay_out("> ", e.line, e.n, e.cursor, 12).row - e.display.top);
    const bool whole = want.row < e.display.top + e.display.height;
    const int row = line_top + (whole ? want.row - e.display.top : e.display.height - 1);
    assert_int_equal(line_display_end(&e.display, "^", NULL), STATUS_OK);
    look(&e);
    const int scrolled = row == e.screen.rows - 1;
    assert_int_equal(e.screen.row, row + !scrolled);
    const int column = whole ? want.column : 0;
    assert_int_equal(e.screen.cells[row - scrolled][column], L'^');
    line_display_begin(&e.display, "> "); /* nothing of the line is remembered */
    feed(&e.screen, "\r\033[J");
    e.n = e.cursor = 0;
    assert_int_equal(line_display_show(&e.display, e.line, 0, 0, NULL), STATUS_OK);
    look(&e);
    assert_int_equal(e.screen.cells[e.screen.row][0], L'>');
    end(&e);
  }
}

/* Without sequences a row can be written over: a line of one row stands right, the cursor too. A longer one
 * is written anew below, with the cursor at its end. */
TEST(a_plain_terminal_shows_the_line_last) {
  for (int k = 0; k < 6; k++) {
    Editing e;
    const size_t longest = k < 3 ? 12 : 40; /* the first ones stay in one row */
    begin(&e, false, 12, 30, "> ");
    put_marks(&e.screen, 2);
    for (int step = 0; step < 400; step++) {
      for (size_t n = 1 + below(3); n > 0; n--) edit(&e, longest);
      for (size_t i = 0; i < e.n; i++)
        if (e.line[i] == L'\n') e.line[i] = L'.';
      assert_int_equal(line_display_show(&e.display, e.line, e.n, e.cursor, NULL), STATUS_OK);
      look(&e);
      const Layout at = lay_out("> ", e.line, e.n, e.cursor, 30),
                   behind = lay_out("> ", e.line, e.n, e.n, 30);
      if (longest == 12) {
        assert_int_equal(e.screen.row, 2);
        assert_int_equal(e.screen.column, at.column);
        assert_rows(&e.screen, &at, 0, 1, 2, e.screen.rows);
      } else if (e.screen.column == behind.column && e.screen.row - behind.row >= 0) {
        assert_rows(&e.screen, &behind, 0, behind.n_rows, e.screen.row - behind.row, e.screen.row + 1);
      } else {
        assert_int_equal(behind.n_rows, 1);
        assert_int_equal(e.screen.column, at.column);
      }
    }
    const int row = e.screen.row;
    assert_int_equal(line_display_end(&e.display, "", NULL), STATUS_OK);
    look(&e);
    assert_int_equal(e.screen.row, row < e.screen.rows - 1 ? row + 1 : row);
    end(&e);
  }
}

/* Nothing is written where nothing changed, and only the cell where one was added. */
TEST(as_little_is_written_as_is_enough) {
  for (int ansi = 0; ansi < 2; ansi++) {
    Editing e;
    begin(&e, ansi, 8, 20, "> ");
    assert_int_equal(line_display_show(&e.display, L"ab", 2, 2, NULL), STATUS_OK);
    look(&e);
    assert_int_equal(line_display_show(&e.display, L"ab", 2, 2, NULL), STATUS_OK);
    fflush(e.display.screen);
    assert_int_equal(e.n_written ? e.written[0] : 0, 0);
    assert_int_equal(line_display_show(&e.display, L"abc", 3, 3, NULL), STATUS_OK);
    fflush(e.display.screen);
    assert_string_equal(e.written, "c");
    end(&e);
  }
}

static int set_locale(void **state) {
  return cells_begin() ? 0 : -1;
}

static CMFixtureFunction before_all = set_locale;
