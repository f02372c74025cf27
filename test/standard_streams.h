/* standard_streams.h - what the code under test reads from standard input and writes to standard error.
 * Everything static, failures are assertions. */
#pragma once

#include <stdio_ext.h>
#include <unistd.h>

#include "test/unit.h"

static FILE *told_file;
static int told_before = -1;

/* From here on standard error goes aside. */
static inline void tell_begin(void) {
  fflush(stderr);
  told_file = tmpfile();
  told_before = dup(STDERR_FILENO);
  assert_true(told_file && told_before >= 0);
  dup2(fileno(told_file), STDERR_FILENO);
}

/* Returns the text that was written there; standard error is then as it was before. */
static inline const char *note_end(void) {
  static char told[1 << 16];
  fflush(stderr);
  dup2(told_before, STDERR_FILENO);
  close(told_before);
  rewind(told_file);
  told[fread(told, 1, sizeof told - 1, told_file)] = 0;
  fclose(told_file);
  return told;
}

/* Makes a text standard input, as a file. */
static inline void put_input(const char *text, size_t size) {
  FILE *file = tmpfile();
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, size, file), size);
  rewind(file);
  dup2(fileno(file), STDIN_FILENO);
  lseek(STDIN_FILENO, 0, SEEK_SET);
  fclose(file);
  __fpurge(stdin);
  clearerr(stdin);
}
