/* chat.h - a conversation on a terminal. */
#pragma once

#include "commands/answer/assistant.h"

typedef enum { OVERFLOW_ASK, OVERFLOW_SLIDE, OVERFLOW_STOP } Overflow;

typedef struct {
  bool no_history, no_status;
  OptionalText resume;      /* --continue */
  int overflow;             /* Overflow */
  bool overflow_is_usual;   /* overflow is from the settings file: ignored for a single answer */
  const char *tool_command; /* or NULL */
} TalkFlags;
extern const Flag talk_flags[5];
#define TALK_FLAG_GROUP(Struct, member)                                                                      \
  FLAG_GROUP_IN("Chat on a terminal", talk_flags, Struct, member, TalkFlags)

/* Rules for a command that has TALK_FLAG_GROUP and TOOL_FLAG_GROUP. */
#define TALK_FLAG_RULES                                                                                      \
  { "--tool-command", NEEDS, "--tools", NULL }

/* True if standard input and standard output are both terminals. */
bool chat_is_interactive(void);

/* Runs a chat until the user leaves, standard input ends, or the device fails while it answers a message;
 * without a terminal, any failure ends the chat. If standard input is no terminal, or neither output is one,
 * lines of standard input are messages and commands, and standard output gets only the answers. The texts of
 * `files` (NULL: none) come in front of the first message. */
Status chat_run(const AssistantFlags *flags, const TalkFlags *talk, const StringList *files, Error *err);
