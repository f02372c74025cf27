/* foreign_words.h - commands and flags of other programs for language models: what to type here instead. */
#ifndef AUK_COMMANDS_FOREIGN_WORDS_H
#define AUK_COMMANDS_FOREIGN_WORDS_H

#include <stddef.h>

/* What does here what the command does elsewhere; NULL where it is no word of theirs. */
const char *foreign_command(const char *word);
/* Likewise for a flag, flag[0 .. size). */
const char *foreign_flag(const char *flag, size_t size);

#endif
