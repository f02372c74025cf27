/* person_path.h - a file as a person names it on a line of a chat. */
#ifndef AUK_COMMANDS_CHAT_PERSON_PATH_H
#define AUK_COMMANDS_CHAT_PERSON_PATH_H

#include <stdlib.h>

#include "base/status.h"

/* The path that text[0..size) names, in new memory: "~/" is the home directory, quotes around it all (as
 * terminals put them around a file that is dropped there) are taken off. STATUS_USAGE where it is empty or
 * holds a NUL. */
Status person_path(const char *text, size_t size, char **path, Error *err);

#endif
