/* bench_table.c - see bench_table.h. */
#include "commands/measure/bench_table.h"

#include <math.h>
#include <stdio.h>
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
  case FORM_TABLE: break; /* a table's head is written with the first row */
  case FORM_MARKDOWN: TRY(put_markdown_head(table, err)); break;
  case FORM_CSV: TRY(put_csv_head(table, err)); break;
  case FORM_JSON: TRY(put(table, "[\n", err)); break;
  }
  return flush(table, err);
}

/* The width of a text in columns: one for each character. */
static int width_of(const char *text) {
  int width = 0;
  for (; *text; text++) width += ((unsigned char)*text & 0xC0) != 0x80;
  return width;
}

/* Pads the text to the column's width. */
static Status put_padded(Buffer *out, const Column *column, const char *text, Error *err) {
  const int padding = column->width - width_of(text), blanks = padding > 0 ? padding : 0;
  if (column->right) TRY(buffer_printf(out, err, "%*s", blanks, ""));
  TRY(buffer_append_string(out, text, err));
  return column->right ? STATUS_OK : buffer_printf(out, err, "%*s", blanks, "");
}

/* Puts the text in its column or in `common`, or drops it. */
static Status put_table_cell(Table *table, const Column *column, const char *text, Error *err) {
  if (column->width > 0) {
    TRY(put_padded(&table->out, column, text, err));
    return put(table, "  ", err);
  }
  if (column->width < 0 || table->n_rows > 0 || !*text) return STATUS_OK;
  return buffer_printf(&table->common, err, "%-16s%s\n", column->title, text);
}

static bool is_for_people(const Table *table) {
  return table->form == FORM_TABLE || table->form == FORM_MARKDOWN;
}

/* Puts the next cell. `text` is already written as table->form requires. */
static Status put_cell(Table *table, const char *text, Error *err) {
  const Column *column = &table->columns[table->next++];
  if (!(is_for_people(table) ? column->title : column->key)) return STATUS_OK;
  const bool first = table->n_shown++ == 0;
  switch (table->form) {
  case FORM_TABLE: return put_table_cell(table, column, text, err);
  case FORM_MARKDOWN: return buffer_printf(&table->out, err, "| %s ", text);
  case FORM_CSV: return buffer_printf(&table->out, err, "%s%s", first ? "" : ",", text);
  case FORM_JSON: break;
  }
  if (first) TRY(put(table, table->n_rows ? ",\n  {" : "  {", err));
  return json_put_raw((JsonWriter){&table->out, err}, column->key, text);
}

static void drop_blanks(Buffer *line) {
  while (line->size && line->data[line->size - 1] == ' ') line->size--;
}

/* Writes table->common (bench_table.h) and the titles, before the first row. */
static Status write_table_head(Table *table, Error *err) {
  Buffer *head = &table->common;
  if (head->size) TRY(buffer_append(head, "\n", 1, err));
  for (size_t i = 0; i < table->n_columns; i++) {
    const Column *column = &table->columns[i];
    if (!column->title || column->width <= 0) continue;
    TRY(put_padded(head, column, column->title, err));
    TRY(buffer_append(head, "  ", 2, err));
  }
  drop_blanks(head);
  TRY(buffer_append(head, "\n", 1, err));
  return output_write(head->data, head->size, err);
}

TableForm table_usual_form(void) {
  return output_is_terminal() ? FORM_TABLE : FORM_MARKDOWN;
}

/* Replaces control characters (a newline would end the row); in Markdown escapes bars, which end cells. */
static Status append_line_text(Buffer *out, TableForm form, const char *text, Error *err) {
  for (; *text; text++) {
    if (*text == '|' && form == FORM_MARKDOWN) TRY(buffer_append(out, "\\", 1, err));
    TRY(buffer_append(out, (unsigned char)*text < ' ' ? " " : text, 1, err));
  }
  return STATUS_OK;
}

static Status append_csv_text(Buffer *out, const char *text, Error *err) {
  TRY(buffer_append(out, "\"", 1, err));
  for (; *text; text++) TRY(buffer_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1, err));
  return buffer_append(out, "\"", 1, err);
}

Status table_text(Table *table, const char *text, Error *err) {
  OWNED(buffer_release) Buffer cell = {0};
  switch (table->form) {
  case FORM_TABLE:
  case FORM_MARKDOWN: TRY(append_line_text(&cell, table->form, text, err)); break;
  case FORM_CSV: TRY(append_csv_text(&cell, text, err)); break;
  case FORM_JSON: TRY(json_write_string(&cell, text, strlen(text), err)); break;
  }
  TRY(buffer_append(&cell, "", 1, err));
  return put_cell(table, cell.data, err);
}

Status table_integer(Table *table, long long value, Error *err) {
  char cell[24];
  snprintf(cell, sizeof cell, "%lld", value);
  return put_cell(table, cell, err);
}

Status table_number(Table *table, double value, int decimals, Error *err) {
  char cell[400]; /* the largest double has 309 digits before its decimals */
  if (!isfinite(value)) return put_cell(table, table->form == FORM_JSON ? "null" : "", err);
  snprintf(cell, sizeof cell, is_for_people(table) ? "%.*f" : "%.*g", is_for_people(table) ? decimals : 9,
           value);
  return put_cell(table, cell, err);
}

Status table_mark(Table *table, bool value, Error *err) {
  if (is_for_people(table)) return put_cell(table, value ? "*" : " ", err);
  return put_cell(table, value ? "true" : "false", err);
}

Status table_end_row(Table *table, Error *err) {
  static const char *const ends[] = {
      [FORM_TABLE] = "\n", [FORM_MARKDOWN] = "|\n", [FORM_CSV] = "\n", [FORM_JSON] = "}"};
  if (table->form == FORM_TABLE) drop_blanks(&table->out);
  if (table->form == FORM_TABLE && table->n_rows == 0) TRY(write_table_head(table, err));
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
  buffer_release(&table->common);
  buffer_release(&table->out);
}
