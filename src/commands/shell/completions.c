/* completions.c - `auk completions SHELL`: prints a script that completes auk's commands, flags and values.
 * Always true: commands, flags and words come from the tables of commands.c alone. Names of models, chats and
 *              prompts come from auk when the script runs. */
#include "commands/shell/completions.h"

#include <string.h>

#include "commands/commands.h"

const ShellNames shell_names[] = {
    [SHELL_NOTHING] = {"", "", "", ""},
    [SHELL_TEXT] = {"text", " ", " -x", ""},
    [SHELL_FILE] = {"file", "_files", " -r", " -F"},
    [SHELL_DIRECTORY] = {"directory", "_files -/", " -x", " -a '(__fish_complete_directories)'"},
    [SHELL_MODEL] = {"model", "_auk_checkpoints", " -r", " -F -a '(__auk_models)'"},
    [SHELL_CHAT] = {"chat", "_auk_chat_names", "", " -a '(__auk_chats "},
    [SHELL_PROMPT] = {"prompt", "_auk_prompt_names", " -r", " -F -a '(__auk_prompts)'"},
    [SHELL_WORDS] = {"words", "(", " -x", " -a '"},
    [SHELL_WORD_OR_FILE] = {"word_or_file", " _auk_word_or_file ", " -r", " -F -a '"},
};

ShellValue flag_shell_value(const Flag *flag) {
  if (flag->kind == KIND_SWITCH) return SHELL_NOTHING;
  if (flag->words) return SHELL_WORD_OR_FILE;
  return flag->kind == KIND_CHOICE ? SHELL_WORDS : (ShellValue)(SHELL_TEXT + flag->hint);
}

const char *flag_shell_words(const Flag *flag) {
  return flag->words ? flag->words : flag->kind == KIND_CHOICE ? flag->argument : NULL;
}

ShellValue interface_shell_operand(const Interface *interface) {
  const bool is_choice = interface->operand_words && interface->operands == VALUE_TEXT;
  const Flag operand = {.kind = is_choice ? KIND_CHOICE : KIND_STRING, .hint = interface->operands};
  return interface->max_operands ? flag_shell_value(&operand) : SHELL_NOTHING;
}

Status completions_put_words(Buffer *out, const char *choice, Error *err) {
  Word word;
  for (const char *at = choice; flag_next_choice(&at, &word);)
    TRY(buffer_printf(out, err, "%s%.*s", word.text == choice ? "" : " ", (int)word.size, word.text));
  return STATUS_OK;
}

Status completions_put_help(Buffer *out, const char *help, const char *escaped, Error *err) {
  enum { LEAST = 12 }; /* a shorter text, such as "N: off", says too little */
  for (const char *at = help; *at; at++) {
    if (at - help > LEAST && (strncmp(at, "; ", 2) == 0 || strncmp(at, " (", 2) == 0)) break;
    if (strchr(escaped, *at)) TRY(buffer_append(out, "\\", 1, err));
    TRY(buffer_append(out, at, 1, err));
  }
  return STATUS_OK;
}

static const struct {
  const char *name;
  Status (*write)(Buffer *out, Error *err);
} shells[] = {{"bash", completions_bash}, {"zsh", completions_zsh}, {"fish", completions_fish}};

static Status run(CommandCall *call, Error *err) {
  if (call->n_operands == 0)
    return error_set(err, STATUS_USAGE, "for which shell? %s", completions_interface.usage);
  for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
    if (strcmp(shells[i].name, call->operands[0]) == 0) return shells[i].write(&call->out, err);
  return error_set(err, STATUS_USAGE, "no completions for \"%s\", expected %s", call->operands[0],
                   completions_interface.operand_words);
}

const Interface completions_interface = {
    .usage = "auk completions bash|zsh|fish",
    .about = "Prints a script that completes auk's commands, flags and their values, and the names of "
             "models. `make\n"
             "install` puts the three where the shells look for them; without it:",
    .examples = "source <(auk completions bash)      # in ~/.bashrc\n"
                "auk completions zsh >DIR/_auk       # DIR: one of $fpath\n"
                "auk completions fish | source       # in ~/.config/fish/config.fish",
    .max_operands = 1,
    .operand_words = "bash|zsh|fish",
    .run = run,
};
