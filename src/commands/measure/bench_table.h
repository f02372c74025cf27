/* bench_table.h - the same rows as a Markdown table, as CSV, or as a JSON list of objects, as they come.
 *
 *   static const Column columns[] = {{"test", "test", false}, {"avg_ts", NULL, true}};
 *   table_begin(&table, form, columns, 2, err);
 *   table_text(&table, "pp512", err); table_number(&table, 9081.25, 2, err); table_end_row(&table, err);
 *   table_end(&table, err);
 *
 * Every cell of every column is handed over, in the columns' order; what a form does not show is dropped. */
#ifndef AUK_COMMANDS_MEASURE_BENCH_TABLE_H
#define AUK_COMMANDS_MEASURE_BENCH_TABLE_H

#include <stdbool.h>

#include "base/buffer.h"

typedef enum { FORM_MARKDOWN, FORM_CSV, FORM_JSON } TableForm;

typedef struct {
  const char *key;   /* CSV's head, JSON's member; NULL: only for people */
  const char *title; /* Markdown's head; NULL: only for programs */
  bool right;        /* Markdown: numbers stand to the right */
} Column;

/* Zero-initialise it. */
typedef struct {
  TableForm form;
  const Column *columns;  /* [n_columns] */
  size_t n_columns, next; /* next: the cell to come */
  int n_rows, n_shown;    /* rows that ended; cells of this one that were written */
  Buffer out;
} Table;

Status table_begin(Table *table, TableForm form, const Column *columns, size_t n_columns, Error *err);

Status table_text(Table *table, const char *text, Error *err);
Status table_integer(Table *table, long long value, Error *err);
/* `decimals` are for people, programs get nine digits; what is not finite is nothing, null in JSON. */
Status table_number(Table *table, double value, int decimals, Error *err);
Status table_mark(Table *table, bool value, Error *err); /* "*" for people */

Status table_end_row(Table *table, Error *err); /* writes the row to standard output */
Status table_end(Table *table, Error *err);
void table_release(Table *table);

#endif
