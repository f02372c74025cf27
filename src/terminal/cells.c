/* cells.c - see cells.h.
 *
 * Always true: a cell in the proxies' range is the proxy in slot number (cell - PROXY_FIRST). */
#include "terminal/cells.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "base/terminal_text.h"
#include "base/utf8.h"

enum {
  PROXY_FIRST = 0xF0000, /* private use, plane 15 */
  PROXY_SLOTS = 0xFFFE,
  PROXY_MOST = 0xF000,    /* limit of proxies in use: free slots keep searches short */
  DOTTED_CIRCLE = 0x25CC, /* shown below an accent without a base character */
  REPLACEMENT = 0xFFFD,
  JOINED_BYTES = 64, /* from this length on, a cell takes no more accents */
};

bool cells_begin(void) {
  if (setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return true;
  if (setlocale(LC_CTYPE, "C.UTF-8") || setlocale(LC_CTYPE, "en_US.UTF-8")) return true;
  setlocale(LC_CTYPE, "C");
  return false;
}

/* --- strings of cells */

Status cell_string_append(CellString *string, wchar_t cell, Error *err) {
  TRY(mem_grow(&string->data, &string->capacity, string->size + 2, sizeof *string->data, "a line", err));
  string->data[string->size++] = cell;
  string->data[string->size] = 0;
  return STATUS_OK;
}

void cell_string_release(CellString *string) {
  free(string->data);
  *string = (CellString){0};
}

/* --- proxies */

static bool is_proxy(uint32_t code) {
  return code >= PROXY_FIRST && code < PROXY_FIRST + PROXY_SLOTS;
}

/* The proxy that a cell stands for; NULL: none. */
static const Proxy *proxy_of(const Cells *cells, wchar_t cell) {
  if (!cells->slots || !is_proxy((uint32_t)cell)) return NULL;
  const Proxy *proxy = &cells->slots[cell - PROXY_FIRST];
  return proxy->text ? proxy : NULL;
}

void cells_release(Cells *cells) {
  for (size_t i = 0; cells->slots && i < PROXY_SLOTS; i++) free(cells->slots[i].text);
  free(cells->slots);
  *cells = (Cells){0};
}

/* Finds or makes the proxy of a text; a proxy with a label is always new. *cell is 0 if a new one is needed
 * and PROXY_MOST are in use. */
static Status take_proxy(Cells *cells, const char *text, size_t size, int width, const char *label,
                         wchar_t *cell, Error *err) {
  *cell = 0;
  if (!cells->slots && !(cells->slots = mem_alloc(PROXY_SLOTS, sizeof *cells->slots, "a line", err)))
    return STATUS_FAILED;
  size_t at = hash64(text, size, 0) % PROXY_SLOTS;
  Proxy *slot = &cells->slots[at];
  while (slot->text && (*label || *slot->label || slot->size != size || memcmp(slot->text, text, size) != 0))
    slot = &cells->slots[at = (at + 1) % PROXY_SLOTS];
  if (!slot->text) {
    if (cells->count == PROXY_MOST) return STATUS_OK;
    TRY(NEW(slot->text, size ? size : 1, "a line", err));
    memcpy(slot->text, text, size);
    slot->size = size;
    slot->width = width;
    snprintf(slot->label, sizeof slot->label, "%s", label);
    cells->count++;
  }
  *cell = (wchar_t)(PROXY_FIRST + at);
  return STATUS_OK;
}

static Status append_cell(const Cells *cells, wchar_t cell, Buffer *out, Error *err) {
  const Proxy *proxy = proxy_of(cells, cell);
  char bytes[4];
  return proxy ? buffer_append(out, proxy->text, proxy->size, err)
               : buffer_append(out, bytes, (size_t)utf8_encode((uint32_t)cell, bytes), err);
}

bool cells_is_joined(uint32_t code) {
  return code != 0 && wcwidth((wchar_t)code) == 0 && !steers_terminal(code);
}

/* *cell = the proxy of the cell `base` (0: none) followed by `code`; 0 as in take_proxy(). */
static Status join(Cells *cells, wchar_t base, uint32_t code, wchar_t *cell, Error *err) {
  const Proxy *old = proxy_of(cells, base);
  char text[JOINED_BYTES + 4];
  size_t size = 0;
  if (old)
    memcpy(text, old->text, size = old->size);
  else if (base)
    size = (size_t)utf8_encode((uint32_t)base, text);
  size += (size_t)utf8_encode(code, text + size);
  return take_proxy(cells, text, size, base ? cells_width(cells, base, 0) : 1, "", cell, err);
}

static bool can_carry(const Cells *cells, wchar_t cell) {
  const Proxy *proxy = proxy_of(cells, cell);
  if (proxy) return !*proxy->label && proxy->size < JOINED_BYTES;
  return wcwidth(cell) == 1 || wcwidth(cell) == 2;
}

Status cells_append(Cells *cells, uint32_t code, CellString *line, Error *err) {
  wchar_t cell = 0, *last = line->size ? &line->data[line->size - 1] : NULL;
  const bool joined = cells_is_joined(code), carried = joined && last && can_carry(cells, *last);
  if (joined || is_proxy(code)) TRY(join(cells, carried ? *last : 0, code, &cell, err));
  if (cell && carried) {
    *last = cell;
    return STATUS_OK;
  }
  if (!cell) cell = code && !is_proxy(code) ? (wchar_t)code : REPLACEMENT;
  return cell_string_append(line, cell, err);
}

/* --- text */

Status cells_of_text(Cells *cells, const char *text, size_t size, CellString *out, Error *err) {
  for (size_t at = 0; at < size;) {
    uint32_t code = REPLACEMENT;
    int length = utf8_decode(text + at, size - at, &code);
    at += length > 0 ? (size_t)length : 1;
    TRY(cells_append(cells, length > 0 ? code : REPLACEMENT, out, err));
  }
  return STATUS_OK;
}

Status cells_of_block(Cells *cells, const char *text, size_t size, const char *label, CellString *out,
                      Error *err) {
  wchar_t cell;
  TRY(take_proxy(cells, text, size, (int)strlen(label), label, &cell, err));
  if (!cell)
    return error_set(err, STATUS_FAILED, "too many different characters and pasted texts in one chat");
  return cell_string_append(out, cell, err);
}

Status cells_text(const Cells *cells, const wchar_t *line, size_t n, Buffer *out, Error *err) {
  for (size_t i = 0; i < n; i++) TRY(append_cell(cells, line[i], out, err));
  return STATUS_OK;
}

/* --- on the screen */

/* True for the range of emoji: terminals give two columns even to emoji that the C library does not know. */
static bool is_new_picture(wchar_t cell) {
  return cell >= 0x1F000 && cell < 0x1FC00;
}

/* True if a terminal would show nothing for the cell, or obey it: the cell is then shown as its number. */
static bool is_unseen(wchar_t cell) {
  return steers_terminal((uint32_t)cell) || (wcwidth(cell) < 0 && !is_new_picture(cell));
}

int cells_columns(uint32_t code) {
  const int width = wcwidth((wchar_t)code);
  if (width >= 0) return width;
  return is_new_picture((wchar_t)code) ? 2 : 1;
}

int cells_width(const Cells *cells, wchar_t cell, int column) {
  const Proxy *proxy = proxy_of(cells, cell);
  if (proxy) return proxy->width;
  if (cell == L'\n') return 0;
  if (cell == L'\t') return 8 - column % 8;
  if (cell < 0x20 || cell == 0x7F) return 2;
  if (is_unseen(cell)) return snprintf(NULL, 0, "<U+%04X>", (unsigned)cell);
  return cells_columns((uint32_t)cell);
}

Status cells_show(const Cells *cells, wchar_t cell, int column, Buffer *out, Error *err) {
  if (cell == L'\n') return STATUS_OK;
  if (cell == L'\t') return buffer_printf(out, err, "%*s", cells_width(cells, cell, column), "");
  if (cell < 0x20 || cell == 0x7F) return buffer_printf(out, err, "^%c", (char)(cell ^ 0x40));
  if (is_unseen(cell)) return buffer_printf(out, err, "<U+%04X>", (unsigned)cell);
  const Proxy *proxy = proxy_of(cells, cell);
  if (proxy && *proxy->label) return buffer_append_string(out, proxy->label, err);
  uint32_t first;
  if (proxy && utf8_decode(proxy->text, proxy->size, &first) > 0 && cells_is_joined(first))
    TRY(append_cell(cells, DOTTED_CIRCLE, out, err));
  return append_cell(cells, cell, out, err);
}
