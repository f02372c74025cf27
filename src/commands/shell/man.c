/* man.c - `auk man`: prints the manual page auk(1), generated from the command table. Called by: main.c, and
 * `make install` through it.
 * Always true: every flag of every table is listed once; tables that several commands share have their own
 *              section. The page is written in man(7)'s macros, for groff and mandoc. */
#include <string.h>

#include "commands/commands.h"
#include "commands/shell/guide.h"

/* --- escaping for roff */

/* Escapes the backslash, and the characters that groff would replace by typographic ones. */
static Status put_character(Buffer *out, char c, Error *err) {
  static const struct {
    char c;
    const char *roff;
  } special[] = {{'\\', "\\(rs"}, {'-', "\\-"},   {'\'', "\\(aq"},
                 {'`', "\\(ga"},  {'^', "\\(ha"}, {'~', "\\(ti"}};
  for (size_t i = 0; i < sizeof special / sizeof *special; i++)
    if (special[i].c == c) return buffer_append_string(out, special[i].roff, err);
  return buffer_append(out, &c, 1, err);
}

static Status put_text(Buffer *out, const char *text, size_t size, Error *err) {
  bool begins_line = out->size > 0 && out->data[out->size - 1] == '\n';
  if (size && begins_line && text[0] == '.') TRY(buffer_append_string(out, "\\&", err));
  for (size_t i = 0; i < size; i++) TRY(put_character(out, text[i], err));
  return STATUS_OK;
}

static Status put_line(Buffer *out, const char *line, size_t size, Error *err) {
  TRY(put_text(out, line, size, err));
  return buffer_append(out, "\n", 1, err);
}

/* Writes filled text, broken at spaces because roff's tools expect short lines. */
static Status put_prose(Buffer *out, const char *text, size_t size, Error *err) {
  enum { WIDTH = 76 };
  while (size > WIDTH) {
    size_t end = WIDTH;
    while (end > 0 && text[end] != ' ') end--;
    if (end == 0) break;
    TRY(put_line(out, text, end, err));
    text += end + 1;
    size -= end + 1;
  }
  return put_line(out, text, size, err);
}

/* Begins a paragraph, except directly after a section's title. */
static Status begin_paragraph(Buffer *out, Error *err) {
  size_t line = out->size - 1; /* the text ends with a newline */
  while (line > 0 && out->data[line - 1] != '\n') line--;
  bool titled = strncmp(out->data + line, ".S", 2) == 0;
  return titled ? STATUS_OK : buffer_append_string(out, ".PP\n", err);
}

static Status put_lines(Buffer *out, const char *lines, Error *err) {
  for (const char *line = lines; *line;) {
    size_t size = strcspn(line, "\n");
    TRY(put_line(out, line, size, err));
    line += size + (line[size] == '\n');
  }
  return STATUS_OK;
}

static Status put_verbatim(Buffer *out, const char *lines, Error *err) {
  TRY(begin_paragraph(out, err));
  TRY(buffer_append_string(out, ".nf\n", err));
  TRY(put_lines(out, lines, err));
  return buffer_append_string(out, ".fi\n", err);
}

/* Writes filled paragraphs; an empty line ends one, and lines that begin with a space are verbatim. */
static Status put_paragraphs(Buffer *out, const char *text, Error *err) {
  bool begun = false, verbatim = false;
  for (const char *line = text; *line;) {
    size_t size = strcspn(line, "\n");
    bool indented = line[0] == ' ';
    if (verbatim && !indented) TRY(buffer_append_string(out, ".fi\n", err));
    if (size && (!begun || indented != verbatim)) TRY(begin_paragraph(out, err));
    if (indented && !verbatim) TRY(buffer_append_string(out, ".nf\n", err));
    if (size) TRY(indented ? put_line(out, line, size, err) : put_prose(out, line, size, err));
    begun = size > 0;
    verbatim = indented;
    line += size + (line[size] == '\n');
  }
  return verbatim ? buffer_append_string(out, ".fi\n", err) : STATUS_OK;
}

static Status put_flag(Buffer *out, const Flag *flag, Error *err) {
  TRY(buffer_append_string(out, ".TP\n\\fB", err));
  TRY(put_text(out, flag->names, strlen(flag->names), err));
  TRY(buffer_append_string(out, "\\fR", err));
  if (flag->argument) {
    TRY(buffer_append_string(out, " \\fI", err));
    TRY(put_text(out, flag->argument, strlen(flag->argument), err));
    TRY(buffer_append_string(out, "\\fR", err));
  }
  TRY(buffer_append_string(out, "\n", err));
  return put_prose(out, flag->help, strlen(flag->help), err);
}

static Status put_flags(Buffer *out, const FlagGroup *group, Error *err) {
  for (size_t f = 0; f < group->n_flags; f++) TRY(put_flag(out, &group->flags[f], err));
  return STATUS_OK;
}

/* Counts the commands that have this table; *first: `command` is the first of them. */
static int count_users(const Flag *flags, size_t command, bool *first) {
  int count = 0;
  *first = false;
  for (size_t c = 0; c < n_commands; c++) {
    const FlagGroup *group;
    for (size_t g = 0; (group = interface_group(commands[c].interface, g)); g++) {
      if (group->flags != flags) continue;
      if (count++ == 0) *first = c == command;
    }
  }
  return count;
}

static bool is_shared(const FlagGroup *group, size_t command, bool *first) {
  return count_users(group->flags, command, first) > 1;
}

/* --- sections */

static Status put_synopsis(Buffer *out, Error *err) {
  TRY(buffer_append_string(out, ".SH SYNOPSIS\n.nf\n", err));
  for (size_t c = 0; c < n_commands; c++) TRY(put_lines(out, commands[c].interface->usage, err));
  return buffer_append_string(out, ".fi\n", err);
}

/* Lists the shared groups of a command, except the group that every command has. */
static Status put_references(Buffer *out, const Interface *interface, size_t command, Error *err) {
  const char *before = "Also the flags, described below, of: ", *after = "";
  TRY(begin_paragraph(out, err));
  for (size_t g = 0; g < interface->n_groups; g++) {
    const FlagGroup *group = &interface->groups[g];
    bool first;
    if (!is_shared(group, command, &first)) continue;
    TRY(buffer_append_string(out, before, err));
    TRY(put_text(out, group->title, strlen(group->title), err));
    before = ", ", after = ".\n";
  }
  return buffer_append_string(out, after, err);
}

static Status put_command(Buffer *out, size_t command, Error *err) {
  const Interface *interface = commands[command].interface;
  TRY(buffer_printf(out, err, ".SS auk %s\n", commands[command].name));
  TRY(put_paragraphs(out, interface->about, err));
  if (interface->examples) TRY(put_verbatim(out, interface->examples, err));
  const FlagGroup *group;
  bool first, shared = false;
  for (size_t g = 0; (group = interface_group(interface, g)); g++) {
    if (is_shared(group, command, &first)) {
      shared |= g < interface->n_groups;
      continue;
    }
    TRY(begin_paragraph(out, err));
    TRY(buffer_append_string(out, ".I ", err));
    TRY(put_line(out, group->title, strlen(group->title), err));
    TRY(put_flags(out, group, err));
  }
  return shared ? put_references(out, interface, command, err) : STATUS_OK;
}

static Status put_shared_flags(Buffer *out, Error *err) {
  TRY(buffer_append_string(out, ".SH FLAGS OF SEVERAL COMMANDS\n", err));
  for (size_t c = 0; c < n_commands; c++) {
    const FlagGroup *group;
    for (size_t g = 0; (group = interface_group(commands[c].interface, g)); g++) {
      bool first;
      if (!is_shared(group, c, &first) || !first) continue;
      TRY(buffer_append_string(out, ".SS ", err));
      TRY(put_line(out, group->title, strlen(group->title), err));
      TRY(put_flags(out, group, err));
    }
  }
  return STATUS_OK;
}

typedef struct {
  const char *tag, *text;
} Entry;

static Status put_entries(Buffer *out, const char *title, const Entry *entries, size_t n, Error *err) {
  TRY(buffer_printf(out, err, ".SH %s\n", title));
  for (size_t i = 0; i < n; i++) {
    TRY(buffer_append_string(out, ".TP\n.B ", err));
    TRY(put_line(out, entries[i].tag, strlen(entries[i].tag), err));
    TRY(put_prose(out, entries[i].text, strlen(entries[i].text), err));
  }
  return STATUS_OK;
}

static const Entry statuses[] = {
    {"0", "Done."},
    {"1", "Failed: a file, the memory, the device; records of --map; -x found no code."},
    {"2", "Usage: a flag, or a prompt that cannot be taken."},
    {"3", "The model, its tokenizer or its chat template is refused."},
    {"4", "The answer was cut before its form, a call or the block of -x was complete, or --require-stop was "
          "given."},
    {"10, 11, ...", "With --exit-choice: the first, the second ... of --choose was chosen."},
    {"130", "Interrupted."},
    {"141", "The reader of the output went away."},
};

static const Entry variables[] = {
    {"AUK_MODEL", "The model where neither a flag nor the file of settings names one."},
    {"HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME",
     "Where Hugging Face's cache lies, in which models are found by name: the first that is set of "
     "$HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub and $XDG_CACHE_HOME/huggingface/hub, else "
     "~/.cache/huggingface/hub. $XDG_CACHE_HOME is also where --cache keeps its files."},
    {"XDG_CONFIG_HOME", "Where the file of settings and the prompts are, else ~/.config."},
    {"XDG_STATE_HOME", "Where chats and what was entered in them are kept, else ~/.local/state."},
    {"AUK_KEEP", "How long a process keeps the model for later calls where --keep does not say it."},
    {"XDG_RUNTIME_DIR", "Where the sockets of processes that keep models are, else in /tmp, in a directory "
                        "that only this user may enter."},
    {"CUDA_VISIBLE_DEVICES",
     "Which GPUs there are; a process that keeps a model answers calls that see the same."},
    {"MASTER_ADDR, MASTER_PORT, AUK_RANKS_KEY, AUK_RANKS_TIMEOUT",
     "Where the processes of --split auto find rank 0, what they know each other by, and how many seconds "
     "they wait for each other."},
    {"SLURM_STEP_NODELIST, SLURM_NODELIST, SLURM_STEP_NUM_NODES, SLURM_NNODES",
     "Slurm's own: the machines of a job, of which --split auto takes the first one as rank 0's where "
     "MASTER_ADDR is not set."},
    {"TORCHELASTIC_RUN_ID, RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE",
     "torchrun's own: which of how many processes this is, for --split auto and --shard auto. Where the "
     "first is not set, the others are not looked at."},
    {"VISUAL, EDITOR, TMPDIR",
     "What /edit of a chat opens, vi where neither is set; its file is in $TMPDIR, else in /tmp."},
    {"NO_COLOR, TERM", "Where NO_COLOR is set, or TERM is dumb, nothing is dim or coloured on a terminal; a "
                       "dumb one is shown no progress."},
    {"OMP_WAIT_POLICY, GOMP_SPINCOUNT",
     "How threads wait for each other. Where neither is set they spin for some ten microseconds and sleep "
     "then, so that a machine which is busy with other things gives what it has."},
    {"OMP_STACKSIZE",
     "Where it is set, whatever it says, threads have stacks of 1 MiB; so they have where ulimit -s is less "
     "than 1 MiB or more than 64 MiB, but not where it is unlimited."},
};

static const Entry files[] = {
    {"MODEL/config.json, *.safetensors, tokenizer.json",
     "A checkpoint in Hugging Face's layout. chat_template.jinja, tokenizer_config.json, "
     "added_tokens.json, generation_config.json and special_tokens_map.json are read where they are."},
    {"*.ak48", "A checkpoint's weights as packed by auk pack, with config.json, tokenizer.json and the like "
               "beside it."},
    {"~/.cache/huggingface/hub",
     "Checkpoints that were downloaded by name, by auk get NAME or hf download NAME"},
    {"~/.cache/auk", "Beginnings of prompts that --cache has kept; auk cache lists them."},
    {"~/.config/auk/config", "Settings, a flag per line."},
    {"~/.config/auk/prompts", "Prompts for -P, a file each."},
    {"~/.config/auk/ranks-key",
     "By which the processes of --split auto know each other; --split auto makes it."},
    {"~/.local/state/auk/chats", "Chats that kept themselves; auk chats lists them."},
    {"~/.local/state/auk/history", "What was entered in chats; a symbolic link is followed."},
    {"~/.editrc", "The keys of a chat's line, as editrc(5) has them."},
};

static const char examples[] = "auk -m MODEL -p \"Why is the sky blue?\"\n"
                               "auk chat -m MODEL\n"
                               "git diff | auk -m Qwen/Qwen3-8B-AWQ -p \"Review this change.\"\n"
                               "auk -m MODEL -f notes.txt -p \"What was decided?\" >decisions.txt\n"
                               "auk models\n"
                               "auk inspect MODEL";

static const char description[] =
    "auk runs quantised language models from the shell, on an NVIDIA GPU or on a CPU. The answer goes to "
    "standard output and nothing else does; messages go to standard error. MODEL is a "
    "Hugging Face directory, a packed file, or a name such as Qwen/Qwen3-8B-AWQ (with @REVISION behind it "
    "or not) that is in Hugging Face's local cache. auk downloads nothing itself: auk get runs Hugging "
    "Face's own tool. Only the processes of --split auto connect to each other over the network.\n"
    "\n"
    "Names of flags are matched whole; an underscore is as good as a dash. A value follows as the next "
    "argument, whatever it begins with, or behind = for names of two dashes. Where a flag is given twice, "
    "the last one counts, unless its description says that it may be repeated. A flag that would have no "
    "effect beside another one is refused. -- ends the flags. Without a command, auk is auk run.";

static Status put_page(Buffer *out, Error *err) {
  TRY(buffer_append_string(
      out, ".TH AUK 1 \"" AUK_RELEASED "\" \"auk " AUK_VERSION "\" \"User Commands\"\n.ad l\n.nh\n", err));
  TRY(buffer_append_string(out, ".SH NAME\nauk \\- run quantised language models from the shell\n", err));
  TRY(put_synopsis(out, err));
  TRY(buffer_append_string(out, ".SH DESCRIPTION\n", err));
  TRY(put_paragraphs(out, description, err));
  TRY(buffer_append_string(out, ".SH COMMANDS\n", err));
  for (size_t c = 0; c < n_commands; c++) TRY(put_command(out, c, err));
  TRY(put_shared_flags(out, err));
  for (size_t i = 0; i < n_guide; i++) {
    TRY(buffer_printf(out, err, ".SH %s\n", guide[i].title));
    TRY(put_paragraphs(out, guide[i].text, err));
  }
  TRY(put_entries(out, "EXIT STATUS", statuses, sizeof statuses / sizeof *statuses, err));
  TRY(put_entries(out, "ENVIRONMENT", variables, sizeof variables / sizeof *variables, err));
  TRY(put_entries(out, "FILES", files, sizeof files / sizeof *files, err));
  TRY(buffer_append_string(out, ".SH EXAMPLES\n", err));
  return put_verbatim(out, examples, err);
}

static Status run(CommandCall *call, Error *err) {
  return put_page(&call->out, err);
}

const Interface man_interface = {
    .usage = "auk man",
    .about = "Prints the manual page, auk(1), which `make install` puts where man looks for it.",
    .examples = "auk man | man -l -      # to read it",
    .run = run,
};
