/* directory.h - temporary directories for the tests in C: as many as one likes, or own_directory, which all
 * tests of a program share (before_all, after_all) or each has anew (TEST_IN_DIRECTORY). Failures are
 * assertions. */
#pragma once

#include <ftw.h>
#include <sys/stat.h>

#include "test/tests.h"

static inline char *make_directory(void) {
  const char *parent = getenv("TMPDIR");
  char path[256];
  snprintf(path, sizeof path, "%s/auk-test-XXXXXX", parent && *parent ? parent : "/tmp");
  assert_non_null(mkdtemp(path));
  return strdup(path);
}

static inline int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw) {
  (void)info, (void)type, (void)ftw;
  return remove(path);
}

/* With all that is in it. */
static inline void remove_directory(char *path) {
  nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  free(path);
}

/* "directory/name", one of four that live at a time. */
static inline char *in_directory(const char *directory, const char *name) {
  static char paths[4][700];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", directory, name);
  return path;
}

static char *own_directory; /* from make_own_directory() to remove_own_directory() */

static inline int make_own_directory(void **state) {
  own_directory = make_directory();
  return 0;
}

static inline void empty_own_directory(void) {
  nftw(own_directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  assert_int_equal(mkdir(own_directory, 0700), 0);
}

static inline int remove_own_directory(void **state) {
  remove_directory(own_directory);
  return 0;
}

/* A test with an empty own_directory. */
#define TEST_IN_DIRECTORY(name) TEST_WITH(make_own_directory, remove_own_directory, name)
