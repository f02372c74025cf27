/* cells.h - text as the cells a line editor moves over: one wide character each, also where a person sees one
 * character but UTF-8 has several.
 *
 * libedit moves and deletes by wide characters. So what has no width of its own (a combining accent, a
 * joiner) is put together with the character before it, and the whole stands in the editor's line as one
 * proxy: a code point of the same width that no text needs. A proxy's own code point, where a text does hold
 * it, is a proxy too: every text comes back as it was. A long block of text can stand as a label ("[120
 * lines]") of proxies, the first of which holds the text.
 *
 * PRECOND  setlocale() has set an LC_CTYPE that knows Unicode: cells_begin(). */
#ifndef AUK_TERMINAL_CELLS_H
#define AUK_TERMINAL_CELLS_H

#include <stdbool.h>
#include <wchar.h>

#include "base/buffer.h"

typedef struct {
  wchar_t *data; /* [size], followed by a 0 where anything was appended */
  size_t size, capacity;
} CellString;
Status cell_string_append(CellString *string, wchar_t cell, Error *err);
void cell_string_release(CellString *string);

typedef struct {
  char *text, *shown;           /* [text_size], [shown_size] what it stands for, what is written for it */
  size_t text_size, shown_size; /* bytes */
  int group;                    /* of a label's cells: their number from 1; else 0 */
} Proxy;

typedef struct {
  Proxy *items; /* [count] */
  size_t count, capacity;
  uint32_t *slots; /* [n_slots] by the text: one more than the item's number; 0: free */
  size_t n_slots;  /* a power of two; at most half are taken */
} ProxyList;

typedef struct {
  ProxyList narrow, wide; /* of one column, of two */
  int n_groups;
} Cells; /* starts zeroed */

/* Sets LC_CTYPE to the environment's where that is UTF-8, else to C.UTF-8: false where there is neither. */
bool cells_begin(void);
void cells_release(Cells *cells);

/* Appends the cells of text[0..size), valid UTF-8. Control characters but newline and tab are left as they
 * are; a U+0000 becomes U+FFFD, since the editor's lines end at it. */
Status cells_of_text(Cells *cells, const char *text, size_t size, CellString *out, Error *err);
/* One character behind `line`: its last cell grows where the character has no width, else it is a cell. */
Status cells_append(Cells *cells, uint32_t code, CellString *line, Error *err);
/* Appends a label that stands for text[0..size). */
Status cells_of_block(Cells *cells, const char *text, size_t size, const char *label, CellString *out,
                      Error *err);

/* Appends what line[0..n) stands for. */
Status cells_text(const Cells *cells, const wchar_t *line, size_t n, Buffer *out, Error *err);

/* The columns of a cell that begins at this one: a tab goes to the next eighth, a control character stands as
 * ^A, what the C library does not know as <U+12345>. A newline has none. */
int cells_width(wchar_t cell, int column);
/* Appends what a terminal is to be given for it; nothing for a newline. */
Status cells_show(const Cells *cells, wchar_t cell, int column, Buffer *out, Error *err);

bool cells_is_joined(uint32_t code);               /* it has no width of its own */
int cells_group(const Cells *cells, wchar_t cell); /* of a label: its number; else 0 */

#endif
