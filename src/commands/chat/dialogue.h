/* dialogue.h - a running chat: its messages, the session's ids, and how an answer is made. Private to chat.c,
 * chat_commands.c, dialogue.c and tool_results.c. */
#pragma once

#include "commands/answer/show.h"
#include "commands/chat/chat.h"
#include "commands/chat/chat_input.h"
#include "commands/chat/chat_settings.h"
#include "commands/chat/chat_words.h"
#include "commands/conversation/continued.h"
#include "terminal/spinner.h"

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
  Continued continued; /* the kept chat that the conversation continues */
  Error begin_note;    /* note from continued_begin(); empty: none */
  bool unsaved;        /* the conversation has changed since it was last written */
  IdList held;         /* ids of the last prompt and its answer */
  Buffer attached;     /* text from /read for the next message */
  Show show;           /* output of answers */
  bool interactive;    /* the user is at a terminal */
  FILE *screen;        /* standard output if it is a terminal, else standard error */
  bool ansi, dim;      /* ansi: the screen takes escape sequences; dim: notes are dim */
  Spinner spinner;     /* shown until the first text of an answer */
  AnswerText answer;   /* the last answer */
  AnswerResult result; /* its result */
  bool has_result;
  Totals totals;
  int reported_percent; /* highest fullness of the context reported: 75 or 90 percent; 0: none */
  bool weights_changed; /* the weight files were written to: no more answers */
  bool turn_ends;       /* dialogue_end_turn() still has to write an empty line */
  bool leaves;
} Dialogue; /* starts zeroed */

/* Frees the chat's memory, also of a chat that was opened in part; chat_input_close() frees `input`. */
void dialogue_release(Dialogue *dialogue);

/* Prints a line for the user, or a note beside the chat. Without a terminal both go to standard error. */
#define dialogue_say(dialogue, ...)  dialogue_line(dialogue, false, __VA_ARGS__)
#define dialogue_note(dialogue, ...) dialogue_line(dialogue, true, __VA_ARGS__)
void dialogue_line(const Dialogue *dialogue, bool is_note, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes an empty line after an answer and its notes, on a terminal. */
void dialogue_end_turn(Dialogue *dialogue);
/* Shows a text of an earlier answer on a terminal: dim, words wrapped. */
Status dialogue_recall(const Dialogue *dialogue, const Buffer *text, Error *err);
void dialogue_print(const Dialogue *dialogue, const Buffer *lines);
/* Appends a text's first `most` characters as one line, safe for a terminal; "..." follows if it has more. */
Status dialogue_excerpt(const char *text, size_t size, size_t most, Buffer *out, Error *err);

Status dialogue_count(const Dialogue *dialogue, const Buffer *text, size_t *n, Error *err);
/* Counts the tokens of a prompt with two parts: the messages before the first turn (conversation.h), and a
 * user message with this text. */
Status dialogue_measure(const Dialogue *dialogue, const Buffer *text, size_t *n, Error *err);
/* Advice for a context that is too short: " (-c N sets it, ...)", or empty at the model's maximum. */
typedef struct {
  char text[64];
} ContextHint;
ContextHint dialogue_context_hint(const Dialogue *dialogue);

/* Encodes the messages before the first turn (conversation.h), then the messages from number `first` on. */
Status dialogue_encode(const Dialogue *dialogue, const Conversation *conversation, size_t first, IdList *ids,
                       Error *err);

/* Answers the conversation. With --tool-command runs the calls of the answer and answers again, until an
 * answer has no call (at most 64 times). *answered is false if no answer was added: the conversation is then
 * unchanged. PRECOND the conversation ends with a message of the user or of a tool */
Status dialogue_answer(Dialogue *dialogue, bool *answered, Error *err);

/* Adds a user message (the attached files, then `text`) and answers it. If there is no answer, the message is
 * removed again. */
Status dialogue_send(Dialogue *dialogue, const char *text, size_t size, Error *err);

/* Takes `text` as the result of the first call without one. Answers when every call has its result. If no
 * answer comes, drops this result again. STATUS_USAGE if no call waits. */
Status dialogue_give_result(Dialogue *dialogue, const char *text, size_t size, Error *err);
/* Appends a line for each call that waits for a result. */
Status dialogue_list_calls(const Dialogue *dialogue, Buffer *out, Error *err);
/* Runs --tool-command for each call without a result. Only says how to give results if there is no such flag,
 * may_run is false, or the answer was interrupted. *answer: the command gave all results, and they need an
 * answer. */
Status dialogue_run_tools(Dialogue *dialogue, bool may_run, bool *answer, Error *err);
/* Keeps the conversation if it has changed. A failure is reported once and stops nothing. */
void dialogue_keep(Dialogue *dialogue);

/* Shows the last user message and its answer: the user sees which conversation continues
 * (chat_commands.c). */
Status dialogue_show_last_turn(Dialogue *dialogue, Error *err);

/* Puts the text of a file in front of the next message. Refuses the file if it and the texts attached before
 * would fill the context (chat_commands.c). */
Status dialogue_attach_file(Dialogue *dialogue, const char *path, Error *err);

Status chat_command(Dialogue *dialogue, const ChatLine *line, Error *err);
