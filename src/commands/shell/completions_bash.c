/* completions_bash.c - the script for bash 4 or newer (without the package bash-completion).   Called by:
 * completions.c. One function: a case for each command sets its flags and the kinds of their values; a common
 * end computes the candidates. bash splits "--kv=f16" into three words. */
#include "commands/commands.h"
#include "commands/shell/completions.h"

static const char beginning[] = "# bash completion of auk, printed by `auk completions bash`\n"
                                "_auk() {\n"
                                "  local program=$1 current=$2 flag=$3 command=run flags='' value='' "
                                "words='' operand='' operand_words=''\n"
                                "  if [[ $current == = ]]; then\n"
                                "    current=''\n"
                                "  elif [[ $flag == = ]]; then\n"
                                "    flag=${COMP_WORDS[COMP_CWORD - 2]}\n"
                                "  fi\n";

static const char end[] =
    "  if [[ -z $value && $current == -* ]]; then\n"
    "    words=$flags\n"
    "    [[ $COMP_CWORD == 1 ]] && words+=' --version'\n"
    "  elif [[ -z $value && $COMP_CWORD == 1 ]]; then\n"
    "    words=$commands\n"
    "  elif [[ -z $value ]]; then\n"
    "    value=$operand words=$operand_words\n"
    "  fi\n"
    "  COMPREPLY=()\n"
    "  case $value in\n"
    "  model)\n"
    "    mapfile -t COMPREPLY < <(\n"
    "      compgen -f -- \"$current\"\n"
    "      while IFS= read -r; do [[ $REPLY == \"$current\"* ]] && printf '%s\\n' \"$REPLY\"; done \\\n"
    "        < <(\"${program/#\\~\\//$HOME/}\" models --names 2>/dev/null)\n"
    "    )\n"
    "    ;;\n"
    "  chat)\n"
    "    [[ -n $words && $COMP_CWORD == 2 ]] ||\n"
    "      words=$(\"${program/#\\~\\//$HOME/}\" chats --names 2>/dev/null)\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
    "    ;;\n"
    "  prompt) mapfile -t COMPREPLY < <(compgen -W \"$(\"${program/#\\~\\//$HOME/}\" prompts --names "
    "2>/dev/null)\" -- \"$current\"; [[ $current == */* ]] && compgen -f -- \"$current\") ;;\n"
    "  file) mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n"
    "  directory) mapfile -t COMPREPLY < <(compgen -d -- \"$current\") ;;\n"
    "  word_or_file) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\"; "
    "compgen -f -- \"$current\") ;;\n"
    "  text) ;;\n"
    "  *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\") ;;\n"
    "  esac\n"
    "  case $value in model | file | directory | word_or_file) compopt -o filenames 2>/dev/null ;; esac\n"
    "}\n"
    "complete -F _auk auk\n";

static Status put_names(Buffer *out, const Interface *interface, Error *err) {
  const Flag *flag;
  Word name;
  TRY(buffer_append_string(out, "    flags='", err));
  for (size_t i = 0, offset; (flag = interface_flag(interface, i, &offset)); i++)
    for (const char *at = flag->names; flag_next_name(&at, &name);)
      TRY(buffer_printf(out, err, "%.*s ", (int)name.size, name.text));
  return buffer_append_string(out, "'\n", err);
}

/* Writes the case of a flag that takes a value: its kind, and the words of a choice. */
static Status put_case(Buffer *out, const Flag *flag, Error *err) {
  const ShellValue value = flag_shell_value(flag);
  Word name;
  if (value == SHELL_NOTHING) return STATUS_OK;
  for (const char *at = flag->names; flag_next_name(&at, &name);)
    TRY(buffer_printf(out, err, "%s%.*s", name.text == flag->names ? "    " : " | ", (int)name.size,
                      name.text));
  TRY(buffer_printf(out, err, ") value='%s' words='", shell_names[value].bash));
  if (value >= SHELL_WORDS) TRY(completions_put_words(out, flag_shell_words(flag), err));
  return buffer_append_string(out, "' ;;\n", err);
}

static Status put_command(Buffer *out, const Command *command, Error *err) {
  const Interface *interface = command->interface;
  TRY(buffer_printf(out, err, "  %s)\n", command->name));
  TRY(put_names(out, interface, err));
  TRY(buffer_append_string(out, "    case $flag in\n", err));
  const Flag *flag;
  for (size_t i = 0, offset; (flag = interface_flag(interface, i, &offset)); i++)
    TRY(put_case(out, flag, err));
  TRY(buffer_printf(out, err, "    esac\n    operand='%s'",
                    shell_names[interface_shell_operand(interface)].bash));
  if (interface->operand_words) {
    TRY(buffer_append_string(out, " operand_words='", err));
    TRY(completions_put_words(out, interface->operand_words, err));
    TRY(buffer_append_string(out, "'", err));
  }
  return buffer_append_string(out, "\n    ;;\n", err);
}

Status completions_bash(Buffer *out, Error *err) {
  TRY(buffer_append_string(out, beginning, err));
  TRY(buffer_append_string(out, "  local commands='", err));
  for (size_t c = 0; c < n_commands; c++)
    TRY(buffer_printf(out, err, "%s%s", c ? " " : "", commands[c].name));
  TRY(buffer_append_string(
      out,
      "'\n  if ((COMP_CWORD > 1)) && [[ \" $commands \" == *\" ${COMP_WORDS[1]} \"* ]]; then\n"
      "    command=${COMP_WORDS[1]}\n  fi\n  case $command in\n",
      err));
  for (size_t c = 0; c < n_commands; c++) TRY(put_command(out, &commands[c], err));
  TRY(buffer_append_string(out, "  esac\n", err));
  return buffer_append_string(out, end, err);
}
