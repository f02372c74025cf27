/* chat_settings.c - see chat_settings.h. */
#include "commands/chat/chat_settings.h"

#include <stdio.h>
#include <string.h>

#include "commands/common.h"

/* In the order of /set's list. All but think and show-thinking take the values of the flag of that name. */
const char *const chat_setting_names[] = {
    "temp", "top-k", "top-p", "min-p",        "repeat-penalty", "presence-penalty", "frequency-penalty",
    "seed", "n",     "think", "think-budget", "show-thinking",
};
const size_t chat_n_settings = sizeof chat_setting_names / sizeof *chat_setting_names;
enum { N_WITHOUT_THINKING = 9 }; /* settings from this index on are only for models that think */

/* --- numbers, by the flags' own tables */

static const FlagGroup groups[] = {
    {.flags = sampling_flags,
     .n_flags = sizeof sampling_flags / sizeof *sampling_flags,
     .offset = offsetof(AssistantFlags, sampling)},
    {.flags = &answer_flags[ANSWER_MAX_TOKENS], .n_flags = 1, .offset = offsetof(AssistantFlags, answer)},
    {.flags = &chat_flags[CHAT_THINK_BUDGET], .n_flags = 1, .offset = offsetof(AssistantFlags, chat)},
};
static const Interface settable = {INTERFACE_GROUPS(groups)};

/* Finds the flag with this name, given without dashes, and its spelling with them; NULL: /set has no such
 * flag. */
static const Flag *find_flag(const char *name, size_t size, char spelling[64], size_t *offset) {
  for (int dashes = 2; dashes > 0; dashes--) {
    int length = snprintf(spelling, 64, "%.*s%.*s", dashes, "--", (int)size, name);
    for (char *at = spelling; *at; at++) *at = *at == '_' ? '-' : *at;
    const Flag *flag = length < 64 ? interface_find(&settable, spelling, (size_t)length, offset) : NULL;
    if (flag) return flag;
  }
  return NULL;
}

static const Flag *find_setting(size_t index, size_t *offset) {
  char spelling[64];
  return find_flag(chat_setting_names[index], strlen(chat_setting_names[index]), spelling, offset);
}

static AssistantFlags current(const ChatSettings *settings) {
  const Assistant *a = settings->assistant;
  return (AssistantFlags){
      .sampling = {.seed = settings->seed,
                   .temperature = a->sampler.temperature,
                   .top_k = a->sampler.top_k,
                   .top_p = a->sampler.top_p,
                   .min_p = a->sampler.min_p,
                   .repetition_penalty = a->sampler.repetition_penalty,
                   .presence_penalty = a->sampler.presence_penalty,
                   .frequency_penalty = a->sampler.frequency_penalty},
      .answer = {.max_tokens = a->max_tokens},
      .chat = {.think_budget = a->think_budget},
  };
}

static void apply(ChatSettings *settings, const AssistantFlags *flags) {
  Assistant *a = settings->assistant;
  a->sampler = sampling_settings(&flags->sampling, &a->model->config.generation); /* `flags` has all values */
  settings->seed = flags->sampling.seed;
  a->max_tokens = flags->answer.max_tokens;
  a->think_budget = flags->chat.think_budget;
}

void chat_settings_begin(ChatSettings *settings, Assistant *assistant, bool show_thinking) {
  *settings = (ChatSettings){.assistant = assistant,
                             .seed = assistant->flags->sampling.seed,
                             .show_thinking = show_thinking,
                             .first_think = assistant->think,
                             .first_show = show_thinking};
  settings->first = current(settings);
}

Status chat_settings_seed(ChatSettings *settings, Error *err) {
  uint64_t *seed = &settings->assistant->sampler.seed;
  if (!settings->seed.given) return random_seed(seed, err);
  *seed = settings->seed.value + settings->n_seeded++;
  return STATUS_OK;
}

static Status note_no_effect(const ChatSettings *settings, const Flag *flag, Buffer *out, Error *err) {
  static const char *const choosing[] = {"top-k", "top-p", "min-p", "seed"};
  if (settings->assistant->sampler.temperature != 0) return STATUS_OK;
  for (size_t i = 0; i < sizeof choosing / sizeof *choosing; i++) {
    char spelling[64];
    size_t offset;
    if (find_flag(choosing[i], strlen(choosing[i]), spelling, &offset) == flag)
      return buffer_printf(out, err, "temp is 0: %s has no effect until /set temp X\n", choosing[i]);
  }
  return STATUS_OK;
}

static Status change_flag(ChatSettings *settings, const Flag *flag, char *spelling, char *value, Buffer *out,
                          Error *err) {
  AssistantFlags flags = current(settings);
  char *argv[] = {"/set", spelling, value};
  bool helped;
  TRY(flags_parse(&settable, &flags, 3, argv, NULL, NULL, &helped, err));
  if (flag->kind == KIND_SEED) settings->n_seeded = 0;
  apply(settings, &flags);
  return note_no_effect(settings, flag, out, err);
}

/* --- switches */

static bool is_word(const char *word, const char *text, size_t size) {
  return strlen(word) == size && memcmp(word, text, size) == 0;
}

static bool can_think(const Assistant *a) {
  return a->thinking.open || a->thinking.can_switch;
}

static Status check_think(const Assistant *a, const char *name, Error *err) {
  if (can_think(a)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: this model's template knows no thoughts", name);
}

static Status change_think(ChatSettings *settings, const char *value, Error *err) {
  Assistant *a = settings->assistant;
  TRY(check_think(a, "think", err));
  if (strcmp(value, "on") == 0) {
    a->think = THINK_YES;
  } else if (strcmp(value, "off") == 0) {
    a->think = THINK_NO;
  } else if (strcmp(value, "auto") == 0) {
    a->think = THINK_UNSAID;
  } else {
    return error_set(err, STATUS_USAGE, "think is \"%s\", expected on, off or auto", value);
  }
  return STATUS_OK;
}

static Status change_switch(bool *on, const char *name, const char *value, Error *err) {
  bool yes = strcmp(value, "on") == 0;
  if (!yes && strcmp(value, "off") != 0)
    return error_set(err, STATUS_USAGE, "%s is \"%s\", expected on or off", name, value);
  *on = yes;
  return STATUS_OK;
}

/* --- printing */

static Status put_seed(Buffer *out, const char *name, Seed seed, Error *err) {
  if (!seed.given) return buffer_printf(out, err, "  %s -1 (another one for each answer)\n", name);
  return buffer_printf(out, err, "  %s %llu\n", name, (unsigned long long)seed.value);
}

static Status put_setting(const ChatSettings *settings, size_t index, Buffer *out, Error *err) {
  static const char *const thinks[] = {[THINK_UNSAID] = "auto", [THINK_NO] = "off", [THINK_YES] = "on"};
  const AssistantFlags flags = current(settings);
  const char *name = chat_setting_names[index];
  size_t offset;
  const Flag *flag = find_setting(index, &offset);
  if (!flag)
    return buffer_printf(out, err, "  %s %s\n", name,
                         strcmp(name, "think") == 0 ? thinks[settings->assistant->think]
                         : settings->show_thinking  ? "on"
                                                    : "off");
  const void *value = (const char *)&flags + offset;
  if (flag->kind == KIND_SEED) return put_seed(out, name, *(const Seed *)value, err);
  if (flag->kind == KIND_DOUBLE) return buffer_printf(out, err, "  %s %g\n", name, *(const double *)value);
  const int limit = *(const int *)value;
  return buffer_printf(out, err, "  %s %d%s\n", name, limit, limit < 0 ? " (no limit)" : "");
}

static Status refuse_name(const char *name, size_t size, Error *err) {
  const char *instead = is_word("system", name, size)      ? "/system TEXT sets the system message"
                        : is_word("parameter", name, size) ? "/set NAME VALUE, such as /set temp 0.5"
                                                           : "/set alone lists them";
  return error_set(err, STATUS_USAGE, "there is no setting \"%.*s\"; %s", (int)size, name, instead);
}

static Status put_one(const ChatSettings *settings, const char *name, size_t size, Buffer *out, Error *err) {
  char spelling[64];
  size_t offset;
  const Flag *flag = find_flag(name, size, spelling, &offset);
  for (size_t i = 0; i < chat_n_settings; i++) {
    const char *own = chat_setting_names[i];
    if (flag ? find_setting(i, &offset) != flag : !is_word(own, name, size)) continue;
    if (i >= N_WITHOUT_THINKING) TRY(check_think(settings->assistant, own, err));
    return put_setting(settings, i, out, err);
  }
  return refuse_name(name, size, err);
}

/* --- /set */

static Status change(ChatSettings *settings, const char *name, size_t n_name, char *value, Buffer *out,
                     Error *err) {
  char spelling[64];
  size_t offset;
  const Flag *flag = find_flag(name, n_name, spelling, &offset);
  if (flag) return change_flag(settings, flag, spelling, value, out, err);
  if (is_word("think", name, n_name)) return change_think(settings, value, err);
  if (is_word("show-thinking", name, n_name))
    return change_switch(&settings->show_thinking, "show-thinking", value, err);
  return refuse_name(name, n_name, err);
}

Status chat_settings_take(ChatSettings *settings, const char *text, size_t size, Buffer *out, Error *err) {
  size_t dashes = 0;
  while (dashes < size && text[dashes] == '-') dashes++;
  const char *name = text + dashes;
  size_t n_name = 0, left = size - dashes;
  while (n_name < left && name[n_name] != ' ' && name[n_name] != '=' && name[n_name] != '\t') n_name++;
  const char *at = name + n_name, *end = text + size;
  while (at < end && (*at == ' ' || *at == '=' || *at == '\t')) at++;
  size_t n_shown = can_think(settings->assistant) ? chat_n_settings : N_WITHOUT_THINKING;
  for (size_t i = 0; size == 0 && i < n_shown; i++) TRY(put_setting(settings, i, out, err));
  if (size == 0) return STATUS_OK;
  if (is_word("default", text, size)) {
    apply(settings, &settings->first);
    settings->n_seeded = 0;
    settings->assistant->think = settings->first_think;
    settings->show_thinking = settings->first_show;
    return STATUS_OK;
  }
  char value[64];
  size_t n_value = (size_t)(end - at);
  if (n_value == 0) return put_one(settings, name, n_name, out, err);
  if (n_value >= sizeof value)
    return error_set(err, STATUS_USAGE, "/set NAME VALUE; /set alone lists the names");
  memcpy(value, at, n_value);
  value[n_value] = 0;
  return change(settings, name, n_name, value, out, err);
}
