/* chat_settings.c - see chat_settings.h.
 *
 * Called by: chat_commands.c, chat_complete.c.   Calls: flags.c, which knows names, ranges and mistakes. */
#include "commands/chat_settings.h"

#include <string.h>

/* As the list has them; each is a flag without its dashes, but for the last two. */
const char *const chat_setting_names[] = {
    "temp", "top-k", "top-p",        "min-p", "repeat-penalty", "presence-penalty", "frequency-penalty",
    "seed", "n",     "think-budget", "think", "show-thinking",
};
const size_t chat_n_settings = sizeof chat_setting_names / sizeof *chat_setting_names;

/* --- numbers, by the flags' own tables */

/* What may be set of the flags of a group: those with one of these names, or all. */
static const struct {
  const Flag *flags;
  size_t n_flags, offset; /* of the group's values in AssistantFlags */
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

/* Whether `names` ("-s, --seed") holds the name without its dashes; copies the spelling into out. */
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

/* The flag of this name, as a group by itself; false where none can be set. */
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
  AssistantFlags flags = assistant_defaults;
  flags.sampling = (SamplingFlags){
      .seed = settings->seed,
      .temperature = a->sampler.temperature,
      .top_k = a->sampler.top_k,
      .top_p = a->sampler.top_p,
      .min_p = a->sampler.min_p,
      .repetition_penalty = a->sampler.repetition_penalty,
      .presence_penalty = a->sampler.presence_penalty,
      .frequency_penalty = a->sampler.frequency_penalty,
  };
  flags.answer.max_tokens = a->max_tokens;
  flags.chat.think_budget = a->think_budget;
  return flags;
}

static void apply(ChatSettings *settings, const AssistantFlags *flags) {
  Assistant *a = settings->assistant;
  a->sampler = (SamplerSettings){
      .temperature = flags->sampling.temperature,
      .top_k = flags->sampling.top_k,
      .top_p = flags->sampling.top_p,
      .min_p = flags->sampling.min_p,
      .repetition_penalty = flags->sampling.repetition_penalty,
      .presence_penalty = flags->sampling.presence_penalty,
      .frequency_penalty = flags->sampling.frequency_penalty,
      .seed = flags->sampling.seed.value,
  };
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

static Status change_flag(ChatSettings *settings, const FlagGroup *group, char *spelling, char *value,
                          Error *err) {
  const Interface interface = {.usage = "", .about = "", .groups = group, .n_groups = 1};
  AssistantFlags flags = current(settings);
  char *argv[] = {"/set", spelling, value};
  bool helped;
  TRY(flags_parse(&interface, &flags, 3, argv, NULL, NULL, &helped, err));
  if (group->flags->kind == KIND_SEED) settings->n_seeded = 0;
  apply(settings, &flags);
  return STATUS_OK;
}

/* --- switches */

static bool is_word(const char *word, const char *text, size_t size) {
  return strlen(word) == size && memcmp(word, text, size) == 0;
}

static Status change_think(ChatSettings *settings, const char *value, Error *err) {
  Assistant *a = settings->assistant;
  if (!a->thinking.open && !a->thinking.can_switch)
    return error_set(err, STATUS_USAGE, "think: this model's template knows no thoughts");
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

Status chat_settings_change(ChatSettings *settings, const char *text, size_t size, Error *err) {
  size_t dashes = 0;
  while (dashes < size && text[dashes] == '-') dashes++;
  const char *name = text + dashes;
  size_t n_name = 0, left = size - dashes;
  while (n_name < left && name[n_name] != ' ' && name[n_name] != '=' && name[n_name] != '\t') n_name++;
  const char *at = name + n_name, *end = text + size;
  while (at < end && (*at == ' ' || *at == '=' || *at == '\t')) at++;
  char value[64], spelling[64];
  if (is_word("default", text, size)) {
    reset(settings);
    return STATUS_OK;
  }
  size_t n_value = (size_t)(end - at);
  if (n_value == 0 || n_value >= sizeof value)
    return error_set(err, STATUS_USAGE, "/set NAME VALUE; /set alone lists the names");
  memcpy(value, at, n_value);
  value[n_value] = 0;
  FlagGroup group;
  if (find_flag(name, n_name, &group, spelling)) return change_flag(settings, &group, spelling, value, err);
  if (is_word("think", name, n_name)) return change_think(settings, value, err);
  if (is_word("show-thinking", name, n_name))
    return change_switch(&settings->show_thinking, "show-thinking", value, err);
  return error_set(err, STATUS_USAGE, "there is no setting \"%.*s\"; /set alone lists them", (int)n_name,
                   name);
}

Status chat_settings_list(const ChatSettings *settings, Buffer *out, Error *err) {
  const Assistant *a = settings->assistant;
  const SamplerSettings *s = &a->sampler;
  static const char *const thinks[] = {[THINK_UNSAID] = "auto", [THINK_NO] = "off", [THINK_YES] = "on"};
  TRY(buffer_printf(
      out, err,
      "  temp %g\n  top-k %d\n  top-p %g\n  min-p %g\n  repeat-penalty %g\n  presence-penalty %g\n"
      "  frequency-penalty %g\n",
      s->temperature, s->top_k, s->top_p, s->min_p, s->repetition_penalty, s->presence_penalty,
      s->frequency_penalty));
  if (settings->seed.given) {
    TRY(buffer_printf(out, err, "  seed %llu\n", (unsigned long long)settings->seed.value));
  } else {
    TRY(buffer_printf(out, err, "  seed -1 (another one for each answer)\n"));
  }
  TRY(buffer_printf(out, err, "  n %d%s\n", a->max_tokens, a->max_tokens < 0 ? " (no limit)" : ""));
  if (!a->thinking.open && !a->thinking.can_switch) return STATUS_OK;
  return buffer_printf(out, err, "  think %s\n  think-budget %d%s\n  show-thinking %s\n", thinks[a->think],
                       a->think_budget, a->think_budget < 0 ? " (no limit)" : "",
                       settings->show_thinking ? "on" : "off");
}
