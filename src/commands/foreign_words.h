/* foreign_words.h - advice for commands and flags of other LLM programs that auk does not have. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Advice for this command of another program; NULL if no other program is known to have it. */
const char *foreign_command(const char *word);
/* Advice for a command of another program's chat, word[0 .. size) without its slash; or NULL. */
const char *foreign_chat_word(const char *word, size_t size);
/* Advice for a flag of another program, flag[0 .. size); or NULL. */
const char *foreign_flag(const char *flag, size_t size);

/* The kind of flag[0 .. size) if it is a flag of llama.cpp that auk does not need: auk ignores the flag and
 * any value of it. FOREIGN_OTHER: it is no such flag. FOREIGN_ON_OFF: a value "on", "off", "auto", "0" or "1"
 * may follow. */
typedef enum { FOREIGN_OTHER, FOREIGN_SWITCH, FOREIGN_VALUE, FOREIGN_ON_OFF } ForeignKind;
ForeignKind foreign_idle(const char *flag, size_t size);
/* Sets *own and *own_value to auk's flag and value that mean the same as llama.cpp's; false: auk has none. */
bool foreign_translate(const char *flag, size_t size, const char *value, const char **own,
                       const char **own_value);
