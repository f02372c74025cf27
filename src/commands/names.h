/* names.h - sorted file names of a directory. */
#pragma once

#include <stddef.h>

#include "base/status.h"

typedef struct {
  char **items; /* [count] from names_read(): sorted, without names that begin with a dot */
  size_t count, capacity;
  int error; /* errno if the directory could not be read, else 0 */
} Names;     /* starts zeroed */

/* Reads a directory; the result is empty if it cannot be read. Fails only for lack of memory or descriptors.
 * Release the list also after a failure. */
Status names_read(const char *directory, Names *names, Error *err);
Status names_add(Names *names, const char *name, Error *err); /* appends a copy */
void names_release(Names *names);
