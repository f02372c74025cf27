/* auk_directory.c - see auk_directory.h. */
#include "commands/auk_directory.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"

/* Length without trailing slashes, so that "/" is extended to "/auk". */
static int length_of(const char *directory) {
  size_t length = strlen(directory);
  while (length && directory[length - 1] == '/') length--;
  return (int)length;
}

Status auk_directory(const char *variable, const char *below, char **path, Error *err) {
  const char *named = getenv(variable), *home = getenv("HOME");
  Buffer text = {0};
  *path = NULL;
  if (named && named[0] == '/')
    TRY(buffer_printf(&text, err, "%.*s/auk%c", length_of(named), named, 0));
  else if (home && home[0] == '/')
    TRY(buffer_printf(&text, err, "%.*s/%s/auk%c", length_of(home), home, below, 0));
  *path = text.data;
  return STATUS_OK;
}

Status auk_path(const char *variable, const char *below, const char *name, char **path, Error *err) {
  OWNED(mem_release) char *directory = NULL;
  *path = NULL;
  TRY(auk_directory(variable, below, &directory, err));
  if (!directory) return STATUS_OK;
  *path = path_join(directory, name, err);
  return *path ? STATUS_OK : STATUS_FAILED;
}
