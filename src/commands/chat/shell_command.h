/* shell_command.h - runs a command of the user in a shell and waits for its end. */
#pragma once

#include "base/buffer.h"

typedef struct {
  const char *argument; /* $1 in the command, or NULL */
  const char *name;     /* $AUK_TOOL in the command's environment, or NULL */
  const Buffer *input;  /* the command's standard input; NULL: the command shares this process's */
  Buffer *output;       /* gets the command's standard output; NULL: the command shares this process's */
  size_t most;          /* bytes of output; more are a failure (STATUS_FAILED) */
} ShellOptions;

/* Runs the command; meanwhile interrupts go to it alone. *how: the status that wait() gives. With `output`,
 * the call returns when the shell has ended, whatever the shell leaves running, and a second interrupt kills
 * the command's process group. */
Status shell_command(const char *command, const ShellOptions *options, int *how, Error *err);
