/* cells.h - text as the cells of a line editor: one wide character for each code point, together with the
 * code points without width that follow it.
 *
 * libedit moves and deletes by wide characters. So a code point without width (a combining accent, a joiner)
 * is joined with the character before it, and one private code point, their proxy, represents both in the
 * editor's line. A long block of text is one proxy too, shown as a label ("[120 lines]"). A code point of the
 * proxies' range becomes a proxy, too. So cells_text() gives back every text without U+0000 unchanged, as
 * long as there are free proxies.
 *
 * PRECOND  setlocale() has set an LC_CTYPE that knows Unicode: cells_begin(). */
#pragma once

#include <stdbool.h>
#include <wchar.h>

#include "base/buffer.h"

typedef struct {
  wchar_t *data; /* [size], followed by a 0 unless NULL */
  size_t size, capacity;
} CellString;
Status cell_string_append(CellString *string, wchar_t cell, Error *err);
void cell_string_release(CellString *string);

typedef struct {
  char *text; /* [size] the represented text; NULL: a free slot */
  size_t size;
  int width;      /* columns */
  char label[40]; /* shown instead of the text; "": none */
} Proxy;

typedef struct {
  Proxy *slots; /* [PROXY_SLOTS] hash table by text, NULL before its first use; slot i is U+F0000 + i */
  size_t count;
} Cells; /* starts zeroed */

/* Sets LC_CTYPE to the environment's if that is UTF-8, else to C.UTF-8 or en_US.UTF-8. If the system has
 * neither, sets C and returns false. */
bool cells_begin(void);
void cells_release(Cells *cells);

/* Appends the cells of text[0..size), valid UTF-8. Control characters are unchanged; a U+0000 becomes U+FFFD,
 * since the editor's lines end at it. */
Status cells_of_text(Cells *cells, const char *text, size_t size, CellString *out, Error *err);
/* Appends one character: as a new cell, unless it has no width and the last cell can carry it. */
Status cells_append(Cells *cells, uint32_t code, CellString *line, Error *err);
/* Appends a cell, shown as `label` (ASCII), that represents text[0..size). */
Status cells_of_block(Cells *cells, const char *text, size_t size, const char *label, CellString *out,
                      Error *err);

/* Appends the text that line[0..n) represents. */
Status cells_text(const Cells *cells, const wchar_t *line, size_t n, Buffer *out, Error *err);

/* The columns of a cell that begins at `column`. A tab extends to the next multiple of 8. An ASCII control
 * character is shown as ^A; other characters that a terminal obeys or hides, as <U+12345>; a newline, as
 * nothing. */
int cells_width(const Cells *cells, wchar_t cell, int column);
/* Appends the bytes that show the cell on a terminal; nothing for a newline. */
Status cells_show(const Cells *cells, wchar_t cell, int column, Buffer *out, Error *err);

bool cells_is_joined(uint32_t code); /* it has no width, is not U+0000 and does not steer the terminal */
/* The columns that a terminal gives a character by itself; 0: the character joins the one before. PRECOND the
 * character is no control character */
int cells_columns(uint32_t code);
