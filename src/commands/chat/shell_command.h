/* shell_command.h - runs a command of the user in a shell and waits for its end. */
#pragma once

#include "base/buffer.h"

typedef struct {
  const char *argument; /* $1 in the command, or NULL */
  const char *name;     /* $AUK_TOOL of its environment, or NULL */
  const Buffer *input;  /* its standard input; NULL: that of this process */
  Buffer *output;       /* gets its standard output; NULL: that of this process */
  size_t most;          /* bytes of output; more are a failure (STATUS_FAILED) */
} ShellOptions;

/* Runs the command, which alone gets interrupts meanwhile. *how: the status that wait() gives. With `output`,
 * the command ends with its shell, whatever the shell leaves running, and a second interrupt kills both. */
Status shell_command(const char *command, const ShellOptions *options, int *how, Error *err);
