/* commands.h - the commands. Each ignores argv[0] and returns the exit status (base/status.h). main.c calls
 * them through the table, from which completions and the man page are generated too. */
#ifndef AUK_COMMANDS_COMMANDS_H
#define AUK_COMMANDS_COMMANDS_H

#include "commands/flags.h"

typedef struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const Interface *interface;
  const char *about; /* half a line, without a full stop */
} Command;
extern const Command commands[];
extern const size_t n_commands;

int command_run(int argc, char **argv);         /* a prompt in, an answer out; the default command */
int command_chat(int argc, char **argv);        /* a conversation on a terminal */
int command_eval(int argc, char **argv);        /* logits and perplexity of given tokens */
int command_bench(int argc, char **argv);       /* speed */
int command_tokenize(int argc, char **argv);    /* text to ids and back */
int command_template(int argc, char **argv);    /* conversations as prompts */
int command_inspect(int argc, char **argv);     /* what a checkpoint holds */
int command_models(int argc, char **argv);      /* the checkpoints on this machine */
int command_pack(int argc, char **argv);        /* a directory to one ak48 file */
int command_cache(int argc, char **argv);       /* what --cache has stored */
int command_completions(int argc, char **argv); /* scripts for shells */
int command_man(int argc, char **argv);         /* the manual page */

/* Each command's flags. */
extern const Interface run_interface;
extern const Interface chat_interface;
extern const Interface eval_interface;
extern const Interface bench_interface;
extern const Interface tokenize_interface;
extern const Interface template_interface;
extern const Interface inspect_interface;
extern const Interface models_interface;
extern const Interface pack_interface;
extern const Interface cache_interface;
extern const Interface completions_interface;
extern const Interface man_interface;

#endif
