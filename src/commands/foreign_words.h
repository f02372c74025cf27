/* foreign_words.h - advice for commands and flags of other LLM programs that auk does not have. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Advice for this command of another program; NULL if no other program is known to have it. */
const char *foreign_command(const char *word);
/* The same for a command of a chat, word[0 .. size) without its slash. */
const char *foreign_chat_word(const char *word, size_t size);
/* The same for a flag, flag[0 .. size). */
const char *foreign_flag(const char *flag, size_t size);

/* A flag of llama.cpp, flag[0 .. size), that scripts give and that says nothing which auk does not know or do
 * by itself: it is left out, with its value. ON_OFF: perhaps a value, "on", "off" or "auto". */
typedef enum { FOREIGN_OTHER, FOREIGN_SWITCH, FOREIGN_VALUE, FOREIGN_ON_OFF } ForeignKind;
ForeignKind foreign_idle(const char *flag, size_t size);
/* Flag and value of auk that mean the same as those of llama.cpp; false: none do. */
bool foreign_translate(const char *flag, size_t size, const char *value, const char **own,
                       const char **own_value);
