/* conversation.h - the messages of a chat, and how they become the ids that a session holds already for the
 * most part. */
#ifndef AUK_COMMANDS_CHAT_CONVERSATION_H
#define AUK_COMMANDS_CHAT_CONVERSATION_H

#include "base/buffer.h"
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

typedef enum { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL } Role;
const char *role_name(Role role);
/* The role that is called text[0..size); false where none is: a template trusts a role's name. */
bool role_find(const char *text, size_t size, Role *role);

typedef struct {
  Role role;
  Buffer text;
  Buffer thinking; /* of an assistant's turn; size 0: none */
} Message;

/* A turn is a user's message and what follows it up to the next one's. What stands before the first turn (a
 * system message, and in a file perhaps more) belongs to none. */
typedef struct {
  Message *messages; /* [count] */
  size_t count, capacity;
} Conversation; /* starts zeroed */

Status conversation_add(Conversation *conversation, Role role, const char *text, size_t size, Error *err);
/* The system message in front becomes this one; size 0: there is none. */
Status conversation_set_system(Conversation *conversation, const char *text, size_t size, Error *err);
const Message *conversation_system(const Conversation *conversation); /* or NULL */
void conversation_truncate(Conversation *conversation, size_t count);
void conversation_drop(Conversation *conversation, size_t first, size_t n); /* messages from `first` on */
/* Adds copies of the first `count` messages of another one. */
Status conversation_copy(Conversation *conversation, const Conversation *from, size_t count, Error *err);
void conversation_release(Conversation *conversation);

/* The first message of the user's at or behind `from`, or the number of messages; the last one of all
 * likewise. */
size_t conversation_next_turn(const Conversation *conversation, size_t from);
size_t conversation_last_turn(const Conversation *conversation);
size_t conversation_n_turns(const Conversation *conversation);

/* Messages [first, count), with those before the first turn in front of them, as chat_render() takes them:
 * free(). They belong to the conversation. */
Status conversation_view(const Conversation *conversation, size_t first, ChatMessage **view, size_t *n,
                         Error *err);

/* Ids are not unique: what a model wrote may be cut into tokens otherwise than its text is when it is
 * encoded. Given the ids that were held before and those of the whole conversation's text, puts the held ones
 * in the place of those that stand for the same text, as far as that is the same from the beginning, so that
 * only what is new has to be computed. A special token is the same as nothing but itself. */
Status ids_splice(const Tokenizer *tokenizer, const IdList *held, IdList *ids, Error *err);

#endif
