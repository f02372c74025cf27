/* settings.c - see settings.h.   Called by: commands.c. */
#include "commands/settings/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "commands/answer/assistant.h"
#include "commands/answer/reply.h"
#include "commands/auk_directory.h"
#include "commands/chat/chat.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/conversation/kept_chat.h"
#include "commands/did_you_mean.h"
#include "commands/input_text.h"
#include "commands/map/map.h"
#include "commands/model_flags.h"

/* --- what can be set */

typedef struct Settable {
  const Flag *table; /* [n] */
  size_t n;
  const char *names;  /* the flags that can be set */
  const Flag *beside; /* if not NULL: set only for commands that also have this table */
  bool of_a_model;    /* can be set only in a section */
} Settable;
#define TABLE(table) table, sizeof table / sizeof *table

/* A flag that says how a model answers can be set. Such a flag stays out if it says what one command is to do
 * (-p, -o, --json, --map), sets the seed (-s), or puts more than the answer into a pipe
 * (--show-thinking). Sampling is set only beside answer_flags, so that bench stays greedy. */
static const Settable settable[] = {
    {TABLE(model_flags), "-m", NULL, false},
    {TABLE(model_flags), "--tokenizer, --rope-theta, --norm-eps", NULL, true},
    {TABLE(chat_flags), "-sys, -sysf, --think, --no-think, --think-budget, --hide-thinking, --chat-template",
     NULL, false},
    {TABLE(answer_flags), "-n, -c, --stop, -v, --plain, --no-wrap", NULL, false},
    {TABLE(sampling_flags),
     "--temp, --top-k, --top-p, --min-p, --repeat-penalty, --presence-penalty, --frequency-penalty",
     answer_flags, false},
    {TABLE(device_flags), "-t, --kv, --device, --gpu, --gpu-memory", NULL, false},
    {TABLE(invariant_flags), "--invariant", NULL, false},
    {TABLE(map_flags), "--no-invariant", NULL, false},
    {TABLE(guess_flags), "--guess", answer_flags, false},
    {TABLE(guess_flags), "--draft", NULL, true},
    {TABLE(keep_flags), "--keep", NULL, false},
    {TABLE(cache_flags), "--cache, --cache-limit", NULL, false},
    {TABLE(talk_flags), "--no-history, --no-status, --context-overflow", NULL, false},
    {TABLE(reply_flags), "-u", NULL, false},
};
enum { N_SETTABLE = sizeof settable / sizeof *settable };

/* True if the two lists have a name in common. */
static bool share_name(const char *names, const char *others) {
  Word name, other;
  while (flag_next_name(&names, &name))
    for (const char *at = others; flag_next_name(&at, &other);)
      if (name.size == other.size && memcmp(name.text, other.text, name.size) == 0) return true;
  return false;
}

/* Returns the next flag that can be set, NULL after the last one. *table and *index begin at 0. */
static const Flag *next_settable(size_t *table, size_t *index, const Settable **entry) {
  for (; *table < N_SETTABLE; ++*table, *index = 0) {
    *entry = &settable[*table];
    while (*index < (*entry)->n) {
      const Flag *flag = &(*entry)->table[(*index)++];
      if (share_name((*entry)->names, flag->names)) return flag;
    }
  }
  return NULL;
}

static bool takes(const Interface *interface, const Flag *flag, const Settable *entry) {
  return interface_has(interface, flag) && (!entry->beside || interface_has(interface, entry->beside));
}

bool settings_matter(const Interface *interface) {
  const Settable *entry;
  const Flag *flag;
  for (size_t table = 0, index = 0; (flag = next_settable(&table, &index, &entry));)
    if (takes(interface, flag, entry)) return true;
  return interface->lists_models;
}

/* True if `text` is the spelling, with or without its leading dashes; '_' in `text` counts as '-'. */
static bool is_spelling(Word spelling, const char *text, size_t size) {
  size_t dashes = 0;
  while (size && text[0] != '-' && dashes < spelling.size && spelling.text[dashes] == '-') dashes++;
  if (spelling.size - dashes != size) return false;
  for (size_t i = 0; i < size; i++)
    if (spelling.text[dashes + i] != (text[i] == '_' ? '-' : text[i])) return false;
  return true;
}

static bool has_spelling(const Flag *flag, const char *text, size_t size) {
  Word name;
  for (const char *at = flag->names; flag_next_name(&at, &name);)
    if (is_spelling(name, text, size)) return true;
  return false;
}

static const Flag *find_flag(const char *text, size_t size, const Settable **entry) {
  const Flag *flag;
  for (size_t table = 0, index = 0; (flag = next_settable(&table, &index, entry));)
    if (has_spelling(flag, text, size)) break;
  return flag;
}

/* --- mistakes */

/* Refuses a line. `what` and the arguments after it say what is wrong, as in printf(). */
#define REFUSE(settings, line, err, what, ...)                                                               \
  error_set(err, STATUS_USAGE, "%s:%zu: " what " (--no-config goes without)", (settings)->path, line,        \
            ##__VA_ARGS__)

static Status refuse_name(const Settings *settings, size_t line, Word given, Error *err) {
  const int size = given.size < 40 ? (int)given.size : 40;
  const Settable *entry;
  const Flag *flag;
  Word name;
  for (size_t i = 0, offset; (flag = interface_flag(&run_interface, i, &offset)); i++)
    if (has_spelling(flag, given.text, given.size))
      return REFUSE(settings, line, err, "%.*s is for one call and cannot be set", size, given.text);
  const char *colon = memchr(given.text, ':', given.size);
  if (colon && find_flag(given.text, (size_t)(colon - given.text), &entry))
    return REFUSE(settings, line, err, "a setting is NAME VALUE, without a colon: %.*s VALUE",
                  (int)(colon - given.text), given.text);
  Suggestion nearest = suggestion_begin(given.text, given.size);
  for (size_t table = 0, index = 0; (flag = next_settable(&table, &index, &entry));)
    for (const char *at = flag->names; flag_next_name(&at, &name);) {
      const size_t dashes = strspn(name.text, "-");
      suggestion_consider(&nearest, name.text + dashes, name.size - dashes);
    }
  if (nearest.word)
    return REFUSE(settings, line, err, "there is no setting %.*s: did you mean %.*s?", size, given.text,
                  (int)nearest.word_size, nearest.word);
  return REFUSE(settings, line, err, "there is no setting %.*s (a flag of auk run without its dashes)", size,
                given.text);
}

/* --- values */

static bool is_word_of(const Flag *flag, const char *value) {
  Word word;
  for (const char *at = flag->words ? flag->words : ""; flag_next_choice(&at, &word);)
    if (strlen(value) == word.size && memcmp(value, word.text, word.size) == 0) return true;
  return false;
}

/* Expands "~/", and puts the settings' folder before a relative path. A model counts as a relative path only
 * if it begins with ".". */
static Status expand_path(const Settings *settings, SettingLine *line, Error *err) {
  const char *value = line->value, *home = getenv("HOME");
  const bool is_model = line->flag->hint == VALUE_MODEL;
  char *path = NULL;
  if (line->flag->hint == VALUE_TEXT || is_word_of(line->flag, value)) return STATUS_OK;
  if (strncmp(value, "~/", 2) == 0 && home) {
    path = path_join(home, value + 2, err);
  } else if (*value && *value != '/' && (!is_model || *value == '.')) {
    char *folder = path_directory(settings->path, err);
    path = folder ? path_join(folder, value, err) : NULL;
    free(folder);
  } else {
    return STATUS_OK;
  }
  if (!path) return STATUS_FAILED;
  free(line->owned);
  line->value = line->owned = path;
  return STATUS_OK;
}

/* Takes a value in double quotes as a JSON string. */
static Status read_quoted(const Settings *settings, SettingLine *line, Error *err) {
  Json *tree = NULL;
  Error reason;
  size_t size = 0;
  const char *text = line->value;
  if (*text != '"') return STATUS_OK;
  Status status = json_parse("the value", STATUS_USAGE, text, strlen(text), NULL, 0, &tree, &reason);
  if (status == STATUS_OK) text = json_string(tree, &size);
  if (status == STATUS_OK && !memchr(text, 0, size)) line->owned = path_join("", text, err);
  json_free(tree);
  if (!line->owned)
    return status == STATUS_FAILED ? error_set(err, status, "%s", reason.text)
                                   : REFUSE(settings, line->line, err,
                                            "a value that begins with \" is a JSON string, in \" to its end");
  line->value = line->owned;
  return STATUS_OK;
}

static Status check_value(const Settings *settings, SettingLine *line, Error *err) {
  char name[64];
  Error what;
  snprintf(name, sizeof name, "%.*s", (int)line->name.size, line->name.text);
  if (line->flag->kind == KIND_SWITCH) {
    if (!*line->value) line->value = NULL;
    if (!line->value) return STATUS_OK;
    return REFUSE(settings, line->line, err, "%s takes no value, found \"%s\"", name, line->value);
  }
  if (!*line->value)
    return REFUSE(settings, line->line, err, "%s needs a value (%s)", name, line->flag->argument);
  TRY(read_quoted(settings, line, err));
  Status status = flag_check_value(line->flag, name, line->value, &what);
  if (status) return REFUSE(settings, line->line, err, "%s", what.text);
  return expand_path(settings, line, err);
}

/* --- lines */

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

static int find_section(const Settings *settings, const char *name) {
  for (size_t i = 0; name && i < settings->n_sections; i++)
    if (strcmp(settings->sections[i], name) == 0) return (int)i;
  return -1;
}

static Status take_section(Settings *settings, char *text, size_t line, int *section, Error *err) {
  char *end = text + strlen(text) - 1;
  if (end == text || *end != ']') return REFUSE(settings, line, err, "a section is [NAME]");
  *end = 0;
  for (text++; is_blank(*text);) text++;
  while (end > text && is_blank(end[-1])) *--end = 0;
  if (!*text) return REFUSE(settings, line, err, "a section without a name");
  *section = find_section(settings, text);
  if (*section >= 0) return STATUS_OK;
  *section = (int)settings->n_sections;
  return APPEND(settings->sections, settings->n_sections, settings->sections_capacity, "settings", err, text);
}

/* Takes a line without blanks around it. */
static Status take_line(Settings *settings, char *text, size_t number, int *section, Error *err) {
  if (!*text || *text == '#') return STATUS_OK;
  if (*text == '[') return take_section(settings, text, number, section, err);
  char *end = text;
  while (*end && !is_blank(*end) && *end != '=') end++;
  const Word name = {text, (size_t)(end - text)};
  const Settable *entry;
  const Flag *flag = find_flag(name.text, name.size, &entry);
  if (!flag) return refuse_name(settings, number, name, err);
  if (entry->of_a_model && *section < 0)
    return REFUSE(settings, number, err, "this belongs to one model: a section [NAME] holds it");
  char *value = end;
  while (is_blank(*value)) value++;
  if (*value == '=') value++;
  while (is_blank(*value)) value++;
  TRY(APPEND(settings->lines, settings->n_lines, settings->lines_capacity, "settings", err,
             (SettingLine){flag, entry, name, value, .line = number, .section = *section}));
  return check_value(settings, &settings->lines[settings->n_lines - 1], err);
}

static Status take_lines(Settings *settings, Error *err) {
  char *at = settings->text.data;
  int section = -1;
  for (size_t number = 1; at; number++) {
    char *end = strchr(at, '\n'), *next = end ? end + 1 : NULL;
    if (!end) end = at + strlen(at);
    while (end > at && is_blank(end[-1])) end--;
    *end = 0;
    while (is_blank(*at)) at++;
    TRY(take_line(settings, at, number, &section, err));
    at = next;
  }
  return STATUS_OK;
}

static Status check_text(const Settings *settings, Error *err) {
  const Buffer *text = &settings->text;
  const size_t valid = text->size ? utf8_valid_prefix(text->data, text->size) : 0;
  const char *nul = text->size ? memchr(text->data, 0, text->size) : NULL;
  const size_t bad = nul && (size_t)(nul - text->data) < valid ? (size_t)(nul - text->data) : valid;
  size_t line = 1;
  if (bad == text->size) return STATUS_OK;
  for (size_t i = 0; i < bad; i++) line += text->data[i] == '\n';
  return REFUSE(settings, line, err, "%s", nul ? "a NUL" : "no valid UTF-8");
}

Status settings_read(Settings *settings, Error *err) {
  TRY(auk_path("XDG_CONFIG_HOME", ".config", "config", &settings->path, err));
  if (!settings->path || !file_is_named(settings->path)) return STATUS_OK;
  TRY(file_refuse_waiting(settings->path, err));
  TRY(text_read_source(settings->path, &settings->text, err));
  TRY(check_text(settings, err));
  TRY(buffer_append(&settings->text, "", 1, err));
  return take_lines(settings, err);
}

void settings_release(Settings *settings) {
  for (size_t i = 0; i < settings->n_lines; i++) free(settings->lines[i].owned);
  free(settings->lines);
  free(settings->sections);
  free(settings->path);
  buffer_release(&settings->text);
  *settings = (Settings){0};
}

/* --- applying them */

/* The last line in a section (-1: above all sections) that names a model, or NULL. */
static const SettingLine *find_model(const Settings *settings, int section) {
  for (size_t i = settings->n_lines; i-- > 0;)
    if (settings->lines[i].section == section && settings->lines[i].flag->usual) return &settings->lines[i];
  return NULL;
}

const char *settings_model(const Settings *settings) {
  const SettingLine *line = find_model(settings, -1);
  return line ? line->value : NULL;
}

typedef struct {
  const Settings *settings;
  FlagParse *parse;
  SetResult *results;       /* [n_lines] */
  const SettingLine *model; /* the line that names the model, or NULL */
  int section;              /* -1: none */
  bool named;               /* the command line names the model, and so the section */
  bool goes_on;             /* the model is that of the chat which --continue goes on with */
} Applying;

/* Refuses a model name of the command line that is no model but probably a section. Either the name is
 * mistyped, or the section (a->section) has no line that names its model. */
static Status check_name(const Applying *a, const char *name, Error *err) {
  const Settings *settings = a->settings;
  Suggestion nearest = suggestion_begin(name, strlen(name));
  for (size_t i = 0; i < settings->n_sections && a->section < 0; i++)
    suggestion_consider(&nearest, settings->sections[i], strlen(settings->sections[i]));
  if ((a->section < 0 && !nearest.word) || strchr(name, '/') || file_exists(name) || model_is_there(name))
    return STATUS_OK;
  if (a->section >= 0)
    return error_set(err, STATUS_USAGE, "%s: the section [%s] needs a line \"m MODEL\": no model is named %s",
                     settings->path, name, name);
  return error_set(err, STATUS_MODEL, "%s: no model, and no section of %s; did you mean %s?", name,
                   settings->path, nearest.word);
}

/* With --continue the model is that of the chat: another model's section does not hold. */
static Status heed_chat(Applying *a, Error *err) {
  size_t offset;
  const Flag *flag = interface_find(a->parse->interface, "--continue", strlen("--continue"), &offset);
  const OptionalText *resume = flag ? (const OptionalText *)((char *)a->parse->options + offset) : NULL;
  OWNED(mem_release) char *model = NULL;
  if (a->named || !resume || !resume->given) return STATUS_OK;
  TRY(kept_model(resume->text, &model, err));
  a->goes_on = model != NULL;
  if (!a->goes_on) return STATUS_OK;
  if (a->section >= 0 &&
      !model_is_same(model, a->model ? a->model->value : a->settings->sections[a->section]))
    a->section = -1;
  a->model = NULL;
  return STATUS_OK;
}

/* Chooses the model and its section, and puts the model into the options. */
static Status choose_model(Applying *a, Error *err) {
  const char **path, **usual;
  if (!flags_model(a->parse->interface, a->parse->options, &path, &usual)) return STATUS_OK;
  const SettingLine *above = find_model(a->settings, -1);
  a->named = *path != NULL;
  a->model = a->named ? NULL : above;
  a->section = find_section(a->settings, a->named ? *path : above ? above->value : getenv("AUK_MODEL"));
  const SettingLine *own = a->section >= 0 ? find_model(a->settings, a->section) : NULL;
  if (a->named && !own) TRY(check_name(a, *path, err));
  if (own) a->model = own;
  if (a->model) *(a->named ? path : usual) = a->model->value;
  return heed_chat(a, err);
}

/* Sets the flags of a section (-1: of the lines above all sections). The second pass sets flags
 * that need a flag on a later line. */
static Status apply_lines(const Applying *a, int section, bool weak, Error *err) {
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < a->settings->n_lines; i++) {
      const SettingLine *line = &a->settings->lines[i];
      const FlagSetting setting = {line->flag, line->name, line->value, section < 0 ? 2 : 1, weak};
      if (line->section != section || line->flag->usual) continue;
      if (pass > 0 && a->results[i] != SET_EXCLUDED) continue;
      if (takes(a->parse->interface, line->flag, line->entry))
        TRY(flags_set(a->parse, &setting, &a->results[i], err));
    }
  return STATUS_OK;
}

static void report_line(const Applying *a, const SettingLine *line, const char *remark) {
  const bool valued = line->value != NULL;
  print_note("%s:%zu: %.*s%s%s%s", a->settings->path, line->line, (int)line->name.size, line->name.text,
             valued ? " " : "", valued ? line->value : "", remark);
}

/* With -v, reports the settings that were made, and those that flags of the command line exclude. */
static void report(const Applying *a) {
  size_t offset;
  const Flag *verbose = interface_find(a->parse->interface, "-v", 2, &offset);
  const char **path, **usual, *environment = getenv("AUK_MODEL");
  if (!verbose || verbose->kind != KIND_SWITCH || !*((const bool *)((char *)a->parse->options + offset)))
    return;
  if (a->model) report_line(a, a->model, "");
  if (!a->model && !a->named && !a->goes_on && environment && *environment &&
      flags_model(a->parse->interface, a->parse->options, &path, &usual))
    print_note("AUK_MODEL: m %s", environment);
  for (size_t i = 0; i < a->settings->n_lines; i++) {
    if (a->results[i] == SET_DONE) report_line(a, &a->settings->lines[i], "");
    if (a->results[i] == SET_EXCLUDED)
      report_line(a, &a->settings->lines[i], " (left out beside the flags of this call)");
  }
}

void settings_blame(const Settings *settings, Error *err) {
  const SettingLine *line = settings->model;
  if (!line || strncmp(err->text, line->value, strlen(line->value)) != 0 || model_is_there(line->value))
    return;
  const Error reason = *err;
  error_set(err, STATUS_MODEL, "%s:%zu: %.*s %s", settings->path, line->line, (int)line->name.size,
            line->name.text, reason.text);
}

Status settings_apply(Settings *settings, FlagParse *parse, Error *err) {
  Applying a = {.settings = settings, .parse = parse, .section = -1};
  TRY(NEW(a.results, settings->n_lines, "settings", err));
  for (size_t i = 0; i < settings->n_lines; i++) a.results[i] = SET_ABSENT;
  Status status = choose_model(&a, err);
  if (status == STATUS_OK && a.section >= 0) status = apply_lines(&a, a.section, !a.named, err);
  if (status == STATUS_OK) status = apply_lines(&a, -1, true, err);
  settings->model = a.model;
  if (status == STATUS_OK) report(&a);
  free(a.results);
  return status;
}
