/* chat_words.h - the table of chat commands, and parsing a line. */
#pragma once

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
  WORD_TOOL,
  WORD_UNDO,
  WORD_TEXT,    /* a message */
  WORD_UNKNOWN, /* looks like a command, but is none */
} ChatWord;

typedef struct {
  const char *name;     /* name without the slash */
  const char *aliases;  /* other names, each between spaces; "" for none */
  const char *argument; /* shown in the help; NULL: takes none; in brackets: optional */
  const char *help;
  bool is_file; /* the argument is a file */
} ChatCommand;
extern const ChatCommand chat_commands[WORD_TEXT]; /* indexed by ChatWord */

typedef struct {
  ChatWord word;
  const char *argument; /* [size] argument of a command, trimmed */
  size_t size;
  const char *name; /* [name_size] for WORD_UNKNOWN: the word, without the slash */
  size_t name_size;
  const char *nearest; /* for WORD_UNKNOWN: the command that was probably meant, or NULL */
} ChatLine;

/* Returns a hint if the text is only exit, quit, help or !COMMAND (commands of other chat programs); else
 * NULL. */
const char *chat_bare_word(const char *text, size_t size);

/* A command is a slash, a known name and perhaps an argument, on one line (/system and /tool: on any number).
 * A line whose first word looks like a command but is none, "/foo bar" or "/tmp", is WORD_UNKNOWN. All else
 * is text: "/usr/bin/env is what?", " /help", "/2 apples". */
ChatLine chat_parse(const char *line, size_t size);
