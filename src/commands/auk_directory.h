/* auk_directory.h - the directories of auk's own files, by the XDG Base Directory Specification. */
#pragma once

#include "base/status.h"

/* "$VARIABLE/auk", else "$HOME/BELOW/auk", in new memory; NULL if neither variable is an absolute path.
 * Creates nothing. */
Status auk_directory(const char *variable, const char *below, char **path, Error *err);
/* The same for what is called `name` in that directory. */
Status auk_path(const char *variable, const char *below, const char *name, char **path, Error *err);
