/* line_editor.c - see line_editor.h.
 *
 * Called by: chat_input.c.
 * Always true: libedit reads only through next_key(), which handles signals. libedit sees only the opening
 *              sequence of a bracketed paste: on_paste() reads the text. libedit's drawing is discarded:
 *              line_display.c draws the line before a read(). Synthetic keys are C1 controls
 *              (U+0080..U+009F): terminals do not send them as UTF-8; if typed, they are dropped. */
#include "terminal/line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/terminal_text.h"
#include "base/utf8.h"
#include "terminal/console.h"
#include "terminal/line_display.h"

enum {
  KEY_JOIN = 0x81, /* a typed character without width, in `joined` */
  KEY_ESCAPE,      /* Esc alone in vi mode: not the beginning of a sequence */
  ESCAPE_MS = 50,  /* longer than a terminal takes for an escape sequence */
  HISTORY_LINES = 1000,
  PASTE_LIMIT = 16 << 20, /* characters; more than any context holds */
  BETWEEN_PARTS_MS = 50,  /* longest pause within a paste that the terminal does not bracket */
};

static const char paste_begins[] = "\033[200~", paste_ends[] = "\033[201~";
enum { MARK = sizeof paste_ends - 1 }; /* bytes of either sequence */

/* Keys that on_arrow() pushes back to libedit. */
#define KEY_OLDER    L"\x83"
#define KEY_NEWER    L"\x84"
#define KEY_ROW_UP   L"\x85"
#define KEY_ROW_DOWN L"\x86"

struct LineEditor {
  EditLine *line;
  HistoryW *history;
  FILE *drawn; /* libedit's output */
  bool vi;     /* vi mode, from ~/.editrc */
  Cells cells;
  LineDisplay display;
  bool has_no_marks;         /* no bracketed paste: lines that come together are a paste */
  double pasting_until_ms;   /* input before this time continues an unbracketed paste */
  unsigned char input[4096]; /* [n_input], read up to at_input */
  size_t n_input, at_input;
  /* Counts of input bytes. n_taken: read so far; began: read before the line began; marked: typed before
   * line_editor_mark(). */
  uint64_t n_taken, began, marked;
  uint32_t joined;
  bool cancelled, left;
  LineCompleter complete;
  Error *err; /* the current read's error, for failures in callbacks */
  Status status;
};

static LineEditor *editor_of(EditLine *line) {
  LineEditor *editor;
  el_wget(line, EL_CLIENTDATA, &editor);
  return editor;
}

/* A failure in a callback ends the read. */
static bool failed(LineEditor *e, Status status) {
  if (status && !e->status) e->status = status;
  return status != STATUS_OK;
}

/* --- the screen */

static void put(LineEditor *e, const char *text) {
  fputs(text, e->display.screen);
  fflush(e->display.screen);
}

/* Discards libedit's output except the bell. */
static ssize_t hear_bell(void *cookie, const char *bytes, size_t size) {
  if (memchr(bytes, '\a', size)) put(cookie, "\a");
  return (ssize_t)size;
}

static void show_line(LineEditor *e) {
  const LineInfoW *line = el_wline(e->line);
  size_t n = (size_t)(line->lastchar - line->buffer), cursor = (size_t)(line->cursor - line->buffer);
  failed(e, line_display_show(&e->display, line->buffer, n, cursor, e->err));
}

static void redraw(LineEditor *e, Redraw why) {
  failed(e, line_display_redraw(&e->display, why, console_columns(), console_rows(), e->err));
}

/* Continues after the program was stopped and other programs used the terminal. */
static void resume(LineEditor *e) {
  el_wset(e->line, EL_PREP_TERM, 0);
  el_wset(e->line, EL_PREP_TERM, 1);
  put(e, e->display.ansi ? "\033[?2004h" : "");
  redraw(e, REDRAW_HERE);
}

/* --- input */

/* Puts the sequences of bracketed paste around the input of one read() if this input has several lines or
 * continues a paste. */
static void mark_paste(LineEditor *e) {
  bool lines = clock_ms() < e->pasting_until_ms;
  for (size_t i = 0; i + 1 < e->n_input; i++) lines |= e->input[i] == '\r' || e->input[i] == '\n';
  if (!lines) return;
  memmove(e->input + MARK, e->input, e->n_input);
  memcpy(e->input, paste_begins, MARK);
  memcpy(e->input + MARK + e->n_input, paste_ends, MARK);
  e->n_input += 2 * MARK;
  e->pasting_until_ms = clock_ms() + BETWEEN_PARTS_MS;
}

static bool is_waiting(void) {
  struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
  return poll(&keys, 1, 0) > 0;
}

/* Reads a byte. False after Ctrl-C, with `cancelled` set. Also false, with `left` set: at the end of input,
 * after a failed read(), and when the chat is to end (CONSOLE_LEAVE). */
static bool next_byte(LineEditor *e, unsigned char *byte) {
  while (e->at_input == e->n_input) {
    const bool typed_ahead = is_waiting() && clock_ms() >= e->pasting_until_ms;
    switch (console_wait()) {
    case CONSOLE_INTERRUPT: e->cancelled = true; return false;
    case CONSOLE_LEAVE: e->left = true; return false;
    case CONSOLE_RESIZED: redraw(e, REDRAW_RESIZED); continue;
    case CONSOLE_RESUMED: resume(e); continue;
    case CONSOLE_KEYS: break;
    }
    ssize_t n = read(STDIN_FILENO, e->input, sizeof e->input - 2 * MARK);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    e->left = n <= 0;
    if (e->left) return false;
    e->n_input = (size_t)n;
    e->at_input = 0;
    if (e->has_no_marks && !typed_ahead) mark_paste(e);
  }
  *byte = e->input[e->at_input++];
  e->n_taken++;
  return true;
}

/* Reads a character; skips invalid bytes, U+0000 and C1 controls. False when next_byte() is. */
static bool next_character(LineEditor *e, uint32_t *code) {
  char bytes[4];
  size_t n = 0;
  for (unsigned char byte; next_byte(e, &byte);) {
    if (n == sizeof bytes) n = 0;
    bytes[n++] = (char)byte;
    int length = utf8_decode(bytes, n, code);
    if (length < 0 && n > 1) { /* the last byte may begin a character */
      bytes[0] = (char)byte;
      n = 1;
      length = utf8_decode(bytes, 1, code);
    }
    if (length < 0) n = 0;
    if (length <= 0) continue;
    if (*code != 0 && (*code < 0x80 || *code >= 0xA0)) return true;
    n = 0;
  }
  return false;
}

static bool nothing_follows(const LineEditor *e) {
  struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
  return e->at_input == e->n_input && poll(&keys, 1, ESCAPE_MS) == 0;
}

static int next_key(EditLine *line, wchar_t *key) {
  LineEditor *e = editor_of(line);
  if (e->status) return -1;
  if (e->at_input == e->n_input) show_line(e); /* keys that arrived together are drawn once */
  uint32_t code;
  if (!next_character(e, &code)) return 0;
  if (code == 0x1B && e->vi && nothing_follows(e)) {
    *key = KEY_ESCAPE;
    return 1;
  }
  if (cells_is_joined(code)) {
    e->joined = code;
    *key = KEY_JOIN;
    return 1;
  }
  CellString cell = {0};
  bool good = !failed(e, cells_append(&e->cells, code, &cell, e->err));
  if (good) *key = cell.data[0];
  cell_string_release(&cell);
  return good ? 1 : -1;
}

/* --- functions of keys */

static unsigned char on_join(EditLine *line, wint_t key) {
  LineEditor *e = editor_of(line);
  const LineInfoW *info = el_wline(line);
  CellString cells = {0};
  const bool joins = info->cursor > info->buffer;
  Status status = joins ? cell_string_append(&cells, info->cursor[-1], e->err) : STATUS_OK;
  if (status == STATUS_OK) status = cells_append(&e->cells, e->joined, &cells, e->err);
  if (status == STATUS_OK && joins) el_deletestr(line, 1);
  if (status == STATUS_OK) el_winsertstr(line, cells.data);
  cell_string_release(&cells);
  return failed(e, status) ? CC_ERROR : CC_REFRESH;
}

static unsigned char on_clear(EditLine *line, wint_t key) {
  redraw(editor_of(line), REDRAW_CLEARED);
  return CC_NORM;
}

/* Up (its sequence ends with A) goes to the previous line of the edited text. From the first line it goes to
 * the previous entry of the history. Down goes to the next line or entry. */
static unsigned char on_arrow(EditLine *line, wint_t key) {
  const LineInfoW *info = el_wline(line);
  const bool up = key == L'A';
  const wchar_t *from = up ? info->buffer : info->cursor, *end = up ? info->cursor : info->lastchar;
  const bool row = wmemchr(from, L'\n', (size_t)(end - from));
  el_wpush(line, up ? (row ? KEY_ROW_UP : KEY_OLDER) : (row ? KEY_ROW_DOWN : KEY_NEWER));
  return CC_NORM;
}

/* Columns of a name as terminal_text() shows it: one for each control character. */
static int name_width(const char *name) {
  const size_t size = strlen(name);
  int width = 0;
  for (size_t at = 0; at < size;) {
    uint32_t code;
    const int length = utf8_decode(name + at, size - at, &code);
    width += length <= 0 || steers_terminal(code) ? 1 : cells_columns(code);
    at += length > 0 ? (size_t)length : 1;
  }
  return width;
}

/* Appends at most MOST candidates, in columns. */
static Status put_list(const Buffer *list, int columns, Buffer *out, Error *err) {
  enum { MOST = 100, BETWEEN = 2 };
  const char *const end = list->data + list->size;
  int n = 0, width = 0, column = 0, padding = 0;
  for (const char *name = list->data; name < end; name += strlen(name) + 1)
    if (name_width(name) + BETWEEN > width) width = name_width(name) + BETWEEN;
  for (const char *name = list->data; name < end && n < MOST; n++) {
    const bool fits = column + width <= columns;
    if (column) TRY(fits ? buffer_printf(out, err, "%*s", padding, "") : buffer_append(out, "\n", 1, err));
    TRY(terminal_text(out, name, strlen(name), err));
    column = fits ? column + width : width;
    padding = width - name_width(name);
    name += strlen(name) + 1;
  }
  return buffer_append_string(out, n == MOST ? "\n...\n" : "\n", err);
}

/* Shows candidates below the line, and the line again below them. */
static Status show_list(LineEditor *e, const Buffer *list, Error *err) {
  LineDisplay *d = &e->display;
  OWNED(buffer_release) Buffer shown = {0};
  TRY(line_display_end(d, "", err));
  TRY(put_list(list, d->columns, &shown, err));
  fwrite(shown.data, 1, shown.size, d->screen);
  return line_display_redraw(d, REDRAW_HERE, console_columns(), console_rows(), err);
}

static unsigned char on_tab(EditLine *line, wint_t key) {
  LineEditor *e = editor_of(line);
  const LineInfoW *info = el_wline(line);
  Buffer text = {0}, rest = {0}, list = {0};
  CellString cells = {0};
  Status status = cells_text(&e->cells, info->buffer, (size_t)(info->cursor - info->buffer), &text, e->err);
  if (status == STATUS_OK) status = e->complete(text.data ? text.data : "", text.size, &rest, &list, e->err);
  if (status == STATUS_OK && rest.size)
    status = cells_of_text(&e->cells, rest.data, rest.size, &cells, e->err);
  const bool listed = status == STATUS_OK && rest.size == 0 && list.size;
  if (listed) show_line(e); /* keys that were read with Tab are not drawn yet */
  if (listed) status = show_list(e, &list, e->err);
  bool found = !failed(e, status) && (listed || (cells.size && el_winsertstr(line, cells.data) == 0));
  cell_string_release(&cells);
  buffer_release(&list);
  buffer_release(&rest);
  buffer_release(&text);
  return found ? CC_REFRESH : CC_REFRESH_BEEP;
}

/* --- long texts */

/* Appends the cells of a text. If the text takes more than 3 rows and more than a third of the screen's rows,
 * appends one cell instead, shown as a label. */
static Status cells_or_label(LineEditor *e, const char *text, size_t size, CellString *out, Error *err) {
  const LineDisplay *d = &e->display;
  if (size <= 4 * (size_t)d->rows * (size_t)d->columns) { /* 4 bytes a column */
    TRY(cells_of_text(&e->cells, text, size, out, err));
    int height = out->size ? line_display_height(d, out->data, out->size) : 0;
    if (height <= 3 || height <= d->rows / 3) return STATUS_OK;
    out->size = 0;
  }
  size_t n_lines = 1, n_characters = 0;
  for (size_t i = 0; i < size; i++) {
    n_lines += text[i] == '\n' && i + 1 < size;
    n_characters += ((unsigned char)text[i] & 0xC0) != 0x80;
  }
  char label[40];
  const bool lines = n_lines > 1;
  snprintf(label, sizeof label, "[%zu %s]", lines ? n_lines : n_characters, lines ? "lines" : "characters");
  return cells_of_block(&e->cells, text, size, label, out, err);
}

/* Reads to the sequence that ends a paste; *whole is false if Ctrl-C or the end of input came first. */
static Status read_paste(LineEditor *e, Buffer *text, bool *whole) {
  *whole = false;
  for (size_t n = 0;; n++) {
    uint32_t code;
    if (!next_character(e, &code)) {
      e->cancelled = false; /* Ctrl-C drops the paste only */
      return STATUS_OK;
    }
    char bytes[4];
    if (n < PASTE_LIMIT || text->size < MARK) {
      TRY(buffer_append(text, bytes, (size_t)utf8_encode(code, bytes), e->err));
    } else { /* the rest of the paste is dropped: only the end sequence is looked for */
      memmove(text->data + text->size - MARK, text->data + text->size - MARK + 1, MARK - 1);
      text->data[text->size - 1] = code < 0x80 ? (char)code : '?';
    }
    if (text->size >= MARK && memcmp(text->data + text->size - MARK, paste_ends, MARK) == 0) break;
  }
  text->size -= MARK;
  *whole = true;
  return STATUS_OK;
}

static unsigned char on_paste(EditLine *line, wint_t key) {
  LineEditor *e = editor_of(line);
  Buffer text = {0};
  CellString cells = {0};
  bool whole;
  Status status = read_paste(e, &text, &whole);
  for (size_t i = 0; i < text.size; i++)
    if (text.data[i] == '\r') text.data[i] = '\n';
  if (status == STATUS_OK && whole && text.size)
    status = cells_or_label(e, text.data, text.size, &cells, e->err);
  bool good = !failed(e, status) && whole;
  if (good && cells.size) good = el_winsertstr(line, cells.data) == 0;
  cell_string_release(&cells);
  buffer_release(&text);
  return good ? CC_REFRESH : CC_REFRESH_BEEP;
}

/* --- the editor */

/* Adds the functions above to libedit's, for binding. */
static void add_functions(EditLine *line) {
  static const struct {
    const wchar_t *name, *about;
    unsigned char (*run)(EditLine *, wint_t);
  } functions[] = {
      {L"auk-join", L"a character without width", on_join},
      {L"auk-clear", L"clears the screen", on_clear},
      {L"auk-arrow", L"a row up or down, or the history", on_arrow},
      {L"auk-tab", L"completes", on_tab},
      {L"auk-paste", L"takes what is pasted", on_paste},
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    el_wset(line, EL_ADDFN, functions[i].name, functions[i].about, functions[i].run);
}

/* Binds the keys of readline that libedit lacks, and the synthetic keys. All rows of the table but the last
 * four are bound in vi's command mode, too. */
static void bind_keys(EditLine *line) {
  static const struct {
    const wchar_t *function, *keys[4];
  } bindings[] = {
      {L"auk-join", {L"\x81"}},
      {L"vi-command-mode", {L"\x82"}},
      {L"ed-prev-history", {KEY_OLDER}},
      {L"ed-next-history", {KEY_NEWER}},
      {L"ed-prev-line", {KEY_ROW_UP}},
      {L"ed-next-line", {KEY_ROW_DOWN}},
      {L"auk-arrow", {L"\\e[A", L"\\e[B", L"\\eOA", L"\\eOB"}},
      {L"auk-paste", {L"\\e[200~"}},
      {L"ed-delete-next-char", {L"\\e[3~"}},
      {L"ed-move-to-beg", {L"\\e[1~", L"\\e[7~"}},
      {L"ed-move-to-end", {L"\\e[4~", L"\\e[8~"}},
      {L"em-next-word", {L"\\e[1;5C", L"\\e[1;3C"}},
      {L"ed-prev-word", {L"\\e[1;5D", L"\\e[1;3D"}},
      {L"auk-clear", {L"^L"}},
      {L"em-inc-search-prev", {L"^R"}},
      {L"ed-insert", {L"\\e\n"}},
      {L"auk-tab", {L"^I"}},
      {L"vi-kill-line-prev", {L"^U"}},
      {L"em-delete-prev-char", {L"^H", L"^?"}},
  };
  const size_t n = sizeof bindings / sizeof *bindings, n_command_mode = n - 4;
  for (size_t i = 0; i < n; i++) {
    const wchar_t *function = bindings[i].function;
    for (const wchar_t *const *keys = bindings[i].keys; keys < bindings[i].keys + 4 && *keys; keys++) {
      el_wset(line, EL_BIND, *keys, function, NULL);
      if (i < n_command_mode) el_wset(line, EL_BIND, L"-a", *keys, function, NULL);
    }
  }
  el_wset(line, EL_BIND, L"-s", L"\\e\r", L"\\e\n", NULL);
  for (wchar_t c = 0xA0; c <= 0xFF; c++) el_wset(line, EL_BIND, (wchar_t[]){c, 0}, L"ed-insert", NULL);
}

Status line_editor_open(FILE *screen, bool ansi, bool rewraps, bool marks_pastes, TextStyle style,
                        LineCompleter complete, LineEditor **editor, Error *err) {
  *editor = NULL;
  LineEditor *e;
  TRY(NEW(e, 1, "the line editor", err));
  e->complete = complete;
  e->has_no_marks = !marks_pastes;
  cells_begin();
  e->display = (LineDisplay){.cells = &e->cells,
                             .screen = screen,
                             .ansi = ansi,
                             .rewraps = rewraps,
                             .style = style,
                             .prompt = "",
                             .columns = console_columns(),
                             .rows = console_rows()};
  e->drawn = fopencookie(e, "w", (cookie_io_functions_t){.write = hear_bell});
  e->history = history_winit();
  if (e->drawn)
    e->line = el_init_fd("auk", stdin, e->drawn, stderr, STDIN_FILENO, fileno(screen), STDERR_FILENO);
  if (!e->line || !e->history) {
    line_editor_close(e);
    return error_set(err, STATUS_FAILED, "the line editor cannot be set up");
  }
  HistEventW event;
  history_w(e->history, &event, H_SETSIZE, HISTORY_LINES);
  history_w(e->history, &event, H_SETUNIQUE, 1);
  el_wset(e->line, EL_CLIENTDATA, e);
  el_wset(e->line, EL_HIST, history_w, e->history);
  el_wset(e->line, EL_EDITOR, L"emacs");
  add_functions(e->line);
  bind_keys(e->line);
  el_source(e->line, NULL);
  const wchar_t *manner = L"emacs";
  el_wget(e->line, EL_EDITOR, &manner);
  e->vi = wcscmp(manner, L"vi") == 0;
  if (e->vi) bind_keys(e->line); /* the change to vi mode has reset the bindings */
  el_wset(e->line, EL_GETCFN, next_key);
  *editor = e;
  return STATUS_OK;
}

void line_editor_close(LineEditor *e) {
  if (!e) return;
  if (e->line) {
    el_wset(e->line, EL_BIND, L"-r", L"\\e\r", NULL); /* el_end() does not free the strings of bindings */
    el_end(e->line);
  }
  if (e->history) history_wend(e->history);
  if (e->drawn) fclose(e->drawn);
  line_display_release(&e->display);
  cells_release(&e->cells);
  free(e);
}

Status line_editor_remember(LineEditor *e, const char *text, size_t size, Error *err) {
  OWNED(cell_string_release) CellString cells = {0};
  HistEventW event;
  TRY(cells_or_label(e, text, size, &cells, err));
  if (cells.size) history_w(e->history, &event, H_ENTER, cells.data);
  return STATUS_OK;
}

void line_editor_mark(LineEditor *e) {
  int n_waiting = 0;
  if (ioctl(STDIN_FILENO, FIONREAD, &n_waiting) != 0) n_waiting = 0;
  e->marked = e->n_taken + (e->n_input - e->at_input) + (uint64_t)n_waiting;
}

bool line_editor_was_early(const LineEditor *e) {
  return e->began < e->marked;
}

Status line_editor_read(LineEditor *e, const char *prompt, Buffer *line, LineResult *result, Error *err) {
  e->cancelled = e->left = false;
  e->status = STATUS_OK;
  e->err = err;
  e->began = e->n_taken;
  line->size = 0;
  console_mode(CONSOLE_EDITING);
  if (e->display.ansi) put(e, "\033[?2004h");
  e->display.columns = console_columns();
  e->display.rows = console_rows();
  line_display_begin(&e->display, prompt);
  int n = 0;
  const wchar_t *cells = el_wgets(e->line, &n);
  fflush(e->drawn);
  bool entered = cells && n > 0 && !e->left && !e->cancelled;
  *result = e->cancelled ? LINE_INTERRUPTED : entered ? LINE_ENTERED : LINE_END;
  size_t size = entered ? (size_t)n - (cells[n - 1] == L'\n') : 0;
  if (entered) failed(e, line_display_show(&e->display, cells, size, size, err));
  failed(e, line_display_end(&e->display, e->cancelled ? "^C" : "", err));
  if (entered) failed(e, cells_text(&e->cells, cells, size, line, err));
  if (e->display.ansi) put(e, "\033[?2004l");
  console_mode(CONSOLE_IDLE);
  e->display.prompt = ""; /* the caller's prompt is not kept */
  e->err = NULL;
  return e->status;
}
