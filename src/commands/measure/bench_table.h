/* bench_table.h - prints rows as they come, as a Markdown table, CSV, or a JSON list of objects.
 *
 *   static const Column columns[] = {{"test", "test", false}, {"avg_ts", NULL, true}};
 *   table_begin(&table, form, columns, 2, err);
 *   table_text(&table, "pp512", err); table_number(&table, 9081.25, 2, err); table_end_row(&table, err);
 *   table_end(&table, err);
 *
 * The caller passes every cell of every column, in order; cells that the form does not show are dropped. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef enum { FORM_MARKDOWN, FORM_CSV, FORM_JSON } TableForm;

typedef struct {
  const char *key;   /* CSV heading and JSON key; NULL: Markdown only */
  const char *title; /* Markdown heading; NULL: CSV and JSON only */
  bool right;        /* Markdown: aligned to the right */
} Column;

/* Zero-initialise it. */
typedef struct {
  TableForm form;
  const Column *columns;  /* [n_columns] */
  size_t n_columns, next; /* next: index of the next cell */
  int n_rows, n_shown;    /* complete rows; written cells of the current one */
  Buffer out;
} Table;

Status table_begin(Table *table, TableForm form, const Column *columns, size_t n_columns, Error *err);

Status table_text(Table *table, const char *text, Error *err);
Status table_integer(Table *table, long long value, Error *err);
/* Markdown uses `decimals`, CSV and JSON nine digits. Infinities and NaN give an empty cell, null in JSON. */
Status table_number(Table *table, double value, int decimals, Error *err);
Status table_mark(Table *table, bool value, Error *err); /* "*" in Markdown */

Status table_end_row(Table *table, Error *err); /* writes the row to standard output */
Status table_end(Table *table, Error *err);
void table_release(Table *table);
