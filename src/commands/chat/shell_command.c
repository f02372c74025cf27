/* shell_command.c - see shell_command.h. Called by: text_editor.c, tool_results.c. */
#include "commands/chat/shell_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "commands/common.h"

/* In the child: becomes the shell; never returns. */
static void become(const char *command, const ShellOptions *o, int input, int output) {
  signal(SIGTTOU, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  signal(SIGQUIT, SIG_DFL);
  if (output >= 0) setpgid(0, 0);
  signal(SIGPIPE, SIG_DFL);
  if (input >= 0) dup2(input, STDIN_FILENO);
  if (output >= 0) dup2(output, STDOUT_FILENO);
  if (o->name) setenv("AUK_TOOL", o->name, 1);
  execl("/bin/sh", "sh", "-c", command, "sh", o->argument, (char *)NULL);
  _exit(127);
}

/* --- a command whose output is read: a process group of its own */

static volatile sig_atomic_t n_interrupts;

static void count_interrupt(int number) {
  n_interrupts++;
}

/* Reads what the pipe has now. *open becomes false at the end of the output. If `status` is a failure, the
 * bytes are dropped. */
static Status read_some(int from, const ShellOptions *o, bool *open, Status status, Error *err) {
  char piece[1 << 14];
  const ssize_t n = read(from, piece, sizeof piece);
  *open = n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
  if (n <= 0 || status) return status;
  if (o->output->size + (size_t)n > o->most)
    return error_set(err, STATUS_FAILED, "the command writes over %zu bytes", o->most);
  return buffer_append(o->output, piece, (size_t)n, err);
}

/* Passes interrupts on to the command's process group: the first as SIGINT, later ones as SIGKILL. A command
 * that was stopped because it used the terminal gets the terminal, and with it Ctrl-C directly. */
static void pass_on(pid_t child, int n_came, int *n_passed, int how) {
  if (n_came > *n_passed) kill(-child, (*n_passed)++ ? SIGKILL : SIGINT);
  if (!WIFSTOPPED(how)) return;
  const int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
  if (terminal >= 0) tcsetpgrp(terminal, child);
  if (terminal >= 0) close(terminal);
  kill(-child, SIGCONT);
}

/* Takes the terminal back, if the command has it. */
static void take_terminal(pid_t child) {
  const int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
  if (terminal >= 0 && tcgetpgrp(terminal) == child) tcsetpgrp(terminal, getpgrp());
  if (terminal >= 0) close(terminal);
}

/* Reads until the shell has ended and the pipe is closed. A process that the command leaves running may keep
 * the pipe open: then the reading ends LAST_WORDS_MS after the shell. */
static Status await_output(pid_t child, int from, const ShellOptions *o, int *how, Error *err) {
  enum { LOOK_MS = 50, LAST_WORDS_MS = 100 };
  Status status = STATUS_OK;
  bool runs = true, open = true;
  const bool before = interrupt_came(); /* a signal came before the command */
  int n_passed = 0;
  double end_ms = 0;
  while (runs || (open && clock_ms() < end_ms)) {
    struct pollfd entry = {open ? from : -1, POLLIN, 0};
    if (poll(&entry, 1, open ? LOOK_MS : 5) > 0) status = read_some(from, o, &open, status, err);
    const pid_t changed = runs ? waitpid(child, how, WNOHANG | WUNTRACED) : 0;
    if (runs)
      pass_on(child, n_interrupts + interrupt_came() - before, &n_passed, changed == child ? *how : 0);
    const bool is_gone = changed < 0 && errno != EINTR; /* if SIGCHLD is ignored, waitpid() fails */
    if (!runs || (!is_gone && (changed != child || WIFSTOPPED(*how)))) continue;
    runs = false;
    end_ms = clock_ms() + LAST_WORDS_MS;
  }
  take_terminal(child);
  return status;
}

/* --- commands of both kinds */

static Status run(const char *command, const ShellOptions *o, int input, int *how, Error *err) {
  int ends[2] = {-1, -1};
  if (o->output && pipe2(ends, O_CLOEXEC) != 0) return system_error(command, "run it", err);
  const pid_t child = fork();
  if (child == 0) become(command, o, input, ends[1]);
  const int why = errno;
  if (child > 0 && o->output) setpgid(child, child); /* the child does this too, perhaps later */
  if (ends[1] >= 0) close(ends[1]);
  Status status = STATUS_OK;
  if (child > 0 && o->output)
    status = await_output(child, ends[0], o, how, err);
  else
    while (child > 0 && waitpid(child, how, 0) < 0 && errno == EINTR) continue;
  if (ends[0] >= 0) close(ends[0]);
  if (child < 0) return error_set(err, STATUS_FAILED, "cannot start %s: %s", command, strerror(why));
  return status;
}

/* Makes an unnamed file that holds the input. */
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
  struct sigaction ignore = {.sa_handler = SIG_IGN}, count = {.sa_handler = count_interrupt};
  struct sigaction interrupt, quit, background;
  int input = -1;
  *how = 0;
  Status status = o->input ? make_input(o->input, &input, err) : STATUS_OK;
  sigemptyset(&ignore.sa_mask);
  sigemptyset(&count.sa_mask);
  n_interrupts = 0;
  sigaction(SIGINT, o->output ? &count : &ignore, &interrupt);
  sigaction(SIGQUIT, o->output ? &count : &ignore, &quit);
  sigaction(SIGTTOU, &ignore, &background); /* take_terminal() may raise it */
  if (status == STATUS_OK) status = run(command, o, input, how, err);
  sigaction(SIGINT, &interrupt, NULL);
  sigaction(SIGQUIT, &quit, NULL);
  sigaction(SIGTTOU, &background, NULL);
  if (input >= 0) close(input);
  return status;
}
