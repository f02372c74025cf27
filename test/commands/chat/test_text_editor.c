/* test_text_editor.c - a text in the person's own editor: which one, what comes back, which files stay. */
#include <signal.h>

#include <dirent.h>

#include "commands/chat/text_editor.h"
#include "test/directory.h"
#include "test/tests.h"

static int make_place(void **state) {
  make_own_directory(state);
  unsetenv("VISUAL");
  return setenv("TMPDIR", own_directory, 1);
}

static size_t count_files(void) {
  size_t n = 0;
  DIR *list = opendir(own_directory);
  for (struct dirent *entry; (entry = readdir(list));) n += entry->d_name[0] != '.';
  closedir(list);
  return n;
}

static Status edit(const char *editor, const char *before, Buffer *text, Error *err) {
  setenv("EDITOR", editor, 1);
  text->size = 0;
  assert_int_equal(buffer_append_string(text, before, NULL), STATUS_OK);
  Status status = text_edit(text, err);
  assert_int_equal(count_files(), 0); /* the file is gone whatever happened */
  return status;
}

TEST(what_the_editor_leaves_is_the_text) {
  static const struct {
    const char *editor, *before, *after; /* NULL: refused, and the text is as it was */
  } cases[] = {
      {"true", "one", "one"}, /* the newline that ends the file is none of the text's own */
      {"true", "one\n", "one\n"},
      {"true", "one\n\n", "one\n\n"},
      {"true", "", ""},
      {"sed -i s/one/two/", "one", "two"},
      {"printf 'a\\n\\n' >", "one", "a\n"},
      {"printf a >", "one", "a"},
      {"printf a >", "one\n", "a"},
      {"printf '' >", "one", ""},
      {"false", "one", NULL},
      {"exit 3; true", "one", NULL},
      {"kill -TERM $$; true", "one", NULL},
      {"/nonexistent/editor", "one", NULL},
      {"rm", "one", NULL},
      {"printf '\\377' >", "one", NULL},
  };
  Buffer text = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err = {{0}};
    const char *want = cases[i].after ? cases[i].after : cases[i].before;
    Status status = edit(cases[i].editor, cases[i].before, &text, &err);
    assert_int_equal(status, cases[i].after ? STATUS_OK : STATUS_FAILED);
    if (text.size != strlen(want) || (text.size && memcmp(text.data, want, text.size) != 0))
      fail_msg("%s of \"%s\": \"%.*s\"", cases[i].editor, cases[i].before, (int)text.size, text.data);
  }
  buffer_release(&text);
}

TEST(the_environment_names_the_editor) {
  static const struct {
    const char *visual, *editor;
    char after;
  } cases[] = {{"printf v >", "printf e >", 'v'}, {"", "printf e >", 'e'}, {NULL, "printf e >", 'e'}};
  Buffer text = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].visual) setenv("VISUAL", cases[i].visual, 1);
    if (!cases[i].visual) unsetenv("VISUAL");
    assert_int_equal(edit(cases[i].editor, "one", &text, NULL), STATUS_OK);
    assert_int_equal(text.data[0], cases[i].after);
  }
  unsetenv("VISUAL");
  /* Markdown, which is the owner's alone. */
  assert_int_equal(
      edit("f() { case $1 in *.md) stat -c %a \"$1\" >$TMPDIR/mode; cat $TMPDIR/mode >\"$1\"; rm "
           "$TMPDIR/mode;; esac; }; f",
           "one", &text, NULL),
      STATUS_OK);
  assert_int_equal(text.size, 3);
  assert_memory_equal(text.data, "600", 3);
  buffer_release(&text);
}

static void on_signal(int number) {
  (void)number;
}

/* Ctrl-C is the editor's while it runs, and nothing else's afterwards. */
TEST(interrupts_are_the_editors_alone_meanwhile) {
  static const int numbers[] = {SIGINT, SIGQUIT};
  struct sigaction own = {.sa_handler = on_signal}, now;
  Buffer text = {0};
  for (int i = 0; i < 2; i++) sigaction(numbers[i], &own, NULL);
  assert_int_equal(
      edit("f() { kill -INT $PPID; kill -QUIT $PPID; printf a >\"$1\"; }; f", "one", &text, NULL), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    sigaction(numbers[i], NULL, &now);
    assert_ptr_equal(now.sa_handler, on_signal);
    signal(numbers[i], SIG_DFL);
  }
  assert_int_equal(edit("f() { kill -INT $$; printf a >\"$1\"; }; f", "one", &text, NULL), STATUS_FAILED);
  buffer_release(&text);
}

static CMFixtureFunction before_all = make_place, after_all = remove_own_directory;
