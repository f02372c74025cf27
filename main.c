/* main.c - dispatches to a command. `auk FLAGS...` means `auk run FLAGS...`. A first argument that contains a
 * space and names no file is a prompt for `auk run`. */
#include <string.h>

#include "base/file.h"
#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/device.h"
#include "commands/did_you_mean.h"
#include "commands/foreign_words.h"
#include "commands/sigbus.h"
#include "commands/threads.h"

static const char beginning[] =
    "auk runs quantised language models from the shell.\n"
    "\n"
    "  auk -m MODEL -p \"Why is the sky blue?\"         an answer\n"
    "  auk -m MODEL                                   a chat, on a terminal\n"
    "  git diff | auk -m MODEL -p \"Review this.\"      input comes before the prompt\n"
    "  auk -m MODEL -f notes.txt -p \"What was decided?\"   and so do files\n"
    "  auk -m MODEL --map names.txt -p \"Greet {}.\"    a prompt for each line\n"
    "  auk models                                     the models that are here\n"
    "\n"
    "MODEL is a Hugging Face directory, a packed file, or a name such as\n"
    "Qwen/Qwen3-8B-AWQ that is in Hugging Face's cache; without -m it is $AUK_MODEL.\n"
    "\n"
    "Commands:\n";

static const char end[] = "\n"
                          "`auk COMMAND --help` lists the flags of a command, `auk man | man -l -` shows\n"
                          "all there is, `auk --version` says which this is.\n";

static Status print_help(Error *err) {
  TRY(output_printf(err, "%s", beginning));
  for (size_t i = 0; i < n_commands; i++)
    TRY(output_printf(err, "  %-12s %s\n", commands[i].name, commands[i].about));
  return output_printf(err, "%s", end);
}

/* Refuses an unknown command with a hint: the word may be mistyped, a command of another program, or a model
 * without its flag. */
static Status refuse_command(const char *text, bool is_alone, Error *err) {
  const char *instead = foreign_command(text);
  if (instead) return error_set(err, STATUS_USAGE, "unknown command \"%s\": %s", text, instead);
  Suggestion nearest = suggestion_begin(text, strlen(text));
  for (size_t i = 0; i < n_commands; i++)
    suggestion_consider(&nearest, commands[i].name, strlen(commands[i].name));
  if (nearest.word)
    return error_set(err, STATUS_USAGE, "unknown command \"%s\": did you mean %s?", text, nearest.word);
  if (file_exists(text))
    return error_set(err, STATUS_USAGE, "unknown command \"%s\" (a model is given with -m, a file with -f)",
                     text);
  return error_set(err, STATUS_USAGE, "unknown command \"%s\" (auk --help lists them; a prompt of %s)", text,
                   is_alone ? "one word needs -p" : "several words stands in quotes");
}

static int run(int argc, char **argv) {
  output_begin();
  sigbus_catch();
  Error err = {{0}};
  if (argc > 1 && strcmp(argv[1], "--version") == 0)
    return command_finish(output_printf(&err, "auk %s, %s\n", AUK_VERSION, device_kinds()), &err);
  bool help = argc > 1 && strcmp(argv[1], "help") == 0;
  if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || (help && argc == 2)))
    return command_finish(print_help(&err), &err);
  if (argc < 2 || argv[1][0] == '-') return command_call(&run_interface, argc, argv);
  const char *name = help ? argv[2] : argv[1]; /* `auk help COMMAND` is `auk COMMAND --help` */
  char *with_help[] = {argv[0], (char *)"--help", help && argc > 3 ? argv[3] : NULL, NULL};
  for (size_t i = 0; i < n_commands; i++)
    if (strcmp(name, commands[i].name) == 0)
      return help ? command_call(commands[i].interface, with_help[2] ? 3 : 2, with_help)
                  : command_call(commands[i].interface, argc - 1, argv + 1);
  if (!help && strchr(name, ' ') && !file_exists(name)) return command_call(&run_interface, argc, argv);
  return command_finish(refuse_command(name, help || argc < 3 || argv[2][0] == '-', &err), &err);
}

int main(int argc, char **argv) {
  return threads_run(run, argc, argv);
}
