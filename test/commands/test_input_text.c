/* test_input_text.c - texts, lines and ids as people write them. */
#include <limits.h>
#include <unistd.h>

#include "commands/input_text.h"
#include "test/directory.h"
#include "test/tests.h"

TEST(ids_stand_between_blanks_commas_and_brackets) {
  static const struct {
    const char *text;
    int n, ids[4];
    const char *error; /* NULL: taken */
  } cases[] = {
      {"", 0, {0}, NULL},
      {" \t\r\n\v\f,[]", 0, {0}, NULL},
      {"0", 1, {0}, NULL},
      {"007", 1, {7}, NULL},
      {"1 2\n3", 3, {1, 2, 3}, NULL},
      {"[1,2, 3]\n", 3, {1, 2, 3}, NULL},
      {"2147483647", 1, {INT_MAX}, NULL},
      {"2147483648", 0, {0}, "ids: token 0, at byte 0, is \"2147483648\", expected an id (a number)"},
      {"1 99999999999999999999 2",
       0,
       {0},
       "ids: token 1, at byte 2, is \"9999999999999999\", expected an id (a number)"},
      {"1 -2", 0, {0}, "ids: token 1, at byte 2, is \"-2\", expected an id (a number)"},
      {"1, 2x,3", 0, {0}, "ids: token 1, at byte 3, is \"2x\", expected an id (a number)"},
      {"+1", 0, {0}, "ids: token 0, at byte 0, is \"+1\", expected an id (a number)"},
      {"\xef\xbb\xbf[1]", 1, {1}, NULL},
      {"1 \xef\xbb\xbf", 0, {0}, "ids: token 1, at byte 2, is \"\xef\xbb\xbf\", expected an id (a number)"},
      {"1.5", 0, {0}, "ids: token 0, at byte 0, is \"1.5\", expected an id (a number)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Buffer text = {.data = (char *)cases[i].text, .size = strlen(cases[i].text)};
    IdList ids = {0};
    Error err = {{0}};
    assert_int_equal(ids_parse("ids", &text, &ids, &err), cases[i].error ? STATUS_USAGE : STATUS_OK);
    assert_string_equal(err.text, cases[i].error ? cases[i].error : "");
    if (!cases[i].error) assert_int_equal(ids.count, cases[i].n);
    for (int k = 0; k < cases[i].n; k++) assert_int_equal(ids.ids[k], cases[i].ids[k]);
    id_list_release(&ids);
  }
}

TEST(only_the_newline_at_the_end_is_dropped) {
  static const char *const cases[][2] = {{"", ""},           {"\n", ""},     {"a\n", "a"}, {"a\n\n", "a\n"},
                                         {"a\r\n", "a"},     {"a\r", "a\r"}, {"\r\n", ""}, {"a\n\r", "a\n\r"},
                                         {"a\r\r\n", "a\r"}, {"\na", "\na"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char bytes[8];
    strcpy(bytes, cases[i][0]);
    Buffer text = {.data = bytes, .size = strlen(bytes)};
    text_drop_newline(&text);
    assert_int_equal(text.size, strlen(cases[i][1]));
    assert_memory_equal(text.data, cases[i][1], text.size);
  }
}

static Status answer(void *user, const char *where, const Buffer *text, Buffer *out, Error *err) {
  const char *path = user, *bytes = text->data ? text->data : "";
  assert_memory_equal(where, path, strlen(path));
  if (*bytes == '!') return error_set(err, STATUS_USAGE, "not %.*s", (int)text->size, bytes);
  return buffer_printf(out, err, "%s=%.*s;", strrchr(where, ' ') + 1, (int)text->size, bytes);
}

/* Runs lines_answer() over the file; returns what it wrote to standard output. */
static const char *answers(char *path, Status *status, Error *err) {
  static char written[900];
  FILE *file = tmpfile();
  fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  assert_true(file && before >= 0);
  dup2(fileno(file), STDOUT_FILENO);
  *status = lines_answer(path, answer, path, "failed", err);
  dup2(before, STDOUT_FILENO);
  close(before);
  rewind(file);
  written[fread(written, 1, sizeof written - 1, file)] = 0;
  fclose(file);
  return written;
}

TEST(each_line_is_answered_and_those_that_failed_are_counted) {
  static const struct {
    const char *lines, *written, *error; /* %s: the file */
    Status status;
  } cases[] = {
      {"", "", "", STATUS_OK},
      {"a\nb", "1=a;2=b;", "", STATUS_OK},
      {"\xef\xbb\xbf", "1=;", "", STATUS_OK},
      {"\xef\xbb\xbf"
       "a\n\xef\xbb\xbf"
       "b",
       "1=a;2=\xef\xbb\xbf"
       "b;",
       "", STATUS_OK},
      {"\n\n", "1=;2=;", "", STATUS_OK},
      {"a\n!\n!b\nc\n", "1=a;{\"error\": \"not !\"}\n{\"error\": \"not !b\"}\n4=c;",
       "%s: 2 of 4 lines failed, line 2 first", STATUS_FAILED},
      {"!\n", "{\"error\": \"not !\"}\n", "%s: 1 of 1 lines failed, line 1 first", STATUS_FAILED},
      {"%PDF-1.4\na", "", "%s is a PDF, expected text", STATUS_USAGE},
  };
  char *path = in_directory(own_directory, "lines");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err = {{0}};
    Status status;
    char want[900];
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(cases[i].lines, file);
    fclose(file);
    assert_string_equal(answers(path, &status, &err), cases[i].written);
    assert_int_equal(status, cases[i].status);
    const char *place = strstr(cases[i].error, "%s");
    snprintf(want, sizeof want, "%s%s", place ? path : "", place ? place + 2 : cases[i].error);
    assert_string_equal(err.text, want);
  }
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
