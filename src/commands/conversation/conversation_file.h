/* conversation_file.h - conversations as JSON files: {"model": ..., "messages": [{"role": ..., "content":
 * ...}, ...]}, the format of tools for OpenAI's API. A kept chat (kept_chat.h) has more members before
 * "messages"; all of them are optional. */
#pragma once

#include "commands/conversation/conversation.h"

/* The members of a file other than the messages. All strings are owned; NULL: absent. */
typedef struct {
  char *model;         /* the model's name in Hugging Face's cache, or its path */
  char *chat_template; /* --chat-template */
  ThinkChoice think;   /* --think, --no-think */
  char *began;         /* only in a kept chat: "2026-11-22T15:10:00Z" */
  char *title;         /* only in a kept chat: conversation_title() */
  size_t n_turns;      /* only in a kept chat */
  size_t n_forgotten;  /* number of oldest messages that the model no longer gets for lack of context */
} ConversationHead;    /* starts zeroed */
void conversation_head_release(ConversationHead *head);

enum { CONVERSATION_TITLE = 256 };
/* The beginning of the first message of the user, on one line; empty if there is none. */
void conversation_title(const Conversation *conversation, char title[CONVERSATION_TITLE]);
/* All of the first message of the user on one line, in new memory. */
char *conversation_whole_title(const Conversation *conversation, Error *err);

/* Appends the file's text. An answer whose model is not the head's has a member "model"; a thought is
 * "reasoning_content". Title and number of turns are computed from the conversation; they are written only
 * if head->began is not NULL (a kept chat). */
Status conversation_write(const Conversation *conversation, const ConversationHead *head, Buffer *out,
                          Error *err);

/* Writes the file completely or not at all. Replaces only files that hold a conversation (else
 * STATUS_USAGE). */
Status conversation_save(const Conversation *conversation, const ConversationHead *head, const char *path,
                         Error *err);

/* Reads a file of this format, or an array of messages alone, into an empty conversation. Other members go
 * into a zeroed head (NULL: not wanted). Roles are system, user, assistant and tool; content is a string,
 * null, absent, or a list of parts of type "text". Parts of other types (images) are refused (STATUS_USAGE),
 * with the number of the message. An answer that names no model gets the head's. */
Status conversation_load(const char *path, Conversation *conversation, ConversationHead *head, Error *err);

/* Reads the head of a kept chat, if possible from the beginning of the file alone. */
Status conversation_load_head(const char *path, ConversationHead *head, Error *err);
