/* completions_zsh.c - the script for zsh: a function for each command passes its flags to _arguments.
 * Called by: completions.c. Every spelling is a specification of its own (zshcompsys(1), _arguments) that
 * excludes the others, except for flags that may be repeated. */
#include <string.h>

#include "commands/commands.h"
#include "commands/shell/completions.h"

/* Writes the value of an option: ":MESSAGE:ACTION". */
static Status put_value(Buffer *out, ShellValue value, const char *message, const char *words, Error *err) {
  TRY(buffer_printf(out, err, ":%s:", value == SHELL_WORDS ? "value" : message));
  TRY(buffer_append_string(out, shell_names[value].zsh, err));
  if (value == SHELL_CHAT && words) {
    TRY(buffer_append_string(out, " ", err));
    return completions_put_words(out, words, err);
  }
  if (value < SHELL_WORDS) return STATUS_OK;
  TRY(completions_put_words(out, words, err));
  return value == SHELL_WORDS ? buffer_append_string(out, ")", err) : STATUS_OK;
}

static Status put_exclusions(Buffer *out, const Flag *flag, Error *err) {
  if (!strchr(flag->names, ',')) return STATUS_OK;
  Word name;
  for (const char *at = flag->names; flag_next_name(&at, &name);)
    TRY(buffer_printf(out, err, "%s%.*s", name.text == flag->names ? "(" : " ", (int)name.size, name.text));
  return buffer_append_string(out, ")", err);
}

static Status put_spelling(Buffer *out, const Flag *flag, Word name, Error *err) {
  bool repeated = flag->kind == KIND_STRINGS || flag->kind == KIND_INTS;
  bool equals = flag->kind != KIND_SWITCH && name.size > 2 && name.text[1] == '-';
  TRY(buffer_append_string(out, " \\\n    '", err));
  TRY(repeated ? buffer_append_string(out, "*", err) : put_exclusions(out, flag, err));
  TRY(buffer_printf(out, err, "%.*s%s[", (int)name.size, name.text, equals ? "=" : ""));
  size_t start = out->size;
  TRY(completions_put_help(out, flag->help, "[]:\\", err));
  for (size_t i = start; i < out->size; i++)
    if (out->data[i] == '\'') out->data[i] = '`'; /* the help is in single quotes */
  TRY(buffer_append_string(out, "]", err));
  if (flag->kind == KIND_OPTIONAL) TRY(buffer_append_string(out, ":", err));
  if (flag->kind != KIND_SWITCH)
    TRY(put_value(out, flag_shell_value(flag), flag->argument, flag_shell_words(flag), err));
  return buffer_append_string(out, "'", err);
}

static Status put_operand(Buffer *out, const Interface *interface, Error *err) {
  ShellValue value = interface_shell_operand(interface);
  if (value == SHELL_NOTHING || value == SHELL_TEXT) return STATUS_OK;
  TRY(buffer_append_string(out, " \\\n    '", err));
  if (interface->max_operands > 1) TRY(buffer_append_string(out, "*", err));
  TRY(put_value(out, value,
                value == SHELL_DIRECTORY ? "directory"
                : value == SHELL_CHAT    ? "chat"
                                         : "model",
                interface->operand_words, err));
  return buffer_append_string(out, "'", err);
}

static Status put_command(Buffer *out, const Command *command, Error *err) {
  TRY(buffer_printf(out, err, "_auk_%s() {\n  _arguments \"$@\"", command->name));
  const Flag *flag;
  Word name;
  for (size_t i = 0, offset; (flag = interface_flag(command->interface, i, &offset)); i++)
    for (const char *at = flag->names; flag_next_name(&at, &name);) TRY(put_spelling(out, flag, name, err));
  TRY(put_operand(out, command->interface, err));
  return buffer_append_string(out, "\n}\n\n", err);
}

static const char helpers[] =
    "_auk_checkpoints() {\n"
    "  local -a names\n"
    "  names=(${(f)\"$(_call_program models ${(q)_auk_program} models --names 2>/dev/null)\"})\n"
    "  _alternative 'models:model:compadd -a names' 'files:file:_files'\n"
    "}\n"
    "_auk_chat_names() {\n"
    "  local -a names=($*)\n"
    "  (($# && CURRENT == 2)) ||\n"
    "    names=(${(f)\"$(_call_program chats ${(q)_auk_program} chats --names 2>/dev/null)\"})\n"
    "  compadd -a names\n"
    "}\n"
    "_auk_prompt_names() {\n"
    "  local -a names\n"
    "  names=(${(f)\"$(_call_program prompts ${(q)_auk_program} prompts --names 2>/dev/null)\"})\n"
    "  _alternative 'prompts:prompt:compadd -a names' 'files:file:_files'\n"
    "}\n"
    "_auk_word_or_file() {\n"
    "  local -a choices=(\"$@\")\n"
    "  _alternative 'words:name:compadd -a choices' 'files:file:_files'\n"
    "}\n\n";

static const char end[] = "  local -a more\n"
                          "  ((CURRENT == 2)) && more=('--version[say which auk this is]')\n"
                          "  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
                          "    _describe -t commands command commands\n"
                          "    return\n"
                          "  fi\n"
                          "  if ((CURRENT > 2)) && [[ -n ${commands[(r)$words[2]:*]} ]]; then\n"
                          "    command=$words[2]\n"
                          "    shift words\n"
                          "    ((CURRENT--))\n"
                          "  fi\n"
                          "  _auk_$command $more\n"
                          "}\n\n"
                          "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
                          "  _auk \"$@\"\n"
                          "else\n"
                          "  compdef _auk auk\n"
                          "fi\n";

Status completions_zsh(Buffer *out, Error *err) {
  TRY(buffer_append_string(out, "#compdef auk\n# zsh completion of auk, printed by `auk completions zsh`\n\n",
                           err));
  TRY(buffer_append_string(out, helpers, err));
  for (size_t c = 0; c < n_commands; c++) TRY(put_command(out, &commands[c], err));
  TRY(buffer_append_string(
      out, "_auk() {\n  local command=run _auk_program=$words[1]\n  local -a commands\n  commands=(\n", err));
  for (size_t c = 0; c < n_commands; c++)
    TRY(buffer_printf(out, err, "    '%s:%s'\n", commands[c].name, commands[c].about));
  TRY(buffer_append_string(out, "  )\n", err));
  return buffer_append_string(out, end, err);
}
