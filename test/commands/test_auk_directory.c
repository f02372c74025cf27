/* test_auk_directory.c - where auk keeps files of its own. */
#include "commands/auk_directory.h"
#include "test/tests.h"

static void assert_directory(const char *cache, const char *home, const char *want) {
  char *path;
  setenv("XDG_CACHE_HOME", cache, 1);
  setenv("HOME", home, 1);
  assert_int_equal(auk_directory("XDG_CACHE_HOME", ".cache", &path, NULL), STATUS_OK);
  if (want)
    assert_string_equal(path, want);
  else
    assert_null(path);
  free(path);
}

TEST(the_variables_name_it) {
  assert_directory("/c", "/h", "/c/auk");
  assert_directory("", "/h", "/h/.cache/auk");
  assert_directory("relative", "/h", "/h/.cache/auk");
  assert_directory("relative", "relative", NULL);
}

TEST(a_slash_at_the_end_is_not_doubled) {
  assert_directory("", "/", "/.cache/auk");
  assert_directory("", "/h/", "/h/.cache/auk");
  assert_directory("/", "/h", "/auk");
  assert_directory("/c//", "/h", "/c/auk");
}
