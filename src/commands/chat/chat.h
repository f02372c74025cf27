/* chat.h - a conversation on a terminal. */
#ifndef AUK_COMMANDS_CHAT_CHAT_H
#define AUK_COMMANDS_CHAT_CHAT_H

#include "commands/answer/assistant.h"

typedef enum { OVERFLOW_ASK, OVERFLOW_SLIDE, OVERFLOW_STOP } Overflow;

typedef struct {
  bool no_history, no_status;
  int overflow; /* Overflow */
} TalkFlags;
extern const Flag talk_flags[3];
#define TALK_FLAG_GROUP(Struct, member)                                                                      \
  FLAG_GROUP_IN("Chat on a terminal", talk_flags, Struct, member, TalkFlags)

/* Whether a person sits at both ends: standard input is a terminal, and standard output is. */
bool chat_has_person(void);

/* Chats until the person leaves, or standard input ends. Where chat_has_person() does not hold, standard
 * input's lines are messages and commands, and standard output takes the answers alone. */
Status chat_run(const AssistantFlags *flags, const TalkFlags *talk, Error *err);

#endif
