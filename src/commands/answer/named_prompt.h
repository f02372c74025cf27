/* named_prompt.h - prompts that the user keeps under a name: files NAME.md, NAME.txt or NAME in
 * $XDG_CONFIG_HOME/auk/prompts, else in ~/.config/auk/prompts. */
#pragma once

#include "base/buffer.h"

/* Appends the text of the prompt without its last newline and with a NUL; *path gets the path of its file, in
 * new memory. A name with a '/' is a path itself. An unknown name or a blank text is STATUS_USAGE. */
Status named_prompt_read(const char *name, Buffer *text, char **path, Error *err);
