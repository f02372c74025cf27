/* test_bench_table.c - the three forms of a table, byte for byte. */
#include <math.h>
#include <unistd.h>

#include "commands/measure/bench_table.h"
#include "test/tests.h"

static const Column columns[] = {
    {NULL, "people", false, 0}, {"name", "Name", false, 8}, {"count", NULL, true, 0},
    {"speed", "t/s", true, 9},  {"best", "best", false, 5}, {"last", NULL, true, 0},
};

static Status put_row(Table *table, const char *name, long long count, double speed, bool best) {
  TRY(table_text(table, "shown", NULL));
  TRY(table_text(table, name, NULL));
  TRY(table_integer(table, count, NULL));
  TRY(table_number(table, speed, 2, NULL));
  TRY(table_mark(table, best, NULL));
  TRY(table_number(table, speed, 0, NULL));
  return table_end_row(table, NULL);
}

/* Writes the first n_rows of some rows to standard output. */
static Status write_table(TableForm form, int n_rows) {
  Table table = {0};
  TRY(table_begin(&table, form, columns, sizeof columns / sizeof *columns, NULL));
  if (n_rows > 0) TRY(put_row(&table, "a|b\n\"c\"\xc3\xa9\x1f ", -7, 1234.5678912345, true));
  if (n_rows > 1) TRY(put_row(&table, "", 9007199254740993, NAN, false));
  if (n_rows > 2) TRY(put_row(&table, "x", 0, INFINITY, true));
  TRY(table_end(&table, NULL));
  table_release(&table);
  return STATUS_OK;
}

static void assert_written(TableForm form, int n_rows, const char *expected) {
  char got[2048];
  FILE *file = tmpfile();
  assert_non_null(file);
  fflush(stdout);
  const int saved = dup(STDOUT_FILENO);
  dup2(fileno(file), STDOUT_FILENO);
  Status status = write_table(form, n_rows);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  assert_int_equal(status, STATUS_OK);
  rewind(file);
  got[fread(got, 1, sizeof got - 1, file)] = 0;
  fclose(file);
  assert_string_equal(got, expected);
}

#define MARKDOWN_HEAD "| people | Name | t/s | best |\n| --- | --- | ---: | --- |\n"

TEST(people_get_a_markdown_table) {
  assert_written(FORM_MARKDOWN, 0, MARKDOWN_HEAD);
  assert_written(FORM_MARKDOWN, 3,
                 MARKDOWN_HEAD "| shown | a\\|b \"c\"\xc3\xa9   | 1234.57 | * |\n"
                               "| shown |  |  |   |\n"
                               "| shown | x |  | * |\n");
}

TEST(a_terminal_gets_columns) {
  assert_written(FORM_TABLE, 0, "");
  assert_written(FORM_TABLE, 3,
                 "people          shown\n\n"
                 "Name            t/s  best\n"
                 "a|b \"c\"\xc3\xa9      1234.57  *\n"
                 "\n"
                 "x                    *\n");
}

TEST(programs_get_csv) {
  assert_written(FORM_CSV, 0, "name,count,speed,best,last\n");
  assert_written(FORM_CSV, 3,
                 "name,count,speed,best,last\n"
                 "\"a|b\n\"\"c\"\"\xc3\xa9\x1f \",-7,1234.56789,true,1234.56789\n"
                 "\"\",9007199254740993,,false,\n"
                 "\"x\",0,,true,\n");
}

TEST(programs_get_json) {
  assert_written(FORM_JSON, 0, "[\n]\n");
  assert_written(FORM_JSON, 1,
                 "[\n  {\"name\": \"a|b\\n\\\"c\\\"\xc3\xa9\\u001f \", \"count\": -7, \"speed\": 1234.56789, "
                 "\"best\": true, \"last\": 1234.56789}\n]\n");
  assert_written(
      FORM_JSON, 3,
      "[\n  {\"name\": \"a|b\\n\\\"c\\\"\xc3\xa9\\u001f \", \"count\": -7, \"speed\": 1234.56789, "
      "\"best\": true, \"last\": 1234.56789},\n"
      "  {\"name\": \"\", \"count\": 9007199254740993, \"speed\": null, \"best\": false, \"last\": "
      "null},\n"
      "  {\"name\": \"x\", \"count\": 0, \"speed\": null, \"best\": true, \"last\": null}\n]\n");
}
