/* chat_complete.h - Tab completion: names of commands and settings, and files if a command takes one. */
#pragma once

#include "base/buffer.h"

/* A LineCompleter (line_editor.h). */
Status chat_complete(const char *line, size_t size, Buffer *rest, Buffer *list, Error *err);
