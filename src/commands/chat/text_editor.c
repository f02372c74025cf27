/* text_editor.c - see text_editor.h.   Called by: chat_commands.c. */
#include "commands/chat/text_editor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "commands/common.h"
#include "commands/input_text.h"

static const char *editor_command(void) {
  const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");
  if (visual && *visual) return visual;
  return editor && *editor ? editor : "vi";
}

/* Runs the command with the file appended, in a shell; meanwhile only the editor gets interrupts. */
static Status run_editor(const char *command, const char *path, Error *err) {
  Buffer line = {0};
  Status status = buffer_printf(&line, err, "%s \"$1\"", command);
  if (status) return status;
  struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
  sigemptyset(&ignore.sa_mask);
  sigaction(SIGINT, &ignore, &interrupt);
  sigaction(SIGQUIT, &ignore, &quit);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    execl("/bin/sh", "sh", "-c", line.data, "sh", path, (char *)NULL);
    _exit(127);
  }
  int how = 0;
  while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR) continue;
  sigaction(SIGINT, &interrupt, NULL);
  sigaction(SIGQUIT, &quit, NULL);
  buffer_release(&line);
  if (child < 0) return error_set(err, STATUS_FAILED, "cannot start %s: %s", command, strerror(errno));
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s did not end well: nothing is changed", command);
}

static Status write_file(int file, const char *path, const Buffer *text, Error *err) {
  TRY(descriptor_write(file, path, text->data ? text->data : "", text->size, err));
  bool ends = text->size == 0 || text->data[text->size - 1] == '\n';
  return ends ? STATUS_OK : descriptor_write(file, path, "\n", 1, err);
}

static Status read_back(const char *path, Buffer *text, Error *err) {
  bool had_newline = text->size && text->data[text->size - 1] == '\n';
  Buffer changed = {0};
  Status status = file_read(path, TEXT_LIMIT, &changed, err);
  if (status == STATUS_OK && changed.size && utf8_valid_prefix(changed.data, changed.size) != changed.size)
    status =
        error_set(err, STATUS_FAILED, "the editor left text that is not valid UTF-8: nothing is changed");
  if (status) {
    buffer_release(&changed);
    return status;
  }
  if (!had_newline && changed.size && changed.data[changed.size - 1] == '\n') changed.size--;
  buffer_release(text);
  *text = changed;
  return STATUS_OK;
}

Status text_edit(Buffer *text, Error *err) {
  const char *temporary = getenv("TMPDIR");
  Buffer path = {0};
  Status status = buffer_printf(&path, err, "%s/auk-XXXXXX.md", temporary && *temporary ? temporary : "/tmp");
  if (status) return status;
  int file = mkstemps(path.data, 3); /* mode 0600 */
  if (file < 0) {
    status = system_error(path.data, "make a file to edit", err);
    buffer_release(&path);
    return status;
  }
  status = write_file(file, path.data, text, err);
  close(file);
  if (status == STATUS_OK) status = run_editor(editor_command(), path.data, err);
  if (status == STATUS_OK) status = read_back(path.data, text, err);
  unlink(path.data);
  buffer_release(&path);
  return status;
}
