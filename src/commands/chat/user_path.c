/* user_path.c - see user_path.h.   Called by: chat_commands.c, chat_complete.c. */
#include "commands/chat/user_path.h"

#include <string.h>

#include "base/buffer.h"

Status user_path(const char *text, size_t size, char **path, Error *err) {
  OWNED(buffer_release) Buffer name = {0};
  *path = NULL;
  if (size > 2 && (text[0] == '\'' || text[0] == '"') && text[size - 1] == text[0]) {
    text++;
    size -= 2;
  }
  if (size == 0 || memchr(text, 0, size)) return error_set(err, STATUS_USAGE, "no file is named");
  const char *home = size >= 2 && text[0] == '~' && text[1] == '/' ? getenv("HOME") : NULL;
  size_t skip = home ? 1 : 0;
  if (home) TRY(buffer_append_string(&name, home, err));
  TRY(buffer_append(&name, text + skip, size - skip, err));
  TRY(buffer_append(&name, "", 1, err));
  *path = name.data;
  name = (Buffer){0};
  return STATUS_OK;
}
