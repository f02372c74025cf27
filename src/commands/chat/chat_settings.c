/* chat_settings.c - see chat_settings.h.   Called by: chat.c, chat_commands.c, dialogue.c; its names by
 * chat_complete.c. Calls: flags.c, which handles names, ranges and mistakes. */
#include "commands/chat/chat_settings.h"

#include <string.h>

#include "commands/common.h"

enum {
  TEMP,
  TOP_K,
  TOP_P,
  MIN_P,
  REPEAT_PENALTY,
  PRESENCE_PENALTY,
  FREQUENCY_PENALTY,
  SEED,
  N,
  THINK, /* from here on: only for models that think */
  THINK_BUDGET,
  SHOW_THINKING
};

/* In the order of the list; each is a flag without its dashes, except think and show-thinking. */
const char *const chat_setting_names[] = {
    [TEMP] = "temp",
    [TOP_K] = "top-k",
    [TOP_P] = "top-p",
    [MIN_P] = "min-p",
    [REPEAT_PENALTY] = "repeat-penalty",
    [PRESENCE_PENALTY] = "presence-penalty",
    [FREQUENCY_PENALTY] = "frequency-penalty",
    [SEED] = "seed",
    [N] = "n",
    [THINK] = "think",
    [THINK_BUDGET] = "think-budget",
    [SHOW_THINKING] = "show-thinking",
};
const size_t chat_n_settings = sizeof chat_setting_names / sizeof *chat_setting_names;

/* --- numbers, by the flags' own tables */

/* Flags that /set can change, by group: only those whose names begin with `only`, or all. */
static const struct {
  const Flag *flags;
  size_t n_flags, offset; /* [n_flags]; offset of the group's values in AssistantFlags */
  const char *only;
} groups[] = {
    {sampling_flags, sizeof sampling_flags / sizeof *sampling_flags, offsetof(AssistantFlags, sampling),
     NULL},
    {answer_flags, sizeof answer_flags / sizeof *answer_flags, offsetof(AssistantFlags, answer), "-n,"},
    {chat_flags, sizeof chat_flags / sizeof *chat_flags, offsetof(AssistantFlags, chat), "--think-budget,"},
};

static bool same_name(const char *name, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (name[i] != (text[i] == '_' ? '-' : text[i])) return false;
  return true;
}

/* Whether `names` ("-s, --seed") contains the name without dashes; copies the spelling into out. */
static bool find_spelling(const char *names, const char *name, size_t size, char out[64]) {
  for (const char *at = names; *at;) {
    size_t length = strcspn(at, ","), dashes = strspn(at, "-");
    if (length - dashes == size && same_name(at + dashes, name, size) && length < 64) {
      memcpy(out, at, length);
      out[length] = 0;
      return true;
    }
    at += length;
    at += strspn(at, ", ");
  }
  return false;
}

/* Finds the flag of this name as a group of its own; false if no such flag can be set. */
static bool find_flag(const char *name, size_t size, FlagGroup *group, char spelling[64]) {
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    for (size_t i = 0; i < groups[g].n_flags; i++) {
      const Flag *flag = &groups[g].flags[i];
      if (groups[g].only && strncmp(flag->names, groups[g].only, strlen(groups[g].only)) != 0) continue;
      if (!find_spelling(flag->names, name, size, spelling)) continue;
      *group = (FlagGroup){.title = "", .flags = flag, .n_flags = 1, .offset = groups[g].offset};
      return true;
    }
  }
  return false;
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
  a->sampler = sampling_settings(&flags->sampling, &a->model->config.generation); /* every flag is given */
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

static void reset(ChatSettings *settings) {
  apply(settings, &settings->first);
  settings->n_seeded = 0;
  settings->assistant->think = settings->first_think;
  settings->show_thinking = settings->first_show;
}

Status chat_settings_seed(ChatSettings *settings, Error *err) {
  uint64_t *seed = &settings->assistant->sampler.seed;
  if (!settings->seed.given) return random_seed(seed, err);
  *seed = settings->seed.value + settings->n_seeded++;
  return STATUS_OK;
}

/* Notes that the setting has no effect at temperature 0. */
static Status note_no_effect(const ChatSettings *settings, const char *names, Buffer *out, Error *err) {
  static const size_t choosing[] = {TOP_K, TOP_P, MIN_P, SEED};
  if (settings->assistant->sampler.temperature != 0) return STATUS_OK;
  for (size_t i = 0; i < sizeof choosing / sizeof *choosing; i++) {
    const char *name = chat_setting_names[choosing[i]];
    char spelling[64];
    if (find_spelling(names, name, strlen(name), spelling))
      return buffer_printf(out, err, "temp is 0: %s has no effect until /set temp X\n", name);
  }
  return STATUS_OK;
}

static Status change_flag(ChatSettings *settings, const FlagGroup *group, char *spelling, char *value,
                          Buffer *out, Error *err) {
  const Interface interface = {.usage = "", .about = "", .groups = group, .n_groups = 1};
  AssistantFlags flags = current(settings);
  char *argv[] = {"/set", spelling, value};
  bool helped;
  TRY(flags_parse(&interface, &flags, 3, argv, NULL, NULL, &helped, err));
  if (group->flags->kind == KIND_SEED) settings->n_seeded = 0;
  apply(settings, &flags);
  return note_no_effect(settings, group->flags->names, out, err);
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

static Status put_limit(Buffer *out, const char *name, int limit, Error *err) {
  return buffer_printf(out, err, "  %s %d%s\n", name, limit, limit < 0 ? " (no limit)" : "");
}

static Status put_seed(Buffer *out, const char *name, Seed seed, Error *err) {
  if (!seed.given) return buffer_printf(out, err, "  %s -1 (another one for each answer)\n", name);
  return buffer_printf(out, err, "  %s %llu\n", name, (unsigned long long)seed.value);
}

static Status put_setting(const ChatSettings *settings, size_t index, Buffer *out, Error *err) {
  static const char *const thinks[] = {[THINK_UNSAID] = "auto", [THINK_NO] = "off", [THINK_YES] = "on"};
  const Assistant *a = settings->assistant;
  const SamplerSettings *s = &a->sampler;
  const char *name = chat_setting_names[index];
  switch (index) {
  case TEMP: return buffer_printf(out, err, "  %s %g\n", name, s->temperature);
  case TOP_K: return buffer_printf(out, err, "  %s %d\n", name, s->top_k);
  case TOP_P: return buffer_printf(out, err, "  %s %g\n", name, s->top_p);
  case MIN_P: return buffer_printf(out, err, "  %s %g\n", name, s->min_p);
  case REPEAT_PENALTY: return buffer_printf(out, err, "  %s %g\n", name, s->repetition_penalty);
  case PRESENCE_PENALTY: return buffer_printf(out, err, "  %s %g\n", name, s->presence_penalty);
  case FREQUENCY_PENALTY: return buffer_printf(out, err, "  %s %g\n", name, s->frequency_penalty);
  case SEED: return put_seed(out, name, settings->seed, err);
  case N: return put_limit(out, name, a->max_tokens, err);
  case THINK: return buffer_printf(out, err, "  %s %s\n", name, thinks[a->think]);
  case THINK_BUDGET: return put_limit(out, name, a->think_budget, err);
  default: return buffer_printf(out, err, "  %s %s\n", name, settings->show_thinking ? "on" : "off");
  }
}

static Status put_all(const ChatSettings *settings, Buffer *out, Error *err) {
  size_t n = can_think(settings->assistant) ? chat_n_settings : THINK;
  for (size_t i = 0; i < n; i++) TRY(put_setting(settings, i, out, err));
  return STATUS_OK;
}

static Status refuse_name(const char *name, size_t size, Error *err) {
  return error_set(err, STATUS_USAGE, "there is no setting \"%.*s\"; /set alone lists them", (int)size, name);
}

/* Appends the setting of this name, which may be any spelling of its flag. */
static Status put_one(const ChatSettings *settings, const char *name, size_t size, Buffer *out, Error *err) {
  FlagGroup meant, listed;
  char spelling[64];
  bool is_flag = find_flag(name, size, &meant, spelling);
  for (size_t i = 0; i < chat_n_settings; i++) {
    const char *own = chat_setting_names[i];
    bool same = is_flag ? find_flag(own, strlen(own), &listed, spelling) && listed.flags == meant.flags
                        : is_word(own, name, size);
    if (!same) continue;
    if (i >= THINK) TRY(check_think(settings->assistant, own, err));
    return put_setting(settings, i, out, err);
  }
  return refuse_name(name, size, err);
}

/* --- /set */

static Status change(ChatSettings *settings, const char *name, size_t n_name, char *value, Buffer *out,
                     Error *err) {
  FlagGroup group;
  char spelling[64];
  if (find_flag(name, n_name, &group, spelling))
    return change_flag(settings, &group, spelling, value, out, err);
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
  if (size == 0) return put_all(settings, out, err);
  if (is_word("default", text, size)) {
    reset(settings);
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
