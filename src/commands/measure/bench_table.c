/* bench_table.c - see bench_table.h. Called by: bench.c, bench_kernels.c. */
#include "commands/measure/bench_table.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/output.h"

static Status flush(Table *table, Error *err) {
  Status status = output_write(table->out.data, table->out.size, err);
  table->out.size = 0;
  return status;
}

static Status put(Table *table, const char *text, Error *err) {
  return buffer_append_string(&table->out, text, err);
}

static Status put_markdown_head(Table *table, Error *err) {
  for (size_t i = 0; i < table->n_columns; i++)
    if (table->columns[i].title) TRY(buffer_printf(&table->out, err, "| %s ", table->columns[i].title));
  TRY(put(table, "|\n", err));
  for (size_t i = 0; i < table->n_columns; i++)
    if (table->columns[i].title) TRY(put(table, table->columns[i].right ? "| ---: " : "| --- ", err));
  return put(table, "|\n", err);
}

static Status put_csv_head(Table *table, Error *err) {
  const char *between = "";
  for (size_t i = 0; i < table->n_columns; i++) {
    if (!table->columns[i].key) continue;
    TRY(buffer_printf(&table->out, err, "%s%s", between, table->columns[i].key));
    between = ",";
  }
  return put(table, "\n", err);
}

Status table_begin(Table *table, TableForm form, const Column *columns, size_t n_columns, Error *err) {
  table->form = form;
  table->columns = columns;
  table->n_columns = n_columns;
  switch (form) {
  case FORM_MARKDOWN: TRY(put_markdown_head(table, err)); break;
  case FORM_CSV: TRY(put_csv_head(table, err)); break;
  case FORM_JSON: TRY(put(table, "[\n", err)); break;
  }
  return flush(table, err);
}

static Status begin_cell(Table *table, bool *shown, Error *err) {
  const Column *column = &table->columns[table->next++];
  *shown = table->form == FORM_MARKDOWN ? column->title != NULL : column->key != NULL;
  if (!*shown) return STATUS_OK;
  bool first = table->n_shown++ == 0;
  switch (table->form) {
  case FORM_MARKDOWN: return put(table, "| ", err);
  case FORM_CSV: return put(table, first ? "" : ",", err);
  case FORM_JSON: break;
  }
  if (first) TRY(put(table, table->n_rows ? ",\n  {" : "  {", err));
  return buffer_printf(&table->out, err, "%s\"%s\": ", first ? "" : ", ", column->key);
}

static Status end_cell(Table *table, Error *err) {
  return table->form == FORM_MARKDOWN ? put(table, " ", err) : STATUS_OK;
}

/* Escapes bars, which would end the cell, and replaces line ends, which would end the row. */
static Status put_markdown_text(Table *table, const char *text, Error *err) {
  for (; *text; text++) {
    if (*text == '|') TRY(put(table, "\\", err));
    TRY(buffer_append(&table->out, (unsigned char)*text < ' ' ? " " : text, 1, err));
  }
  return STATUS_OK;
}

static Status put_csv_text(Table *table, const char *text, Error *err) {
  TRY(put(table, "\"", err));
  for (; *text; text++)
    TRY(buffer_append(&table->out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1, err));
  return put(table, "\"", err);
}

Status table_text(Table *table, const char *text, Error *err) {
  bool shown;
  TRY(begin_cell(table, &shown, err));
  if (!shown) return STATUS_OK;
  switch (table->form) {
  case FORM_MARKDOWN: TRY(put_markdown_text(table, text, err)); break;
  case FORM_CSV: TRY(put_csv_text(table, text, err)); break;
  case FORM_JSON: TRY(json_write_string(&table->out, text, strlen(text), err)); break;
  }
  return end_cell(table, err);
}

Status table_integer(Table *table, long long value, Error *err) {
  bool shown;
  TRY(begin_cell(table, &shown, err));
  if (!shown) return STATUS_OK;
  TRY(buffer_printf(&table->out, err, "%lld", value));
  return end_cell(table, err);
}

Status table_number(Table *table, double value, int decimals, Error *err) {
  bool shown;
  TRY(begin_cell(table, &shown, err));
  if (!shown) return STATUS_OK;
  if (!isfinite(value))
    TRY(put(table, table->form == FORM_JSON ? "null" : "", err));
  else if (table->form == FORM_MARKDOWN)
    TRY(buffer_printf(&table->out, err, "%.*f", decimals, value));
  else
    TRY(buffer_printf(&table->out, err, "%.9g", value));
  return end_cell(table, err);
}

Status table_mark(Table *table, bool value, Error *err) {
  bool shown;
  TRY(begin_cell(table, &shown, err));
  if (!shown) return STATUS_OK;
  TRY(put(table, table->form == FORM_MARKDOWN ? value ? "*" : " " : value ? "true" : "false", err));
  return end_cell(table, err);
}

Status table_end_row(Table *table, Error *err) {
  static const char *const ends[] = {[FORM_MARKDOWN] = "|\n", [FORM_CSV] = "\n", [FORM_JSON] = "}"};
  table->next = 0;
  table->n_shown = 0;
  table->n_rows++;
  TRY(put(table, ends[table->form], err));
  return flush(table, err);
}

Status table_end(Table *table, Error *err) {
  if (table->form != FORM_JSON) return STATUS_OK;
  TRY(put(table, table->n_rows ? "\n]\n" : "]\n", err));
  return flush(table, err);
}

void table_release(Table *table) {
  buffer_release(&table->out);
}
