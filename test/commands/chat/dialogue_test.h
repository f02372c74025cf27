/* dialogue_test.h - what the tests of chats share: a chat on a tiny model, without a terminal. */
#pragma once

#include "commands/chat/dialogue.h"
#include "test/directory.h"
#include "test/standard_streams.h"

static AssistantFlags flags;
static TalkFlags talk;
static Dialogue d;
static Buffer written; /* answers */

static inline Status collect(void *user, const char *bytes, size_t size, Error *err) {
  return buffer_append(user, bytes, size, err);
}

/* Begins a chat with a context of so many tokens, whose answers have n. */
static inline void begin_with(const char *model, int n_ctx, int n, const char *template) {
  static char path[300];
  Error err = {{0}};
  snprintf(path, sizeof path, "%s/template", own_directory);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(template, file);
  fclose(file);
  flags = (AssistantFlags)ASSISTANT_DEFAULTS;
  flags.model.path = model;
  flags.chat.chat_template = path;
  flags.answer = (AnswerFlags){.max_tokens = n, .context = n_ctx, .ignore_eos = true};
  flags.sampling.temperature = 0;
  flags.device.threads = 1;
  talk = (TalkFlags){0};
  d = (Dialogue){.talk = &talk};
  if (assistant_open(&flags, &d.assistant, &err) || assistant_start(&d.assistant, 0, &err))
    fail_msg("%s", err.text);
  chat_settings_begin(&d.settings, &d.assistant, true);
  d.show = show_to(&d.assistant, -1);
  d.show.write = collect;
  d.show.user = &written;
}

static inline void begin(int n_ctx, int n, const char *template) {
  begin_with("test/data/stories260K-awq", n_ctx, n, template);
}

static inline void end(void) {
  buffer_release(&written);
  dialogue_release(&d);
}

#define PLAIN                                                                                                \
  "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}</s>{% endfor %}"                                  \
  "{% if add_generation_prompt %}a: {% endif %}"

/* Sends a message. Returns what the chat wrote to standard error; *status is dialogue_send()'s. */
static inline const char *send(const char *text, Status *status, Error *err) {
  tell_begin();
  *status = dialogue_send(&d, text, strlen(text), err);
  return note_end();
}

static inline const char *command(const char *text, Status *status, Error *err) {
  const ChatLine line = chat_parse(text, strlen(text));
  assert_true(line.word < WORD_TEXT);
  tell_begin();
  *status = chat_command(&d, &line, err);
  return note_end();
}
