/* conversation_file.h - conversations as JSON files: {"model": ..., "messages": [{"role": ..., "content":
 * ...}, ...]}, which is what tools for OpenAI's API read and write. */
#ifndef AUK_COMMANDS_CHAT_CONVERSATION_FILE_H
#define AUK_COMMANDS_CHAT_CONVERSATION_FILE_H

#include "commands/chat/conversation.h"

/* Writes it, whole or not at all. A file that is there already is replaced only where it holds a conversation
 * (STATUS_USAGE else). A thought is "reasoning_content". */
Status conversation_save(const Conversation *conversation, const char *model, const char *path, Error *err);

/* Reads a file that was saved, or its array of messages alone, into an empty conversation. Roles are system,
 * user, assistant and tool; content is a string, or a list of parts of type "text". What could not be kept
 * (calls of tools, images) is refused by name (STATUS_USAGE), never left out. */
Status conversation_load(const char *path, Conversation *conversation, Error *err);

#endif
