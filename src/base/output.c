/* output.c - see output.h.
 *
 * Always true: nothing is buffered, so that there is nothing to flush. */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/terminal_text.h"

void output_begin(void) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* writing past the limit of a file's size fails, as on a full disk */
  /* If descriptor 0, 1 or 2 is closed at the start, the next file to be opened would get its number, and the
   * answer could be written into that file. /dev/null opened in the wrong mode fails like a closed
   * descriptor. */
  for (int descriptor = 0; descriptor <= 2; descriptor++) {
    if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF)
      open("/dev/null", descriptor ? O_RDONLY : O_WRONLY);
  }
}

static const char standard[] = "standard output";

Status output_write_shown(const void *bytes, size_t size, Error *err) {
  return descriptor_write(STDOUT_FILENO, standard, bytes, size, err);
}

Status output_write_to(int descriptor, const char *name, const void *bytes, size_t size, Error *err) {
  if (!isatty(descriptor)) return descriptor_write(descriptor, name, bytes, size, err);
  OWNED(buffer_release) Buffer shown = {0};
  TRY(terminal_text(&shown, bytes, size, err));
  return descriptor_write(descriptor, name, shown.data, shown.size, err);
}

Status output_write(const void *bytes, size_t size, Error *err) {
  return output_write_to(STDOUT_FILENO, standard, bytes, size, err);
}

Status output_printf(Error *err, const char *format, ...) {
  va_list args;
  char *text;
  va_start(args, format);
  int length = vasprintf(&text, format, args);
  va_end(args);
  if (length < 0) return error_set(err, STATUS_FAILED, "standard output: cannot format text");
  Status status = output_write(text, (size_t)length, err);
  free(text);
  return status;
}

bool output_is_terminal(void) {
  return isatty(STDOUT_FILENO);
}

bool progress_is_terminal(void) {
  return isatty(STDERR_FILENO);
}

void progress_clear(void) {
  if (progress_is_terminal()) fprintf(stderr, "\r\033[K");
}
