/* test_chat_complete.c - what Tab puts in, and the files that a person names on a line. */
#include <unistd.h>

#include "commands/chat/chat_complete.h"
#include "commands/chat/user_path.h"
#include "test/directory.h"
#include "test/tests.h"

/* Asserts what is put in, and the list that is shown instead, its words joined by blanks. */
static void assert_completed(const char *line, const char *want, const char *want_list) {
  Buffer rest = {0}, list = {0};
  assert_int_equal(chat_complete(line, strlen(line), &rest, &list, NULL), STATUS_OK);
  for (size_t i = 0; i < list.size; i++)
    if (list.data[i] == 0) list.data[i] = i + 1 < list.size ? ' ' : 0;
  if (want_list && strcmp(list.size ? list.data : "", want_list) != 0)
    fail_msg("\"%s\" shows \"%s\", expected \"%s\"", line, list.size ? list.data : "", want_list);
  buffer_release(&list);
  if (rest.size != strlen(want) || (rest.size && memcmp(rest.data, want, rest.size) != 0))
    fail_msg("\"%s\" is completed by \"%.*s\", expected \"%s\"", line, (int)rest.size, rest.data, want);
  buffer_release(&rest);
}

static void assert_rest(const char *line, const char *want) {
  assert_completed(line, want, *want ? "" : NULL);
}

TEST(several_candidates_are_shown) {
  static const char *const cases[][2] = {
      {"/s", "save set stats system"},
      {"/", "clear edit exit help load read regen save set stats system tokens tool undo"},
      {"/re", "read regen"},
      {"/x", ""},
      {"/clear", ""},
      {"/set top-", "top-k top-p"},
      {"/set th", ""}, /* "ink" is put in */
      {"/set think", "think think-budget"},
      {"x", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_completed(cases[i][0], strcmp(cases[i][0], "/set th") == 0 ? "ink" : "", cases[i][1]);
}

TEST(commands_are_completed_to_where_they_differ) {
  static const char *const cases[][2] = {
      {"", ""},       {"/", ""},        {"/cl", "ear"},   {"/e", ""},        {"/ed", "it"},  {"/s", ""},
      {"/st", "ats"}, {"/sy", "stem "}, {"/se", "t "},    {"/re", ""},       {"/rea", "d "}, {"/reg", "en"},
      {"/h", "elp"},  {"/undo", ""},    {"/x", ""},       {"/clearer", ""},  {"clear", ""},  {" /cl", ""},
      {"/load", " "}, {"/CL", ""},      {"/clear x", ""}, {"/system B", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_rest(cases[i][0], cases[i][1]);
}

TEST(settings_are_completed_behind_their_command) {
  static const char *const cases[][2] = {
      {"/set te", "mp "},
      {"/set t", ""},
      {"/set top", "-"},
      {"/set top-k", " "},
      {"/set r", "epeat-penalty "},
      {"/set th", "ink"},
      {"/set think-", "budget "},
      {"/set s", ""},
      {"/set sh", "ow-thinking "},
      {"/set n", " "},
      {"/set temp 1", ""},
      {"/set temp ", ""},
      {"/set x", ""},
      {"/SET te", "mp "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_rest(cases[i][0], cases[i][1]);
}

static void make_file(const char *name) {
  FILE *file = fopen(in_directory(own_directory, name), "w");
  assert_non_null(file);
  assert_int_equal(fclose(file), 0);
}

TEST(files_are_completed_where_a_command_takes_one) {
  static const char *const names[] = {"a file.txt", "mail one",  "mail two", ".hidden",
                                      "\xc3\xa4h",  "\xc3\xb6l", "bad\xff"};
  static const char *const cases[][2] = {
      {"/read DIR/a", " file.txt"},
      {"/load DIR/a", " file.txt"},
      {"/save DIR/a", " file.txt"},
      {"/set DIR/a", ""},
      {"/system DIR/a", ""},
      {"/read DIR/m", "ail "},
      {"/read DIR/mail t", "wo"},
      {"/read DIR/fo", "lder/"},
      {"/read DIR/folder/", "inner"},
      {"/read DIR/.h", "idden"},
      {"/read DIR/b", ""},
      {"/read DIR/x", ""},
      {"/read DIR/letters/", ""}, /* nor half of one */
      {"/read DIR/\xc3", ""},     /* two characters begin with this byte: it completes neither */
      {"/read DIR/nothing/a", ""},
      {"/read ~/fo", "lder/"},
      {"/read a f", "ile.txt"},
      {"/READ DIR/a", " file.txt"},
      {"/read", " "},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_file(names[i]);
  assert_int_equal(mkdir(in_directory(own_directory, "folder"), 0700), 0);
  make_file("folder/inner");
  make_file("folder/.hidden");
  assert_int_equal(mkdir(in_directory(own_directory, "letters"), 0700), 0);
  make_file("letters/\xc3\xa4");
  make_file("letters/\xc3\xb6");
  setenv("HOME", own_directory, 1);
  char here[300];
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(chdir(own_directory), 0);
  assert_completed("/read ", "", "a file.txt folder/ letters/ mail one mail two \xc3\xa4h \xc3\xb6l");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[400];
    const char *place = strstr(cases[i][0], "DIR");
    snprintf(line, sizeof line, "%.*s%s%s", place ? (int)(place - cases[i][0]) : 0, cases[i][0],
             place ? own_directory : "", place ? place + 3 : cases[i][0]);
    assert_rest(line, cases[i][1]);
  }
  assert_int_equal(chdir(here), 0);
}

TEST(a_person_names_a_file_as_in_a_shell) {
  static const struct {
    const char *text, *path; /* NULL: refused */
  } cases[] = {
      {"a", "a"},
      {"a b", "a b"},
      {"~/a", "/at/home/a"},
      {"~/", "/at/home/"},
      {"~", "~"},
      {"~a", "~a"},
      {"a/~/b", "a/~/b"},
      {"'a b'", "a b"},
      {"\"a\"", "a"},
      {"'~/a'", "/at/home/a"},
      {"'a\"", "'a\""},
      {"'", "'"},
      {"''", "''"},
      {"'a", "'a"},
      {"a'", "a'"},
      {"", NULL},
      {"/", "/"},
  };
  setenv("HOME", "/at/home", 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *path = NULL;
    Status status = user_path(cases[i].text, strlen(cases[i].text), &path, NULL);
    assert_int_equal(status, cases[i].path ? STATUS_OK : STATUS_USAGE);
    if (cases[i].path) assert_string_equal(path, cases[i].path);
    free(path);
  }
  char *path = NULL;
  assert_int_equal(user_path("a\0b", 3, &path, NULL), STATUS_USAGE);
  unsetenv("HOME");
  assert_int_equal(user_path("~/a", 3, &path, NULL), STATUS_OK);
  assert_string_equal(path, "~/a");
  free(path);
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
