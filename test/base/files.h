/* files.h - texts in files and what a test's own directory holds. */
#pragma once

#include <dirent.h>

#include "base/file.h"
#include "test/directory.h"

/* How many entries own_directory has, hidden ones included. */
static inline int n_entries(void) {
  DIR *dir = opendir(own_directory);
  int n = -2; /* . and .. */
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}

static inline void put(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  fclose(file);
}

static inline void assert_content(const char *path, const char *expected) {
  Buffer text = {0};
  Error err;
  assert_int_equal(file_read(path, 1 << 20, &text, &err), STATUS_OK);
  assert_int_equal(text.size, strlen(expected));
  if (text.size) assert_memory_equal(text.data, expected, text.size);
  buffer_release(&text);
}

/* That the message names the path and the reason. */
static inline void assert_message(const Error *err, const char *path, const char *reason) {
  if (!strstr(err->text, path) || !strstr(err->text, reason))
    fail_msg("\"%s\" names not both %s and \"%s\"", err->text, path, reason);
}
