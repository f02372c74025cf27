/* shell_command.c - see shell_command.h. Called by: text_editor.c, tool_results.c. */
#include "commands/chat/shell_command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "commands/common.h"

/* In the child: never returns. */
static void become(const char *command, const ShellOptions *o, int input, int output) {
  signal(SIGINT, SIG_DFL);
  signal(SIGQUIT, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  if (input >= 0) dup2(input, STDIN_FILENO);
  if (output >= 0) dup2(output, STDOUT_FILENO);
  if (o->name) setenv("AUK_TOOL", o->name, 1);
  execl("/bin/sh", "sh", "-c", command, "sh", o->argument, (char *)NULL);
  _exit(127);
}

/* Reads until the other end is closed, which a failure here does not prevent. */
static Status read_all(int from, const ShellOptions *o, Error *err) {
  char piece[1 << 14];
  Status status = STATUS_OK;
  for (;;) {
    const ssize_t n = read(from, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return status;
    if (status == STATUS_OK && o->output->size + (size_t)n > o->most)
      status = error_set(err, STATUS_FAILED, "the command writes over %zu bytes", o->most);
    if (status == STATUS_OK) status = buffer_append(o->output, piece, (size_t)n, err);
  }
}

static Status run(const char *command, const ShellOptions *o, int input, int *how, Error *err) {
  int ends[2] = {-1, -1};
  if (o->output && pipe(ends) != 0) return system_error(command, "run it", err);
  const pid_t child = fork();
  if (child == 0) {
    if (ends[0] >= 0) close(ends[0]);
    become(command, o, input, ends[1]);
  }
  const int why = errno;
  if (ends[1] >= 0) close(ends[1]);
  Status status = child > 0 && o->output ? read_all(ends[0], o, err) : STATUS_OK;
  if (ends[0] >= 0) close(ends[0]);
  while (child > 0 && waitpid(child, how, 0) < 0 && errno == EINTR) continue;
  if (child < 0) return error_set(err, STATUS_FAILED, "cannot start %s: %s", command, strerror(why));
  return status;
}

/* A file without a name that holds the input. */
static Status make_input(const Buffer *text, int *file, Error *err) {
  FILE *made = tmpfile();
  if (!made) return system_error("a temporary file", "make it", err);
  *file = dup(fileno(made));
  fclose(made);
  if (*file < 0) return system_error("a temporary file", "open it", err);
  TRY(descriptor_write(*file, "a temporary file", text->data, text->size, err));
  return lseek(*file, 0, SEEK_SET) == 0 ? STATUS_OK : system_error("a temporary file", "read it", err);
}

Status shell_command(const char *command, const ShellOptions *o, int *how, Error *err) {
  struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
  int input = -1;
  *how = 0;
  Status status = o->input ? make_input(o->input, &input, err) : STATUS_OK;
  sigemptyset(&ignore.sa_mask);
  sigaction(SIGINT, &ignore, &interrupt);
  sigaction(SIGQUIT, &ignore, &quit);
  if (status == STATUS_OK) status = run(command, o, input, how, err);
  sigaction(SIGINT, &interrupt, NULL);
  sigaction(SIGQUIT, &quit, NULL);
  if (input >= 0) close(input);
  return status;
}
