/* dialogue.h - a chat while it goes on: what was said, what the session holds of it, and how an answer is
 * made. Private to chat.c, chat_commands.c and dialogue.c. */
#ifndef AUK_COMMANDS_CHAT_DIALOGUE_H
#define AUK_COMMANDS_CHAT_DIALOGUE_H

#include "commands/answer/show.h"
#include "commands/chat/chat.h"
#include "commands/chat/chat_input.h"
#include "commands/chat/chat_settings.h"
#include "commands/chat/chat_words.h"
#include "commands/chat/conversation.h"

typedef struct {
  int n_answers;
  long long n_prefilled, n_reused, n_generated; /* tokens */
  double prefill_ms, decode_ms;
} Totals;

typedef struct {
  const TalkFlags *talk;
  Assistant assistant;
  ChatSettings settings;
  ChatInput input;
  Conversation conversation;
  IdList held;           /* ids of the last prompt and of what was generated behind it */
  Buffer attached;       /* files that /read took, for the next message */
  Show show;             /* where answers go */
  bool interactive;      /* a person sits there */
  FILE *screen;          /* the terminal they see; of a pipe: standard error */
  bool ansi, dim;        /* it takes escape sequences; notes are dim */
  bool in_progress;      /* a line of progress stands there */
  double began_ms;       /* of the answer */
  AnswerResult result;   /* of the last answer */
  Buffer text, thinking; /* likewise */
  bool has_result;
  Totals totals;
  int told_full;        /* percent of the context that was told of */
  bool weights_changed; /* they were written to: no answer comes any more */
  bool leaves;
} Dialogue; /* starts zeroed */

/* A line to the person: as it is; as a note beside the talk. Where nobody sits there, to standard error. */
void dialogue_say(const Dialogue *dialogue, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dialogue_note(const Dialogue *dialogue, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Lines that are done. */
void dialogue_print(const Dialogue *dialogue, const Buffer *lines);
/* Appends the beginning of a text as one line of at most `most` characters, fit for a terminal. */
Status dialogue_excerpt(const char *text, size_t size, size_t most, Buffer *out, Error *err);

/* The tokens of a text by itself. */
Status dialogue_count(const Dialogue *dialogue, const Buffer *text, size_t *n, Error *err);
/* The tokens that a message of this text takes of the context with the system message and the template, but
 * without the turns before it. */
Status dialogue_measure(const Dialogue *dialogue, const Buffer *text, size_t *n, Error *err);
/* Advice for a context that is too short: " (-c N sets it, ...)", or empty where it is the model's
 * maximum. */
typedef struct {
  char text[64];
} ContextHint;
ContextHint dialogue_context_hint(const Dialogue *dialogue);

/* The ids of the conversation from its turn at message `first` on. */
Status dialogue_encode(const Dialogue *dialogue, size_t first, IdList *ids, Error *err);

/* Answers the conversation, which ends with a message of the user's or a tool's. *answered is false where
 * there was no room for it, or nothing came: the conversation is as it was. */
Status dialogue_answer(Dialogue *dialogue, bool *answered, Error *err);

/* Adds a message, behind the files that were read for it, and answers it. Where there is no answer the
 * message is not kept either. */
Status dialogue_send(Dialogue *dialogue, const char *text, size_t size, Error *err);

/* Carries out a command. */
Status chat_command(Dialogue *dialogue, const ChatLine *line, Error *err);

#endif
