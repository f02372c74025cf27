/* auk_directory.h - where auk keeps files of its own, by the XDG Base Directory Specification. */
#ifndef AUK_COMMANDS_AUK_DIRECTORY_H
#define AUK_COMMANDS_AUK_DIRECTORY_H

#include "base/status.h"

/* "$VARIABLE/auk", else "$HOME/BELOW/auk", in new memory; NULL where neither variable is an absolute path: a
 * relative one does not count. Nothing is made. */
Status auk_directory(const char *variable, const char *below, char **path, Error *err);

#endif
