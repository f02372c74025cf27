/* auk_directory.h - the directories of auk's own files, by the XDG Base Directory Specification. */
#pragma once

#include "base/status.h"

/* Sets *path to "$VARIABLE/auk", else "$HOME/BELOW/auk", in new memory; NULL if neither variable is an
 * absolute path. Creates no directory. */
Status auk_directory(const char *variable, const char *below, char **path, Error *err);
/* Sets *path to the path of `name` in the directory of auk_directory(); NULL if there is no directory. */
Status auk_path(const char *variable, const char *below, const char *name, char **path, Error *err);
