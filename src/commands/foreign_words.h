/* foreign_words.h - advice for commands and flags of other LLM programs that auk does not have. */
#pragma once

#include <stddef.h>

/* Advice for this command of another program; NULL if no other program is known to have it. */
const char *foreign_command(const char *word);
/* The same for a command of a chat, word[0 .. size) without its slash. */
const char *foreign_chat_word(const char *word, size_t size);
/* The same for a flag, flag[0 .. size). */
const char *foreign_flag(const char *flag, size_t size);
