/* user_path.h - a file name that a user types in a chat. */
#pragma once

#include <stdlib.h>

#include "base/status.h"

/* The path named by text[0..size), in new memory: "~/" is the home directory, and enclosing quotes (as from a
 * file dropped on a terminal) are removed. STATUS_USAGE if the path is empty or contains a NUL. */
Status user_path(const char *text, size_t size, char **path, Error *err);
