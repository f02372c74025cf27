/* commands.h - the table of commands, from which help, completions and the man page are generated, too. */
#pragma once

#include "commands/flags.h"

typedef struct {
  const char *name;
  const Interface *interface;
  const char *about; /* half a line, without a full stop */
} Command;
extern const Command commands[];
extern const size_t n_commands;

/* Parses the arguments after argv[0], runs the command, prints its failure, and returns the exit status. */
int command_call(const Interface *interface, int argc, char **argv);

extern const Interface run_interface;
extern const Interface chat_interface;
extern const Interface chats_interface;
extern const Interface eval_interface;
extern const Interface bench_interface;
extern const Interface tokenize_interface;
extern const Interface template_interface;
extern const Interface schema_interface;
extern const Interface inspect_interface;
extern const Interface models_interface;
extern const Interface get_interface;
extern const Interface prompts_interface;
extern const Interface merge_interface;
extern const Interface pack_interface;
extern const Interface quantize_interface;
extern const Interface keep_interface;
extern const Interface cache_interface;
extern const Interface completions_interface;
extern const Interface man_interface;
