/* foreign_words.h - commands and flags of other programs for language models: what to type here instead. */
#ifndef AUK_COMMANDS_FOREIGN_WORDS_H
#define AUK_COMMANDS_FOREIGN_WORDS_H

#include <stddef.h>

/* How to do here what this command does in other programs; NULL where they have no such command. */
const char *foreign_command(const char *word);
/* Likewise for a flag, flag[0 .. size). */
const char *foreign_flag(const char *flag, size_t size);

#endif
