/* chat_settings.h - what /set changes, by the names and within the ranges of the flags. */
#ifndef AUK_COMMANDS_CHAT_CHAT_SETTINGS_H
#define AUK_COMMANDS_CHAT_CHAT_SETTINGS_H

#include "commands/answer/assistant.h"

extern const char *const chat_setting_names[];
extern const size_t chat_n_settings;

typedef struct {
  Assistant *assistant;
  Seed seed;            /* not given: another one for each answer; given: of the first one from here on */
  uint64_t n_seeded;    /* answers since then; each has the seed behind the one before */
  bool show_thinking;   /* on the terminal */
  AssistantFlags first; /* values of all, as they were at the beginning */
  ThinkChoice first_think;
  bool first_show;
} ChatSettings;

/* What the flags say; the assistant is open. */
void chat_settings_begin(ChatSettings *settings, Assistant *assistant, bool show_thinking);
/* Sets the sampler's seed for the next answer. */
Status chat_settings_seed(ChatSettings *settings, Error *err);

/* Takes "NAME VALUE" (also "NAME=VALUE", "--NAME VALUE"; "default": all as at the beginning). Of "NAME" alone
 * it appends a line that says what it is, of an empty text one for each. Mistakes are STATUS_USAGE and change
 * nothing. */
Status chat_settings_take(ChatSettings *settings, const char *text, size_t size, Buffer *out, Error *err);

#endif
