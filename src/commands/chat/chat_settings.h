/* chat_settings.h - the settings that /set changes, with the names and ranges of the flags. */
#pragma once

#include "commands/answer/assistant.h"

extern const char *const chat_setting_names[];
extern const size_t chat_n_settings;

typedef struct {
  Assistant *assistant;
  Seed seed;            /* not given: a new seed for each answer; given: the seed of the first answer */
  uint64_t n_seeded;    /* answers since the seed was set; each adds one to the seed */
  bool show_thinking;   /* show thoughts on the terminal */
  AssistantFlags first; /* initial values of the settings that are flags */
  ThinkChoice first_think;
  bool first_show;
} ChatSettings;

void chat_settings_begin(ChatSettings *settings, Assistant *assistant, bool show_thinking);
/* Sets the sampler's seed for the next answer. */
Status chat_settings_seed(ChatSettings *settings, Error *err);

/* Takes "NAME VALUE" (also "NAME=VALUE", "--NAME VALUE"); "default" restores the initial values. Without
 * VALUE, appends a line with NAME's value to `out`; for an empty text, a line for each setting of this model.
 * If the new value has no effect, appends a note. Mistakes are STATUS_USAGE and change nothing. */
Status chat_settings_take(ChatSettings *settings, const char *text, size_t size, Buffer *out, Error *err);
