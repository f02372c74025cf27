/* completions.h - private to completions*.c: a script for each shell, generated from the command table. */
#pragma once

#include "base/buffer.h"
#include "commands/flags.h"

Status completions_bash(Buffer *out, Error *err);
Status completions_zsh(Buffer *out, Error *err);
Status completions_fish(Buffer *out, Error *err);

typedef enum {
  SHELL_NOTHING,
  SHELL_TEXT, /* to SHELL_PROMPT: the ValueHints, in their order */
  SHELL_FILE,
  SHELL_DIRECTORY,
  SHELL_MODEL,
  SHELL_CHAT,
  SHELL_PROMPT,
  SHELL_WORDS,
  SHELL_WORD_OR_FILE
} ShellValue;

/* How the scripts name a ShellValue. */
typedef struct {
  const char *bash;      /* a case of the function's end */
  const char *zsh;       /* an action of _arguments; a lone space only shows the message */
  const char *fish_flag; /* option for flags alone: -r if a value must follow, -x if that value is no file */
  const char *fish;      /* options for a flag or an operand; put_value() closes quotes that are open */
} ShellNames;
extern const ShellNames shell_names[]; /* indexed by ShellValue */

ShellValue flag_shell_value(const Flag *flag);  /* SHELL_NOTHING: a switch */
const char *flag_shell_words(const Flag *flag); /* for SHELL_WORDS and SHELL_WORD_OR_FILE; else NULL */
ShellValue interface_shell_operand(const Interface *interface); /* SHELL_NOTHING: no operands */

Status completions_put_words(Buffer *out, const char *choice, Error *err);

/* Appends a help text up to its first "; " or " (" (but at least 13 characters), with a backslash before each
 * character in `escaped`. */
Status completions_put_help(Buffer *out, const char *help, const char *escaped, Error *err);
