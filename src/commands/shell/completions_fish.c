/* completions_fish.c - the script for fish: a line for each flag, active after its command.   Called by:
 * completions.c. */
#include "commands/commands.h"
#include "commands/shell/completions.h"

static const char beginning[] =
    "# fish completion of auk, printed by `auk completions fish`\n"
    "function __auk_is\n"
    "    set -l words (commandline -opc)\n"
    "    set -l command run\n"
    "    if set -q words[2]; and contains -- $words[2] $__auk_commands\n"
    "        set command $words[2]\n"
    "    end\n"
    "    test $command = $argv[1]\n"
    "end\n"
    "function __auk_models\n"
    "    set -l words (commandline -opc)\n"
    "    $words[1] models --names 2>/dev/null\n"
    "end\n"
    "function __auk_chats\n"
    "    set -l words (commandline -opc)\n"
    "    if set -q argv[1]; and test (count $words) -eq 2\n"
    "        printf '%s\\n' $argv\n"
    "    else\n"
    "        $words[1] chats --names 2>/dev/null\n"
    "    end\n"
    "end\n"
    "function __auk_prompts\n"
    "    set -l words (commandline -opc)\n"
    "    $words[1] prompts --names 2>/dev/null\n"
    "end\n"
    "complete -c auk -e\n"
    "complete -c auk -f\n"
    "complete -c auk -n 'test (count (commandline -opc)) -eq 1' -l version -d 'say which auk this is'\n";

static Status put_value(Buffer *out, ShellValue value, const char *words, Error *err) {
  TRY(buffer_append_string(out, shell_names[value].fish, err));
  if (value < SHELL_WORDS && value != SHELL_CHAT) return STATUS_OK;
  if (words) TRY(completions_put_words(out, words, err));
  return buffer_append_string(out, value == SHELL_CHAT ? ")'" : "'", err);
}

/* Writes a flag's names: -s for a single letter, -l for two dashes, -o for a word after one dash. */
static Status put_flag(Buffer *out, const char *command, const Flag *flag, Error *err) {
  TRY(buffer_printf(out, err, "complete -c auk -n '__auk_is %s'", command));
  Word name;
  for (const char *at = flag->names; flag_next_name(&at, &name);) {
    bool two_dashes = name.size > 2 && name.text[1] == '-';
    int dashes = two_dashes ? 2 : 1;
    TRY(buffer_printf(out, err, " -%c %.*s",
                      two_dashes       ? 'l'
                      : name.size == 2 ? 's'
                                       : 'o',
                      (int)name.size - dashes, name.text + dashes));
  }
  ShellValue value = flag_shell_value(flag);
  TRY(buffer_append_string(out, shell_names[value].fish_flag, err));
  TRY(put_value(out, value, flag_shell_words(flag), err));
  TRY(buffer_append_string(out, " -d '", err));
  TRY(completions_put_help(out, flag->help, "'\\", err));
  return buffer_append_string(out, "'\n", err);
}

static Status put_command(Buffer *out, const Command *command, Error *err) {
  const Interface *interface = command->interface;
  TRY(buffer_printf(out, err, "complete -c auk -n 'test (count (commandline -opc)) -eq 1' -a %s -d '",
                    command->name));
  TRY(completions_put_help(out, command->about, "'\\", err));
  TRY(buffer_append_string(out, "'\n", err));
  const Flag *flag;
  for (size_t i = 0, offset; (flag = interface_flag(interface, i, &offset)); i++)
    TRY(put_flag(out, command->name, flag, err));
  ShellValue value = interface_shell_operand(interface);
  if (!*shell_names[value].fish) return STATUS_OK;
  TRY(buffer_printf(out, err, "complete -c auk -n '__auk_is %s'", command->name));
  TRY(put_value(out, value, interface->operand_words, err));
  return buffer_append_string(out, "\n", err);
}

Status completions_fish(Buffer *out, Error *err) {
  TRY(buffer_append_string(out, "set -g __auk_commands", err));
  for (size_t c = 0; c < n_commands; c++) TRY(buffer_printf(out, err, " %s", commands[c].name));
  TRY(buffer_append_string(out, "\n", err));
  TRY(buffer_append_string(out, beginning, err));
  for (size_t c = 0; c < n_commands; c++) TRY(put_command(out, &commands[c], err));
  return STATUS_OK;
}
