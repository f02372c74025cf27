/* commands.c - the command table. main.c runs its entries; help, completions and the manual page are
 * generated from it. */
#include "commands/commands.h"

const Command commands[] = {
    {"run", command_run, &run_interface, "answer a prompt; the command where none is named"},
    {"chat", command_chat, &chat_interface, "talk with a model on a terminal"},
    {"eval", command_eval, &eval_interface, "logits and perplexity of given tokens"},
    {"bench", command_bench, &bench_interface, "measure speed"},
    {"tokenize", command_tokenize, &tokenize_interface, "text to token ids and back"},
    {"template", command_template, &template_interface, "render conversations by a chat template"},
    {"inspect", command_inspect, &inspect_interface, "say what is in a checkpoint and what it will take"},
    {"models", command_models, &models_interface,
     "list the checkpoints that are here and whether they will run"},
    {"pack", command_pack, &pack_interface, "write the weights of a checkpoint as one packed file"},
    {"cache", command_cache, &cache_interface, "list or clear what --cache has kept"},
    {"completions", command_completions, &completions_interface,
     "print a script that completes all this in a shell"},
    {"man", command_man, &man_interface, "print the manual page"},
};
const size_t n_commands = sizeof commands / sizeof *commands;
