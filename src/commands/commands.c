/* commands.c - the command table. main.c runs its entries; help, completions and the manual page are
 * generated from it. */
#include "commands/commands.h"

#include <stdlib.h>
#include <string.h>

#include "base/output.h"
#include "commands/common.h"
#include "commands/ranks/join.h"
#include "commands/settings/settings.h"

const Command commands[] = {
    {"run", &run_interface, "answer a prompt; the command where none is named"},
    {"chat", &chat_interface, "talk with a model on a terminal"},
    {"chats", &chats_interface, "list, show or remove the chats that were kept"},
    {"prompts", &prompts_interface, "list your prompts, for -P"},
    {"eval", &eval_interface, "logits and perplexity of given tokens"},
    {"bench", &bench_interface, "measure speed"},
    {"tokenize", &tokenize_interface, "text to token ids and back"},
    {"template", &template_interface, "render conversations by a chat template"},
    {"schema", &schema_interface, "check a JSON Schema, and texts against it"},
    {"merge", &merge_interface, "put the results of many processes together"},
    {"inspect", &inspect_interface, "say what is in a checkpoint and what it will take"},
    {"models", &models_interface, "list the checkpoints that are here and whether they will run"},
    {"get", &get_interface, "download a model by Hugging Face's own tool"},
    {"pack", &pack_interface, "write the weights of a checkpoint as one packed file"},
    {"quantize", &quantize_interface, "write a checkpoint with 4-bit weights"},
    {"keep", &keep_interface, "show or end the processes that keep models for later calls"},
    {"cache", &cache_interface, "list or clear what --cache has kept"},
    {"completions", &completions_interface, "print a script that completes all this in a shell"},
    {"man", &man_interface, "print the manual page"},
};
const size_t n_commands = sizeof commands / sizeof *commands;

/* The values of the group `flags` in the command's options; NULL: the command does not have this group. */
static void *values_of(const CommandCall *call, const Interface *interface, const Flag *flags) {
  for (size_t i = 0; i < interface->n_groups; i++)
    if (interface->groups[i].flags == flags) return (char *)call->options + interface->groups[i].offset;
  return NULL;
}

/* Runs the command. A process of --split auto that is not rank 0 only computes for rank 0
 * (ranks_follow()). */
static Status run(CommandCall *call, const Interface *interface, Error *err) {
  const DeviceFlags *device = values_of(call, interface, device_flags);
  const ModelFlags *model = values_of(call, interface, model_flags);
  int rank = 0, n;
  size_t offset = 0;
  if (device && model && device_split(device) == 0) TRY(ranks_find(&rank, &n, err));
  if (rank == 0) return interface->run(call, err);
  TRY(device_check_flags(device, err));
  const Flag *dummy = interface_find(interface, "--dummy-weights", strlen("--dummy-weights"), &offset);
  return ranks_follow(model, device, dummy && *(const bool *)((char *)call->options + offset), err);
}

/* Takes the command line's flags, then settings for flags not given. */
static Status take_flags(CommandCall *call, const Interface *interface, int argc, char **argv,
                         const char **operands, Settings *settings, bool *helped, Error *err) {
  FlagParse parse;
  Status status = flags_begin(interface, call->options, &parse, err);
  if (status == STATUS_OK) status = flags_take(&parse, argc, argv, operands, &call->n_operands, err);
  *helped = parse.helped;
  call->n_given = parse.n_given;
  const bool has_settings = !parse.helped && !parse.no_config && settings_matter(interface);
  if (status == STATUS_OK && has_settings) status = settings_read(settings, err);
  call->usual_model = settings_model(settings);
  call->aliases = settings->sections;
  call->n_aliases = settings->n_sections;
  if (status == STATUS_OK && !parse.helped && interface->take_operands)
    status = interface->take_operands(call, err);
  if (status == STATUS_OK && has_settings) status = settings_apply(settings, &parse, err);
  flags_end(&parse);
  return status;
}

int command_call(const Interface *interface, int argc, char **argv) {
  Error err = {{0}};
  bool helped = false;
  Settings settings = {0};
  const char **operands = mem_alloc((size_t)argc, sizeof *operands, "arguments", &err);
  CommandCall call = {.word = argv[0],
                      .options = mem_alloc(1, interface->options_size, "options", &err),
                      .operands = operands};
  Status status = STATUS_FAILED;
  if (call.options && operands) {
    if (interface->defaults) memcpy(call.options, interface->defaults, interface->options_size);
    status = take_flags(&call, interface, argc, argv, operands, &settings, &helped, &err);
    if (status == STATUS_OK && !helped) status = run(&call, interface, &err);
    if (status == STATUS_MODEL) settings_blame(&settings, &err);
    if (status == STATUS_OK && call.out.size) status = output_write(call.out.data, call.out.size, &err);
    flags_release(interface, call.options);
  }
  settings_release(&settings);
  buffer_release(&call.out);
  free(operands);
  free(call.options);
  return command_finish(status, &err);
}
