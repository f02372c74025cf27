/* names.h - what a directory holds, by name. */
#ifndef AUK_COMMANDS_MODELS_NAMES_H
#define AUK_COMMANDS_MODELS_NAMES_H

#include <stddef.h>

#include "base/status.h"

typedef struct {
  char **items; /* [count] sorted; those that begin with a dot are not among them */
  size_t count, capacity;
  int error; /* errno where the directory could not be read, else 0 */
} Names;     /* starts zeroed */

/* Empty where the directory cannot be read, or is none; fails only where memory or descriptors are short.
 * Release it also after a failure. */
Status names_read(const char *directory, Names *names, Error *err);
Status names_add(Names *names, const char *name, Error *err); /* a copy of it, at the end */
void names_release(Names *names);

#endif
