/* conversation_file.h - conversations as JSON files: {"model": ..., "messages": [{"role": ..., "content":
 * ...}, ...]}, the format of tools for OpenAI's API. */
#pragma once

#include "commands/chat/conversation.h"

/* Writes the file completely or not at all. Replaces only files that hold a conversation (else STATUS_USAGE).
 * A thought is stored as "reasoning_content". */
Status conversation_save(const Conversation *conversation, const char *model, const char *path, Error *err);

/* Reads such a file, or its array of messages alone, into an empty conversation. Roles are system, user,
 * assistant and tool; content is a string or a list of parts of type "text". Content that cannot be kept
 * (images) is refused by name (STATUS_USAGE). */
Status conversation_load(const char *path, Conversation *conversation, Error *err);
