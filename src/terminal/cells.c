/* cells.c - see cells.h.
 *
 * Called by: line_editor.c, line_display.c.
 * Always true: a cell in one of the two ranges of proxies is an index into its list. */
#include "terminal/cells.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal_text.h"
#include "base/utf8.h"

/* Private use (plane 15) has one column, CJK's extension B two, in every C library that knows widths. */
enum { NARROW_FIRST = 0xF0000, NARROW_COUNT = 0xFFFE, WIDE_FIRST = 0x20000, WIDE_COUNT = 0xA6E0 };
enum { DOTTED_CIRCLE = 0x25CC }; /* the base of an accent without one */
enum { JOINED_BYTES = 64 };      /* from this length on, a cell takes no more accents */

bool cells_begin(void) {
  if (setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return true;
  if (setlocale(LC_CTYPE, "C.UTF-8") || setlocale(LC_CTYPE, "en_US.UTF-8")) return true;
  setlocale(LC_CTYPE, "C");
  return false;
}

/* --- strings of cells */

Status cell_string_append(CellString *string, wchar_t cell, Error *err) {
  void *data = string->data;
  TRY(mem_grow(&data, &string->capacity, string->size + 2, sizeof *string->data, "a line", err));
  string->data = data;
  string->data[string->size++] = cell;
  string->data[string->size] = 0;
  return STATUS_OK;
}

void cell_string_release(CellString *string) {
  free(string->data);
  *string = (CellString){0};
}

/* --- proxies */

static bool in_range(uint32_t code, uint32_t first, uint32_t count) {
  return code >= first && code - first < count;
}

static const Proxy *proxy_of(const Cells *cells, uint32_t cell) {
  if (in_range(cell, NARROW_FIRST, NARROW_COUNT) && cell - NARROW_FIRST < cells->narrow.count)
    return &cells->narrow.items[cell - NARROW_FIRST];
  if (in_range(cell, WIDE_FIRST, WIDE_COUNT) && cell - WIDE_FIRST < cells->wide.count)
    return &cells->wide.items[cell - WIDE_FIRST];
  return NULL;
}

static void release_list(ProxyList *list) {
  for (size_t i = 0; i < list->count; i++) {
    free(list->items[i].text);
    free(list->items[i].shown);
  }
  free(list->items);
  free(list->slots);
}

void cells_release(Cells *cells) {
  release_list(&cells->narrow);
  release_list(&cells->wide);
  *cells = (Cells){0};
}

static char *copy_bytes(const char *bytes, size_t size, Error *err) {
  char *copy = mem_alloc(size ? size : 1, 1, "a line", err);
  if (copy && size) memcpy(copy, bytes, size);
  return copy;
}

static uint64_t hash_of(const char *text, size_t size) {
  uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
  for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3;
  return hash;
}

/* The slot of the item with this text, or the free slot for it. PRECOND a slot is free */
static uint32_t *find_slot(const ProxyList *list, const char *text, size_t size) {
  for (size_t at = hash_of(text, size);; at++) {
    uint32_t *slot = &list->slots[at & (list->n_slots - 1)];
    if (*slot == 0) return slot;
    const Proxy *item = &list->items[*slot - 1];
    if (item->text_size == size && memcmp(item->text, text, size) == 0) return slot;
  }
}

static Status grow_slots(ProxyList *list, Error *err) {
  if (2 * (list->count + 1) <= list->n_slots) return STATUS_OK;
  ProxyList larger = *list;
  larger.n_slots = list->n_slots ? 2 * list->n_slots : 64;
  larger.slots = mem_alloc(larger.n_slots, sizeof *larger.slots, "a line", err);
  if (!larger.slots) return STATUS_FAILED;
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i].group == 0)
      *find_slot(&larger, list->items[i].text, list->items[i].text_size) = (uint32_t)i + 1;
  free(list->slots);
  *list = larger;
  return STATUS_OK;
}

static Status append_proxy(ProxyList *list, const Buffer *text, const Buffer *shown, int group, Error *err) {
  void *items = list->items;
  TRY(mem_grow(&items, &list->capacity, list->count + 1, sizeof *list->items, "a line", err));
  list->items = items;
  Proxy proxy = {.text_size = text->size, .shown_size = shown->size, .group = group};
  proxy.text = copy_bytes(text->data, text->size, err);
  proxy.shown = proxy.text ? copy_bytes(shown->data, shown->size, err) : NULL;
  if (!proxy.shown) {
    free(proxy.text);
    return STATUS_FAILED;
  }
  list->items[list->count++] = proxy;
  return STATUS_OK;
}

/* A proxy of 1 or 2 columns for the text, except for labels the one that exists already. *cell is 0 if all
 * proxies are in use. */
static Status take_proxy(Cells *cells, int width, const Buffer *text, const Buffer *shown, int group,
                         wchar_t *cell, Error *err) {
  ProxyList *list = width == 2 ? &cells->wide : &cells->narrow;
  const size_t first = width == 2 ? WIDE_FIRST : NARROW_FIRST, most = width == 2 ? WIDE_COUNT : NARROW_COUNT;
  *cell = 0;
  TRY(grow_slots(list, err));
  uint32_t *slot = group ? NULL : find_slot(list, text->data, text->size);
  size_t index = slot && *slot ? *slot - 1 : list->count;
  if (index == most) return STATUS_OK;
  if (index == list->count) {
    TRY(append_proxy(list, text, shown, group, err));
    if (slot) *slot = (uint32_t)list->count;
  }
  *cell = (wchar_t)(first + index);
  return STATUS_OK;
}

static Status append_code(Buffer *out, uint32_t code, Error *err) {
  char bytes[4];
  return buffer_append(out, bytes, (size_t)utf8_encode(code, bytes), err);
}

/* Appends the text of a cell, or what is shown for it. */
static Status append_cell(const Cells *cells, wchar_t cell, bool shown, Buffer *out, Error *err) {
  const Proxy *proxy = proxy_of(cells, (uint32_t)cell);
  if (!proxy) return append_code(out, (uint32_t)cell, err);
  return shown ? buffer_append(out, proxy->shown, proxy->shown_size, err)
               : buffer_append(out, proxy->text, proxy->text_size, err);
}

bool cells_is_joined(uint32_t code) {
  return code != 0 && wcwidth((wchar_t)code) == 0 && !steers_terminal(code);
}

int cells_group(const Cells *cells, wchar_t cell) {
  const Proxy *proxy = proxy_of(cells, (uint32_t)cell);
  return proxy ? proxy->group : 0;
}

/* Joins `code`, which has no width, with the cell `before` (0: without a base). */
static Status join(Cells *cells, wchar_t before, uint32_t code, wchar_t *cell, Error *err) {
  Buffer text = {0}, shown = {0};
  Status status = STATUS_OK;
  if (before) {
    status = append_cell(cells, before, false, &text, err);
    if (status == STATUS_OK) status = append_cell(cells, before, true, &shown, err);
  } else {
    status = append_code(&shown, DOTTED_CIRCLE, err);
  }
  if (status == STATUS_OK) status = append_code(&text, code, err);
  if (status == STATUS_OK) status = append_code(&shown, code, err);
  if (status == STATUS_OK)
    status = take_proxy(cells, before ? wcwidth(before) : 1, &text, &shown, 0, cell, err);
  buffer_release(&text);
  buffer_release(&shown);
  return status;
}

static bool can_carry(const Cells *cells, wchar_t cell) {
  const Proxy *proxy = proxy_of(cells, (uint32_t)cell);
  int width = wcwidth(cell);
  if (proxy && (proxy->group || proxy->text_size >= JOINED_BYTES)) return false;
  return width == 1 || width == 2;
}

Status cells_append(Cells *cells, uint32_t code, CellString *line, Error *err) {
  wchar_t cell = 0;
  if (cells_is_joined(code)) {
    bool carried = line->size && can_carry(cells, line->data[line->size - 1]);
    TRY(join(cells, carried ? line->data[line->size - 1] : 0, code, &cell, err));
    if (cell && carried) {
      line->data[line->size - 1] = cell;
      return STATUS_OK;
    }
  } else if (in_range(code, NARROW_FIRST, NARROW_COUNT) || in_range(code, WIDE_FIRST, WIDE_COUNT)) {
    Buffer text = {0};
    Status status = append_code(&text, code, err);
    if (status == STATUS_OK)
      status = take_proxy(cells, in_range(code, WIDE_FIRST, WIDE_COUNT) ? 2 : 1, &text, &text, 0, &cell, err);
    buffer_release(&text);
    TRY(status);
    if (!cell) cell = 0xFFFD; /* tens of thousands of different ones in one chat */
  }
  return cell_string_append(line, cell ? cell : code ? (wchar_t)code : 0xFFFD, err);
}

/* --- text */

Status cells_of_text(Cells *cells, const char *text, size_t size, CellString *out, Error *err) {
  for (size_t at = 0; at < size;) {
    uint32_t code = 0xFFFD;
    int length = utf8_decode(text + at, size - at, &code);
    at += length > 0 ? (size_t)length : 1;
    TRY(cells_append(cells, length > 0 ? code : 0xFFFD, out, err));
  }
  return STATUS_OK;
}

Status cells_of_block(Cells *cells, const char *text, size_t size, const char *label, CellString *out,
                      Error *err) {
  int group = ++cells->n_groups;
  for (const char *at = label; *at; at++) {
    Buffer held = {.data = (char *)(at == label ? text : ""), .size = at == label ? size : 0};
    Buffer shown = {.data = (char *)at, .size = 1};
    wchar_t cell;
    TRY(take_proxy(cells, 1, &held, &shown, group, &cell, err));
    if (!cell)
      return error_set(err, STATUS_FAILED, "too many different characters and pasted texts in one chat");
    TRY(cell_string_append(out, cell, err));
  }
  return STATUS_OK;
}

Status cells_text(const Cells *cells, const wchar_t *line, size_t n, Buffer *out, Error *err) {
  for (size_t i = 0; i < n; i++) TRY(append_cell(cells, line[i], false, out, err));
  return STATUS_OK;
}

/* --- on the screen */

/* Emoji that are newer than the C library: terminals give them two columns. */
static bool is_new_picture(wchar_t cell) {
  return cell >= 0x1F000 && cell < 0x1FC00;
}

/* A terminal would show nothing for it, or obey it: it is shown as its number. */
static bool is_unseen(wchar_t cell) {
  return steers_terminal((uint32_t)cell) || (wcwidth(cell) < 0 && !is_new_picture(cell));
}

int cells_width(wchar_t cell, int column) {
  if (cell == L'\n') return 0;
  if (cell == L'\t') return 8 - column % 8;
  if (cell < 0x20 || cell == 0x7F) return 2;
  if (is_unseen(cell)) return snprintf(NULL, 0, "<U+%04X>", (unsigned)cell);
  int width = wcwidth(cell);
  return width < 0 ? 2 : width;
}

Status cells_show(const Cells *cells, wchar_t cell, int column, Buffer *out, Error *err) {
  if (cell == L'\n') return STATUS_OK;
  if (cell == L'\t') return buffer_printf(out, err, "%*s", cells_width(cell, column), "");
  if (cell < 0x20 || cell == 0x7F) return buffer_printf(out, err, "^%c", (char)(cell ^ 0x40));
  if (is_unseen(cell)) return buffer_printf(out, err, "<U+%04X>", (unsigned)cell);
  return append_cell(cells, cell, true, out, err);
}
