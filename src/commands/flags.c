/* flags.c - see flags.h.
 * Always true: a value (of KIND_INTS: each number) is stored only after it was parsed in full and found in
 *              range. */
#include "commands/flags.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/did_you_mean.h"
#include "commands/foreign_words.h"

/* --- lists */

Status string_list_add(StringList *list, const char *item, Error *err) {
  return APPEND(list->items, list->count, list->capacity, "arguments", err, item);
}

void string_list_release(StringList *list) {
  free(list->items);
  *list = (StringList){0};
}

/* --- values */

static Status refuse(const char *name, const char *text, const Flag *flag, const char *kind, Error *err) {
  return error_set(err, STATUS_USAGE, "%s is \"%s\", expected %s from %.10g to %.10g", name, text, kind,
                   flag->low, flag->high);
}

static Status read_int(const char *name, const char *text, size_t size, const Flag *flag, int *out,
                       Error *err) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  bool whole = size > 0 && end == text + size && errno == 0 && strspn(text, "+-0123456789") >= size;
  if (!whole || (double)value < flag->low || (double)value > flag->high)
    return refuse(name, text, flag, "a whole number", err);
  *out = (int)value;
  return STATUS_OK;
}

static Status read_double(const char *name, const char *text, const Flag *flag, double *out, Error *err) {
  char *end;
  double value = strtod(text, &end);
  bool whole = *text && *end == 0 && strspn(text, "+-.0123456789eE") == strlen(text);
  if (!whole || !(value >= flag->low && value <= flag->high))
    return refuse(name, text, flag, "a number", err);
  *out = value;
  return STATUS_OK;
}

static Status read_seed(const char *name, const char *text, Seed *out, Error *err) {
  if (strcmp(text, "-1") == 0) {
    out->given = false;
    return STATUS_OK;
  }
  errno = 0;
  uint64_t value = strtoull(text, NULL, 10);
  if (!*text || errno || strspn(text, "0123456789") != strlen(text))
    return error_set(err, STATUS_USAGE, "%s is \"%s\", expected a whole number below 2^64, or -1", name,
                     text);
  *out = (Seed){true, value};
  return STATUS_OK;
}

static Status read_choice(const char *name, const char *text, const Flag *flag, int *out, Error *err) {
  Suggestion nearest = suggestion_begin(text, strlen(text));
  const char *at = flag->argument;
  Word word;
  for (int index = 0; flag_next_choice(&at, &word); index++) {
    if (strlen(text) == word.size && memcmp(text, word.text, word.size) == 0) {
      *out = index;
      return STATUS_OK;
    }
    suggestion_consider(&nearest, word.text, word.size);
  }
  if (!nearest.word)
    return error_set(err, STATUS_USAGE, "%s is \"%s\", expected %s", name, text, flag->argument);
  return error_set(err, STATUS_USAGE, "%s is \"%s\", expected %s: did you mean %.*s?", name, text,
                   flag->argument, (int)nearest.word_size, nearest.word);
}

static Status add_ints(const char *name, const char *text, const Flag *flag, IdList *out, Error *err) {
  for (const char *at = text;; at++) {
    size_t size = strcspn(at, ",");
    int value = 0;
    Status status = read_int(name, at, size, flag, &value, err);
    if (status) return refuse(name, text, flag, "whole numbers, separated by commas,", err);
    TRY(id_list_append(out, value, err));
    at += size;
    if (!*at) return STATUS_OK;
  }
}

Status flag_check_filled(const char *name, const char *text, Error *err) {
  if (*text) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is empty (is a variable unset?)", name);
}

/* `value` points at the flag's member, whose type MEMBER_OF_TYPE has checked. */
static Status take_value(const Flag *flag, void *value, const char *name, const char *text, Error *err) {
  if (text && flag->hint != VALUE_TEXT) TRY(flag_check_filled(name, text, err));
  if (flag->check) TRY(flag->check(name, text, err));
  switch (flag->kind) {
  case KIND_SWITCH: break;
  case KIND_INT: return read_int(name, text, strlen(text), flag, value, err);
  case KIND_DOUBLE: return read_double(name, text, flag, value, err);
  case KIND_SEED: return read_seed(name, text, value, err);
  case KIND_STRING: *(const char **)value = text; return STATUS_OK;
  case KIND_CHOICE: return read_choice(name, text, flag, value, err);
  case KIND_STRINGS: return string_list_add(value, text, err);
  case KIND_INTS: return add_ints(name, text, flag, value, err);
  case KIND_OPTIONAL: *(OptionalText *)value = (OptionalText){true, text}; return STATUS_OK;
  }
  *(bool *)value = true;
  return STATUS_OK;
}

/* --- names */

static bool next_word(const char **at, char separator, Word *word) {
  if (!**at) return false;
  const char *end = strchr(*at, separator);
  *word = (Word){*at, end ? (size_t)(end - *at) : strlen(*at)};
  *at += word->size;
  while (**at == separator || **at == ' ') (*at)++;
  return true;
}

bool flag_next_name(const char **at, Word *name) {
  return next_word(at, ',', name);
}

bool flag_next_choice(const char **at, Word *word) {
  return next_word(at, '|', word);
}

/* Underscores match dashes, as in Hugging Face's scripts: --top_k is --top-k. */
static bool same_name(Word name, const char *text, size_t size) {
  if (name.size != size) return false;
  for (size_t i = 0; i < size; i++)
    if (name.text[i] != (text[i] == '_' ? '-' : text[i])) return false;
  return true;
}

static bool has_name(const char *names, const char *text, size_t size) {
  Word name;
  while (flag_next_name(&names, &name))
    if (same_name(name, text, size)) return true;
  return false;
}

static const Flag common_flags[] = {
    {.names = "-h, --help",
     .help = "shows this help; of run and chat, --help all lists every flag",
     .kind = KIND_SWITCH},
    {.names = "--no-config", .help = "without the file of settings", .kind = KIND_SWITCH},
};
static const FlagGroup common_group = FLAG_GROUP("Every command", common_flags);

const FlagGroup *interface_group(const Interface *interface, size_t index) {
  if (index < interface->n_groups) return &interface->groups[index];
  return index == interface->n_groups ? &common_group : NULL;
}

const Flag *interface_flag(const Interface *interface, size_t index, size_t *offset) {
  const FlagGroup *group;
  for (size_t g = 0; (group = interface_group(interface, g)) && index >= group->n_flags; g++)
    index -= group->n_flags;
  if (!group) return NULL;
  *offset = group->offset + group->flags[index].offset;
  return &group->flags[index];
}

/* A flag, the offset of its value in the options, and its index among all flags of the command. */
typedef struct {
  const Flag *flag; /* NULL: no flag has this name */
  size_t offset, index;
} Found;

static Found find_flag(const Interface *interface, const char *text, size_t size) {
  Found found = {0};
  while ((found.flag = interface_flag(interface, found.index, &found.offset)) &&
         !has_name(found.flag->names, text, size))
    found.index++;
  return found;
}

const Flag *interface_find(const Interface *interface, const char *text, size_t size, size_t *offset) {
  const Found found = find_flag(interface, text, size);
  const bool is_common = found.flag >= common_flags && found.flag < common_flags + common_group.n_flags;
  *offset = found.offset;
  return is_common ? NULL : found.flag;
}

/* Length of the flag's name at the beginning of -n5, -n=5 or llama.cpp's -ngl99; 0: there is none. */
static size_t glued_name(const Interface *interface, const char *text) {
  const size_t size = strcspn(text, "=0123456789");
  const Flag *flag = find_flag(interface, text, size).flag;
  const ForeignKind kind = interface->takes_foreign ? foreign_idle(text, size) : FOREIGN_OTHER;
  const bool takes_value = flag ? flag->kind != KIND_SWITCH : kind == FOREIGN_VALUE || kind == FOREIGN_ON_OFF;
  return text[size] && takes_value ? size : 0;
}

/* Adds to parse->unknown the message that the flag text[0..size) is unknown, with advice. */
static Status add_unknown(FlagParse *parse, const char *text, size_t size, Error *err) {
  const Interface *interface = parse->interface;
  const char *instead = foreign_flag(text, size);
  const size_t glued = glued_name(interface, text);
  Buffer *out = &parse->unknown;
  TRY(buffer_printf(out, err, "%sunknown flag %.*s", out->size ? "; " : "", (int)size, text));
  if (instead) return buffer_printf(out, err, ": %s", instead);
  if (interface == &chat_interface && find_flag(&run_interface, text, size).flag)
    return buffer_append_string(out, ": it is for one answer (auk run)", err);
  if (glued)
    return buffer_printf(out, err, ": did you mean \"%.*s %s\"?", (int)glued, text,
                         text + glued + (text[glued] == '='));
  Suggestion nearest = suggestion_begin(text, size);
  const Flag *flag;
  Word name;
  for (size_t i = 0, offset; (flag = interface_flag(interface, i, &offset)); i++)
    for (const char *at = flag->names; flag_next_name(&at, &name);)
      suggestion_consider(&nearest, name.text, name.size);
  if (!nearest.word) return buffer_append_string(out, " (--help lists what there is)", err);
  return buffer_printf(out, err, ": did you mean %.*s?", (int)nearest.word_size, nearest.word);
}

static Status take_flag(FlagParse *parse, int argc, char **argv, int *at, Error *err);

/* Takes a flag that the command lacks: ignores or translates a flag of llama.cpp, adds any other to
 * parse->unknown. */
static Status take_other(FlagParse *parse, int argc, char **argv, int *at, size_t size, Error *err) {
  char *text = argv[*at], *next = *at + 1 < argc ? argv[*at + 1] : NULL;
  const bool has_value = text[size] == '=', takes = parse->interface->takes_foreign;
  const ForeignKind kind = takes ? foreign_idle(text, size) : FOREIGN_OTHER;
  const char *value = has_value ? text + size + 1 : next, *own, *own_value;
  if (takes && value && foreign_translate(text, size, value, &own, &own_value)) {
    char *same[] = {argv[0], (char *)own, (char *)own_value};
    int from = 1;
    *at += !has_value;
    return take_flag(parse, 3, same, &from, err);
  }
  if (kind == FOREIGN_OTHER) return add_unknown(parse, text, size, err);
  const bool is_on_off = next && (!strcmp(next, "on") || !strcmp(next, "off") || !strcmp(next, "auto") ||
                                  !strcmp(next, "0") || !strcmp(next, "1"));
  if (!has_value && next && (kind == FOREIGN_VALUE || (kind == FOREIGN_ON_OFF && is_on_off))) ++*at;
  return buffer_printf(&parse->idle, err, "%s%.*s", parse->idle.size ? ", " : "", (int)size, text);
}

/* Parses the flag at argv[*at] and its value; *at moves to the last argument consumed. */
static Status take_flag(FlagParse *parse, int argc, char **argv, int *at, Error *err) {
  const Interface *interface = parse->interface;
  const char *text = argv[*at], *equals = strncmp(text, "--", 2) == 0 ? strchr(text, '=') : NULL;
  size_t size = equals ? (size_t)(equals - text) : strlen(text);
  const Found found = find_flag(interface, text, size);
  const Flag *flag = found.flag;
  if (!flag) return take_other(parse, argc, argv, at, size, err);
  if (flag->once && parse->given[found.index].text)
    return error_set(err, STATUS_USAGE, "%.*s is given twice, expected one", (int)size, text);
  parse->given[found.index] = (Word){text, size};
  parse->n_given++;
  void *value = (char *)parse->options + found.offset;
  char name[64];
  size_t shown = size < sizeof name ? size : sizeof name - 1;
  memcpy(name, text, shown);
  name[shown] = 0;
  if (flag->kind == KIND_SWITCH) {
    if (equals) return error_set(err, STATUS_USAGE, "%s takes no value, found \"%s\"", name, equals + 1);
    return take_value(flag, value, name, NULL, err);
  }
  if (equals) return take_value(flag, value, name, equals + 1, err);
  if (flag->kind == KIND_OPTIONAL && (*at + 1 >= argc || argv[*at + 1][0] == '-'))
    return take_value(flag, value, name, NULL, err);
  if (*at + 1 >= argc) return error_set(err, STATUS_USAGE, "%s needs a value (%s)", name, flag->argument);
  return take_value(flag, value, name, argv[++*at], err);
}

/* --- rules */

/* True if the rule does not exclude a flag with this value. text_of_setting: of a setting, which has no
 * value yet; or NULL. */
static bool is_exempt(const FlagRule *rule, const void *value, const char *text_of_setting) {
  if (rule->kind == IDLE_AT_ZERO) return *(const double *)value != 0;
  if (rule->kind == EXCLUDES_ZERO)
    return text_of_setting ? strtod(text_of_setting, NULL) != 0 : *(const int *)value != 0;
  const char *text = rule->kind == EXCLUDES_UNLESS_ZERO ? *(const char *const *)value : NULL;
  return text && strtod(text, NULL) == 0; /* a text that is no number is refused later */
}

/* True if the flag is a choice (KIND_CHOICE) that has its default value. */
static bool is_default(const FlagParse *parse, const Found *found) {
  const char *defaults = parse->interface->defaults;
  const void *value = (const char *)parse->options + found->offset,
             *usual = defaults ? defaults + found->offset : NULL;
  return found->flag->kind == KIND_CHOICE && *(const int *)value == (usual ? *(const int *)usual : 0);
}

/* The first given flag of rule->flags (others: of rule->others), as the user spelled it; NULL: none. Skips
 * flags of rule->others that the rule exempts. If the rule excludes, also skips flags that choose the
 * default, except `setting`, which has no value yet, but a text. */
static const Word *first_given(const FlagParse *parse, const FlagRule *rule, bool others, const Word *setting,
                               const char *text) {
  const char *names = others ? rule->others : rule->flags;
  Word name;
  while (flag_next_name(&names, &name)) {
    const Found found = find_flag(parse->interface, name.text, name.size);
    const Word *given = found.flag ? &parse->given[found.index] : NULL;
    if (!given || !given->text) continue;
    const char *own = given == setting ? text : NULL;
    if (others && is_exempt(rule, (const char *)parse->options + found.offset, own)) continue;
    if (rule->kind != NEEDS && given != setting && is_default(parse, &found)) continue;
    return given;
  }
  return NULL;
}

static Status break_rule(const FlagRule *rule, Word flag, const Word *other, Error *err) {
  char others[128] = "";
  size_t n = 0;
  Word name;
  for (const char *at = rule->others;
       !other && flag_next_name(&at, &name) && n + name.size + 8 < sizeof others;)
    n +=
        (size_t)snprintf(others + n, sizeof others - n, "%s%.*s", n ? " or " : "", (int)name.size, name.text);
  return error_set(err, STATUS_USAGE, "%.*s %s %.*s%s%s%s", (int)flag.size, flag.text,
                   other ? "does not go with" : "needs", other ? (int)other->size : (int)n,
                   other ? other->text : others, rule->why ? " (" : "", rule->why ? rule->why : "",
                   rule->why ? ")" : "");
}

/* With `setting`, one of parse->given, checks only the rules that involve it: rules that the command line
 * breaks without the setting are no reason to refuse the setting. */
static Status check_rules(const FlagParse *parse, const Word *setting, const char *text, Error *err) {
  for (size_t r = 0; r < parse->interface->n_rules; r++) {
    const FlagRule *rule = &parse->interface->rules[r];
    if ((rule->kind == IDLE_AT_ZERO || rule->kind == EXCLUDES_ZERO) && !setting) continue;
    const Word *other = first_given(parse, rule, true, setting, text);
    const Word *flag = first_given(parse, rule, false, setting, text);
    if (setting && setting != flag && setting != other) continue;
    if (flag && !other == (rule->kind == NEEDS)) return break_rule(rule, *flag, other, err);
  }
  return STATUS_OK;
}

/* --- help */

enum { HELP_COLUMN = 28, HELP_WIDTH = 80 };

/* Appends text[0..size), wrapped at blanks to HELP_WIDTH; the cursor is at `indent`, where lines begin. A
 * newline counts as a blank. */
static Status put_wrapped(Buffer *out, const char *text, size_t size, int indent, Error *err) {
  size_t room = (size_t)(HELP_WIDTH - indent), column = 0;
  for (const char *word = text, *end = text + size; word < end;) {
    size_t length = 0;
    while (word + length < end && word[length] != ' ' && word[length] != '\n') length++;
    if (column && column + 1 + length > room) {
      TRY(buffer_printf(out, err, "\n%*s", indent, ""));
      column = 0;
    }
    if (column && length) TRY(buffer_append(out, " ", 1, err));
    TRY(buffer_append(out, word, length, err));
    column += length + (column > 0 && length > 0);
    word += length + 1;
  }
  return buffer_append(out, "\n", 1, err);
}

/* Appends the text Interface.about. A line that ends a sentence before its 85th column ends a paragraph;
 * lines that begin with a blank stay as they are. */
static Status put_about(Buffer *out, const char *about, Error *err) {
  enum { FULL = 85 };
  for (const char *start = about, *line = about; *line;) {
    const size_t length = strcspn(line, "\n");
    const char *next = line + length + (line[length] == '\n');
    const bool verbatim = *line == ' ' || length == 0, ends = !*next || *next == ' ' || *next == '\n';
    const bool sentence = length && length < FULL && line[length - 1] == '.';
    if (verbatim) {
      TRY(buffer_append(out, line, (size_t)(next - line), err));
      start = next;
    } else if (ends || sentence) {
      TRY(put_wrapped(out, start, (size_t)(line + length - start), 0, err));
      start = next;
    }
    line = next;
  }
  return STATUS_OK;
}

/* Appends a flag with its first `most_names` names. */
static Status put_flag(Buffer *out, const Flag *flag, int most_names, Error *err) {
  size_t start = out->size;
  Word name;
  int n = 0;
  for (const char *at = flag->names; n < most_names && flag_next_name(&at, &name); n++)
    TRY(buffer_printf(out, err, "%s%.*s", n ? ", " : "  ", (int)name.size, name.text));
  if (flag->argument) TRY(buffer_printf(out, err, " %s", flag->argument));
  size_t width = out->size - start;
  if (width + 2 > HELP_COLUMN) {
    TRY(buffer_append(out, "\n", 1, err));
    width = 0;
  }
  TRY(buffer_printf(out, err, "%*s", (int)(HELP_COLUMN - width), ""));
  return put_wrapped(out, flag->help, strlen(flag->help), HELP_COLUMN, err);
}

/* Appends lines with `first` before the first line and `rest` before the others. */
static Status put_lines(Buffer *out, const char *lines, const char *first, const char *rest, Error *err) {
  for (const char *line = lines; *line;) {
    size_t length = strcspn(line, "\n");
    TRY(buffer_printf(out, err, "%s%.*s\n", line == lines ? first : rest, (int)length, line));
    line += length + (line[length] == '\n');
  }
  return STATUS_OK;
}

static Status put_examples(Buffer *out, const Interface *interface, Error *err) {
  if (!interface->examples) return STATUS_OK;
  TRY(buffer_append_string(out, "\nExamples:\n", err));
  return put_lines(out, interface->examples, "  ", "  ", err);
}

/* Appends the short help: the first sentence, the examples and the flags that most people use. */
static Status put_first_screen(Buffer *out, const Interface *interface, Error *err) {
  const char *about = interface->about;
  size_t n_flags = 0, offset, first = strcspn(about, ".");
  while (interface_flag(interface, n_flags, &offset)) n_flags++;
  TRY(put_wrapped(out, about, first + (about[first] == '.'), 0, err));
  TRY(put_examples(out, interface, err));
  TRY(buffer_append_string(out, "\nFlags:\n", err));
  Word name;
  for (const char *at = interface->usual_flags; flag_next_name(&at, &name);)
    TRY(put_flag(out, find_flag(interface, name.text, name.size).flag, 2, err));
  TRY(put_flag(out, &common_flags[0], INT_MAX, err));
  return buffer_printf(out, err, "\n--help all lists all %zu flags, man auk explains them.\n", n_flags);
}

static Status put_help(Buffer *out, const Interface *interface, bool all, Error *err) {
  TRY(put_lines(out, interface->usage, "usage: ", "       ", err));
  TRY(buffer_append(out, "\n", 1, err));
  if (interface->usual_flags && !all) return put_first_screen(out, interface, err);
  TRY(put_about(out, interface->about, err));
  TRY(put_examples(out, interface, err));
  const FlagGroup *group;
  for (size_t g = 0; (group = interface_group(interface, g)); g++) {
    TRY(buffer_printf(out, err, "\n%s:\n", group->title));
    for (size_t f = 0; f < group->n_flags; f++) TRY(put_flag(out, &group->flags[f], INT_MAX, err));
  }
  return STATUS_OK;
}

static Status print_help(const Interface *interface, const char *which, Error *err) {
  OWNED(buffer_release) Buffer out = {0};
  TRY(put_help(&out, interface, which && strcmp(which, "all") == 0, err));
  return output_write(out.data, out.size, err);
}

bool flags_model(const Interface *interface, void *options, const char ***path, const char ***usual) {
  const Found found = find_flag(interface, "-m", 2);
  if (!found.flag || !found.flag->usual) return false;
  *path = (const char **)((char *)options + found.offset);
  *usual = (const char **)((char *)options + (found.offset - found.flag->offset + found.flag->usual));
  return true;
}

Status flags_take_model(const Interface *interface, void *options, const char *operand, Error *err) {
  const char **model = (const char **)((char *)options + find_flag(interface, "-m", 2).offset);
  if (*model) return error_set(err, STATUS_USAGE, "two models: %s and %s", *model, operand);
  *model = operand;
  return STATUS_OK;
}

void flags_release(const Interface *interface, void *options) {
  const Flag *flag;
  for (size_t i = 0, offset; (flag = interface_flag(interface, i, &offset)); i++) {
    if (flag->kind == KIND_STRINGS) string_list_release((StringList *)((char *)options + offset));
    if (flag->kind == KIND_INTS) id_list_release((IdList *)((char *)options + offset));
  }
}

/* --- a call */

Status flags_begin(const Interface *interface, void *options, FlagParse *parse, Error *err) {
  size_t n_flags = 0, offset;
  while (interface_flag(interface, n_flags, &offset)) n_flags++;
  *parse = (FlagParse){.interface = interface,
                       .options = options,
                       .given = mem_alloc(n_flags, sizeof *parse->given, "flags", err),
                       .sources = mem_alloc(n_flags, sizeof *parse->sources, "flags", err)};
  return parse->given && parse->sources ? STATUS_OK : STATUS_FAILED;
}

void flags_end(FlagParse *parse) {
  free(parse->given);
  free(parse->sources);
  buffer_release(&parse->unknown);
  buffer_release(&parse->idle);
  *parse = (FlagParse){0};
}

Status flags_take(FlagParse *parse, int argc, char **argv, const char **operands, size_t *n_operands,
                  Error *err) {
  const Interface *interface = parse->interface;
  size_t n = 0;
  bool ended = false;
  for (int at = 1; at < argc; at++) {
    const char *text = argv[at];
    if (!ended && strcmp(text, "--") == 0) {
      ended = true;
    } else if (!ended && (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0)) {
      parse->helped = true;
      return print_help(interface, at + 1 < argc ? argv[at + 1] : NULL, err);
    } else if (!ended && (strcmp(text, "--no-config") == 0 || strcmp(text, "--no_config") == 0)) {
      parse->no_config = true;
    } else if (!ended && text[0] == '-' && text[1]) {
      TRY(take_flag(parse, argc, argv, &at, err));
    } else if (n < interface->max_operands) {
      if (interface->operands != VALUE_TEXT) TRY(flag_check_filled("an argument", text, err));
      operands[n++] = text;
    } else if (parse->unknown.size == 0) { /* else it may be the value of an unknown flag */
      return error_set(err, STATUS_USAGE, "unexpected argument \"%s\" (%.*s; --help says more)", text,
                       (int)strcspn(interface->usage, "\n"), interface->usage);
    }
  }
  if (n_operands) *n_operands = n;
  if (parse->unknown.size)
    return error_set(err, STATUS_USAGE, "%.*s", (int)parse->unknown.size, parse->unknown.data);
  TRY(check_rules(parse, NULL, NULL, err));
  if (parse->idle.size)
    print_note("left out, since nothing is needed for it here: %.*s", (int)parse->idle.size,
               parse->idle.data);
  return n && interface->operands == VALUE_MODEL
             ? flags_take_model(interface, parse->options, operands[0], err)
             : STATUS_OK;
}

Status flags_parse(const Interface *interface, void *options, int argc, char **argv, const char **operands,
                   size_t *n_operands, bool *helped, Error *err) {
  FlagParse parse;
  Status status = flags_begin(interface, options, &parse, err);
  if (status == STATUS_OK) status = flags_take(&parse, argc, argv, operands, n_operands, err);
  *helped = parse.helped;
  flags_end(&parse);
  return status;
}

/* --- arguments for another process */

static Status write_flag(const Flag *flag, const void *value, Buffer *out, Error *err) {
  const char *names = flag->names, *words = flag->argument;
  Word name, word = {"", 0};
  flag_next_name(&names, &name);
  const int n = (int)name.size;
  if (flag->kind == KIND_SWITCH)
    return *(const bool *)value ? buffer_printf(out, err, "%.*s%c", n, name.text, 0) : STATUS_OK;
  if (flag->kind == KIND_STRING) {
    const char *text = *(const char *const *)value;
    return text ? buffer_printf(out, err, "%.*s%c%s%c", n, name.text, 0, text, 0) : STATUS_OK;
  }
  if (flag->kind == KIND_DOUBLE) {
    const double real = *(const double *)value;
    return real != 0 ? buffer_printf(out, err, "%.*s%c%.17g%c", n, name.text, 0, real, 0) : STATUS_OK;
  }
  const int number = *(const int *)value;
  if (number == 0) return STATUS_OK;
  if (flag->kind == KIND_INT) return buffer_printf(out, err, "%.*s%c%d%c", n, name.text, 0, number, 0);
  for (int i = 0; i <= number; i++) flag_next_choice(&words, &word);
  return buffer_printf(out, err, "%.*s%c%.*s%c", n, name.text, 0, (int)word.size, word.text, 0);
}

Status flags_write(const Flag *flags, size_t n_flags, const void *values, Buffer *out, Error *err) {
  for (size_t i = 0; i < n_flags; i++)
    TRY(write_flag(&flags[i], (const char *)values + flags[i].offset, out, err));
  return STATUS_OK;
}

/* --- settings */

/* The command's flag that this table entry describes. All FLAG_MODEL entries count as one flag, -m. */
static Found find_entry(const Interface *interface, const Flag *entry) {
  Found found = {0};
  while ((found.flag = interface_flag(interface, found.index, &found.offset)) && found.flag != entry &&
         !(entry->usual && found.flag->usual))
    found.index++;
  return found;
}

bool interface_has(const Interface *interface, const Flag *flag) {
  return find_entry(interface, flag).flag != NULL;
}

Status flags_set(FlagParse *parse, const FlagSetting *setting, SetResult *result, Error *err) {
  const Found found = find_entry(parse->interface, setting->flag);
  const Flag *flag = found.flag;
  *result = SET_ABSENT;
  if (!flag) return STATUS_OK;
  Word *given = &parse->given[found.index];
  *result = SET_OVERRIDDEN;
  if (given->text && parse->sources[found.index] < setting->source) return STATUS_OK;
  *result = SET_EXCLUDED;
  const Word before = *given;
  *given = setting->name;
  if (check_rules(parse, given, setting->value, NULL) != STATUS_OK) {
    *given = before;
    return STATUS_OK;
  }
  *result = SET_DONE;
  parse->sources[found.index] = setting->source;
  char *value = (char *)parse->options + found.offset, *members = value - flag->offset;
  if (flag->usual && setting->weak) value = members + flag->usual;
  if (flag->weak) *(bool *)(members + flag->weak) = setting->weak;
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)setting->name.size, setting->name.text);
  return take_value(flag, value, name, setting->value, err);
}

Status flag_check_value(const Flag *flag, const char *name, const char *value, Error *err) {
  union {
    bool on;
    int number;
    double real;
    Seed seed;
    const char *text;
    StringList texts;
    IdList numbers;
  } scratch = {.texts = {0}};
  Status status = take_value(flag, &scratch, name, value, err);
  if (flag->kind == KIND_STRINGS) string_list_release(&scratch.texts);
  if (flag->kind == KIND_INTS) id_list_release(&scratch.numbers);
  return status;
}
