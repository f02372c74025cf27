/* conversation.h - the messages of a chat, and reuse of the ids that the session already holds. */
#pragma once

#include "base/buffer.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

typedef enum { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL } Role;
const char *role_name(Role role);
/* Finds the role named text[0..size). Unknown roles are refused because templates trust role names. */
bool role_find(const char *text, size_t size, Role *role);

typedef struct {
  Role role;
  Buffer text;
  Buffer thinking; /* thought of the assistant; size 0: none */
  Buffer members;  /* ChatMessage.members: tool_calls; or tool_call_id and name, if this is a call's result */
  Buffer model;    /* the model that wrote an assistant's message; size 0: unknown */
} Message;

/* A turn is a user message and all messages up to the next user message. Messages before the first turn (a
 * system message, in a file perhaps more) belong to no turn. */
typedef struct {
  Message *messages; /* [count] */
  size_t count, capacity;
} Conversation; /* starts zeroed */

Status conversation_add(Conversation *conversation, Role role, const char *text, size_t size, Error *err);
/* Sets the system message at the front; size 0 removes it. */
Status conversation_set_system(Conversation *conversation, const char *text, size_t size, Error *err);
const Message *conversation_system(const Conversation *conversation); /* or NULL */
void conversation_truncate(Conversation *conversation, size_t count);
void conversation_drop(Conversation *conversation, size_t first, size_t n); /* [first, first + n) */
/* Appends copies of the messages [first, end) of another conversation. */
Status conversation_append(Conversation *conversation, const Conversation *from, size_t first, size_t end,
                           Error *err);
void conversation_release(Conversation *conversation);

/* conversation_next_turn() finds the first user message from `from` on, conversation_last_turn() the last
 * user message. Both return its index, or the number of messages if there is none. */
size_t conversation_next_turn(const Conversation *conversation, size_t from);
size_t conversation_last_turn(const Conversation *conversation);
size_t conversation_n_turns(const Conversation *conversation);

/* Messages [first, count), preceded by the messages before the first turn, for chat_render(). The caller
 * frees the array; the texts stay owned by the conversation. */
Status conversation_view(const Conversation *conversation, size_t first, ChatMessage **view, size_t *n,
                         Error *err);

/* The same text can have several token sequences: the model's own tokens may differ from the encoding of its
 * answer. `ids` encode the whole conversation. Finds the longest prefix of `ids` that has the text of a
 * prefix of `held`, and puts the held ids in its place: only new tokens are then computed. A special token
 * and a byte token (<0xNN>) equal only themselves. */
Status ids_splice(const Tokenizer *tokenizer, const IdList *held, IdList *ids, Error *err);
