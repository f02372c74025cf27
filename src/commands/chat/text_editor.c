/* text_editor.c - see text_editor.h.   Called by: chat_commands.c. */
#include "commands/chat/text_editor.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "commands/chat/shell_command.h"
#include "commands/common.h"
#include "commands/input_text.h"

static const char *editor_command(void) {
  const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");
  if (visual && *visual) return visual;
  return editor && *editor ? editor : "vi";
}

/* Runs the command with the file's path as its last argument. */
static Status run_editor(const char *command, const char *path, Error *err) {
  OWNED(buffer_release) Buffer line = {0};
  int how = 0;
  TRY(buffer_printf(&line, err, "%s \"$1\"", command));
  const ShellOptions options = {.argument = path};
  TRY(shell_command(line.data, &options, &how, err));
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s did not end well: nothing is changed", command);
}

static Status write_file(int file, const char *path, const Buffer *text, Error *err) {
  TRY(descriptor_write(file, path, text->data ? text->data : "", text->size, err));
  bool ends = text->size == 0 || text->data[text->size - 1] == '\n';
  return ends ? STATUS_OK : descriptor_write(file, path, "\n", 1, err);
}

static Status read_back(const char *path, Buffer *text, Error *err) {
  const bool had_newline = text->size && text->data[text->size - 1] == '\n';
  OWNED(buffer_release) Buffer changed = {0};
  TRY(file_read(path, TEXT_LIMIT, &changed, err));
  if (changed.size && utf8_valid_prefix(changed.data, changed.size) != changed.size)
    return error_set(err, STATUS_FAILED, "the editor left text that is not valid UTF-8: nothing is changed");
  if (!had_newline && changed.size && changed.data[changed.size - 1] == '\n') changed.size--;
  const Buffer before = *text;
  *text = changed;
  changed = before;
  return STATUS_OK;
}

Status text_edit(Buffer *text, Error *err) {
  const char *temporary = getenv("TMPDIR");
  OWNED(buffer_release) Buffer path = {0};
  TRY(buffer_printf(&path, err, "%s/auk-XXXXXX.md", temporary && *temporary ? temporary : "/tmp"));
  const int file = mkstemps(path.data, 3); /* mode 0600 */
  if (file < 0) return system_error(path.data, "make a file to edit", err);
  Status status = write_file(file, path.data, text, err);
  close(file);
  if (status == STATUS_OK) status = run_editor(editor_command(), path.data, err);
  if (status == STATUS_OK) status = read_back(path.data, text, err);
  unlink(path.data);
  return status;
}
