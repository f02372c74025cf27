/* thoughts.h - thoughts in the ids of a text: whether a prompt has opened one, and the tokens that close
 * it. */
#pragma once

#include "commands/answer/assistant.h"

/* *inside = the prompt ends in an open thought: its text ends with the opening mark and white space. */
Status thoughts_are_open(const Assistant *assistant, const int32_t *ids, size_t n, bool *inside, Error *err);
/* Appends the ids of the closing mark as templates write it: on a line of its own, then an empty line. */
Status thoughts_close(const Assistant *assistant, IdList *ids, Error *err);
