/* bench_table.h - prints rows as they come: in columns for a terminal, as a Markdown table, CSV, or a JSON
 * list of objects. In FORM_TABLE a column of width 0, whose cells are alike in all rows, is shown once above.
 *
 *   static const Column columns[] = {{"test", "test", false, 12}, {"avg_ts", NULL, true, 0}};
 *   table_begin(&table, form, columns, 2, err);
 *   table_text(&table, "pp512", err); table_number(&table, 9081.25, 2, err); table_end_row(&table, err);
 *   table_end(&table, err);
 *
 * The caller passes every cell of every column, in order; cells that the form does not show are dropped. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef enum { FORM_TABLE, FORM_MARKDOWN, FORM_CSV, FORM_JSON } TableForm;
/* The form that is printed where none is asked for: a table on a terminal, else Markdown. */
TableForm table_usual_form(void);

typedef struct {
  const char *key;   /* CSV heading and JSON key; NULL: Markdown and tables only */
  const char *title; /* Markdown's and a table's heading; NULL: CSV and JSON only */
  bool right;        /* Markdown and tables: aligned to the right */
  int width; /* characters in a table; 0: all rows have the same cell, shown once above; -1: not shown */
} Column;

/* Zero-initialise it. */
typedef struct {
  TableForm form;
  const Column *columns;  /* [n_columns] */
  size_t n_columns, next; /* next: index of the next cell */
  int n_rows, n_shown;    /* complete rows; written cells of the current row */
  Buffer common;          /* text above the first row of a table: cells that are alike in all rows */
  Buffer out;
} Table;

Status table_begin(Table *table, TableForm form, const Column *columns, size_t n_columns, Error *err);

Status table_text(Table *table, const char *text, Error *err);
Status table_integer(Table *table, long long value, Error *err);
/* Markdown and tables use `decimals`, CSV and JSON nine digits. Infinities and NaN give an empty cell, in
 * JSON null. */
Status table_number(Table *table, double value, int decimals, Error *err);
Status table_mark(Table *table, bool value, Error *err); /* "*" or blank in Markdown and tables */

Status table_end_row(Table *table, Error *err); /* writes the row to standard output */
Status table_end(Table *table, Error *err);
void table_release(Table *table);
