/* messages.h - converts messages in the form of OpenAI's API to the form that chat templates read. */
#pragma once

#include "base/buffer.h"
#include "base/json.h"

/* The thought of a message: the first of its members "reasoning_content", "thinking" and "reasoning" that is
 * not null; text NULL: none. These are the names that transformers takes (chat_template_utils.py). */
JsonSpan message_thinking(JsonSpan message);

/* Appends a list of calls of functions. Arguments that are a string with a JSON object, as the API has them,
 * become the object that templates read; missing, null and blank ones become {}. Refuses (STATUS_USAGE) other
 * strings, with the numbers of the message (index) and the call. Anything else is left as it is. */
Status message_append_calls(JsonSpan calls, size_t index, Buffer *out, Error *err);

/* Appends a JSON object with its "messages" as transformers gives them to templates. Members that are null
 * are left out, the thought is under each of its names, and calls are as message_append_calls() appends them.
 * Drops an empty list of calls, which templates would take for calls. */
Status messages_append(JsonSpan object, Buffer *out, Error *err);
