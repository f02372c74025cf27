/* bench_table.c - see bench_table.h. */
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
  case FORM_TABLE: break; /* a table's head is written with the first row */
  case FORM_MARKDOWN: TRY(put_markdown_head(table, err)); break;
  case FORM_CSV: TRY(put_csv_head(table, err)); break;
  case FORM_JSON: TRY(put(table, "[\n", err)); break;
  }
  return flush(table, err);
}

static Status begin_cell(Table *table, bool *shown, Error *err) {
  const Column *column = &table->columns[table->next++];
  const bool for_people = table->form == FORM_TABLE || table->form == FORM_MARKDOWN;
  *shown = for_people ? column->title != NULL : column->key != NULL;
  table->cell = table->out.size;
  if (!*shown) return STATUS_OK;
  bool first = table->n_shown++ == 0;
  switch (table->form) {
  case FORM_TABLE: return STATUS_OK;
  case FORM_MARKDOWN: return put(table, "| ", err);
  case FORM_CSV: return put(table, first ? "" : ",", err);
  case FORM_JSON: break;
  }
  if (first) TRY(put(table, table->n_rows ? ",\n  {" : "  {", err));
  return buffer_printf(&table->out, err, "%s\"%s\": ", first ? "" : ", ", column->key);
}

/* The width of a text in columns: one for each character. */
static int width_of(const char *text, size_t size) {
  int width = 0;
  for (size_t i = 0; i < size; i++) width += ((unsigned char)text[i] & 0xC0) != 0x80;
  return width;
}

/* Pads text[0..size) to the column's width. */
static Status put_padded(Buffer *out, const Column *column, const char *text, size_t size, Error *err) {
  const int padding = column->width - width_of(text, size), blanks = padding > 0 ? padding : 0;
  if (column->right) TRY(buffer_printf(out, err, "%*s", blanks, ""));
  TRY(buffer_append(out, text, size, err));
  return column->right ? STATUS_OK : buffer_printf(out, err, "%*s", blanks, "");
}

/* Moves the cell's text from the end of `out` to its column or to `common`, or drops it. */
static Status end_table_cell(Table *table, Error *err) {
  const Column *column = &table->columns[table->next - 1];
  OWNED(buffer_release) Buffer text = {0};
  Buffer *out = &table->out;
  const size_t size = out->size - table->cell;
  if (size) TRY(buffer_append(&text, out->data + table->cell, size, err));
  out->size = table->cell;
  if (column->width > 0) {
    TRY(put_padded(out, column, text.data ? text.data : "", size, err));
    return buffer_append(out, "  ", 2, err);
  }
  if (column->width < 0 || table->n_rows > 0 || size == 0) return STATUS_OK;
  return buffer_printf(&table->common, err, "%-16s%.*s\n", column->title, (int)size, text.data);
}

static Status end_cell(Table *table, Error *err) {
  if (table->form == FORM_TABLE) return end_table_cell(table, err);
  return table->form == FORM_MARKDOWN ? put(table, " ", err) : STATUS_OK;
}

static void drop_blanks(Buffer *line) {
  while (line->size && line->data[line->size - 1] == ' ') line->size--;
}

/* Writes the cells that are alike in all rows, and the titles. */
static Status write_table_head(Table *table, Error *err) {
  Buffer *head = &table->common;
  if (head->size) TRY(buffer_append(head, "\n", 1, err));
  for (size_t i = 0; i < table->n_columns; i++) {
    const Column *column = &table->columns[i];
    if (!column->title || column->width <= 0) continue;
    TRY(put_padded(head, column, column->title, strlen(column->title), err));
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
static Status put_line_text(Table *table, const char *text, Error *err) {
  for (; *text; text++) {
    if (*text == '|' && table->form == FORM_MARKDOWN) TRY(put(table, "\\", err));
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
  case FORM_TABLE:
  case FORM_MARKDOWN: TRY(put_line_text(table, text, err)); break;
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
  else if (table->form == FORM_MARKDOWN || table->form == FORM_TABLE)
    TRY(buffer_printf(&table->out, err, "%.*f", decimals, value));
  else
    TRY(buffer_printf(&table->out, err, "%.9g", value));
  return end_cell(table, err);
}

Status table_mark(Table *table, bool value, Error *err) {
  bool shown;
  TRY(begin_cell(table, &shown, err));
  if (!shown) return STATUS_OK;
  const bool for_people = table->form == FORM_TABLE || table->form == FORM_MARKDOWN;
  TRY(put(table, for_people ? value ? "*" : " " : value ? "true" : "false", err));
  return end_cell(table, err);
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
