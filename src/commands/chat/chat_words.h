/* chat_words.h - the commands of a chat: which there are, and what a line is. */
#ifndef AUK_COMMANDS_CHAT_CHAT_WORDS_H
#define AUK_COMMANDS_CHAT_CHAT_WORDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
  WORD_CLEAR,
  WORD_EDIT,
  WORD_EXIT,
  WORD_HELP,
  WORD_LOAD,
  WORD_READ,
  WORD_REGEN,
  WORD_SAVE,
  WORD_SET,
  WORD_STATS,
  WORD_SYSTEM,
  WORD_TOKENS,
  WORD_UNDO,
  WORD_TEXT,    /* no command: a message */
  WORD_UNKNOWN, /* a word that looks like a command that was mistyped */
} ChatWord;

typedef struct {
  const char *name;     /* without the slash */
  const char *aliases;  /* other names, with spaces around each; "" */
  const char *argument; /* as the help shows it; NULL: takes none; in brackets: may be left out */
  const char *help;
  bool is_file; /* the argument */
} ChatCommand;
extern const ChatCommand chat_commands[WORD_TEXT]; /* by ChatWord */

typedef struct {
  ChatWord word;
  const char *argument; /* [size] of a command, without blanks around it */
  size_t size;
  const char *nearest; /* of WORD_UNKNOWN: the command that was meant, probably */
} ChatLine;

/* A command is a slash, its name, and for those that take one an argument, on one line (/system takes more).
 * Other lines are text: "/usr/bin/env is what?", " /help", "/foo bar". Only a single word that is nearly a
 * command is neither. */
ChatLine chat_parse(const char *line, size_t size);

#endif
