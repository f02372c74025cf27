/* messages.h - messages as clients of OpenAI's API write them, made what chat templates read. */
#pragma once

#include "base/buffer.h"
#include "base/json.h"

/* The thought of a message, "reasoning_content", "thinking" or "reasoning": the first that is there and not
 * null, NULL as text without one. These are the names that transformers takes (chat_template_utils.py). */
JsonSpan message_thinking(JsonSpan message);

/* Appends a list of calls of functions. Arguments that are a string with JSON, as the API has them, become
 * the object that templates read; none become {}. Refuses (STATUS_USAGE) other strings by the number of the
 * message and the call. Anything else is left as it is. */
Status message_append_calls(JsonSpan calls, size_t index, Buffer *out, Error *err);

/* Appends a JSON object with its "messages" as transformers gives them to templates: without members that are
 * null, with the thought under each name, and with calls as above; also without an empty list of calls, which
 * templates would take for calls. */
Status messages_append(JsonSpan object, Buffer *out, Error *err);
