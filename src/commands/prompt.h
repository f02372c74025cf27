/* prompt.h - the text of a prompt, from -p, files and standard input, and its token ids. */
#ifndef AUK_COMMANDS_PROMPT_H
#define AUK_COMMANDS_PROMPT_H

#include "commands/flags.h"
#include "tokenizer/frame.h"

typedef struct {
  const char *text;   /* -p, or NULL */
  const char *system; /* -sys, or NULL */
  StringList files;   /* -f; "-" is standard input */
  bool raw;           /* no chat format */
  bool parse_special; /* special tokens count in a person's text */
} PromptFlags;

/* Joins standard input, the files and -p, in this order: text from standard input where it was asked for or
 * something is piped in (where "-" is among the files: in its place there), each part beginning on a line of
 * its own; the newline that ends a file or a pipe is no part of the prompt. STATUS_USAGE where there is no
 * prompt at all. Never reads a terminal that was not asked for. */
Status prompt_text(const PromptFlags *flags, Buffer *text, Error *err);

/* The ids of the prompt in the chat format (CHAT_NONE: as it is, with what the tokenizer itself puts around a
 * text). STATUS_USAGE where there are none. */
Status prompt_encode(const PromptFlags *flags, const Tokenizer *tokenizer, ChatFormat format,
                     const Buffer *text, IdList *ids, Error *err);

#endif
