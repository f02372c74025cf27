/* chat_builtins.h - private to chat*.c: templates that need no checkpoint. */
#ifndef AUK_TOKENIZER_CHAT_BUILTINS_H
#define AUK_TOKENIZER_CHAT_BUILTINS_H

#include "tokenizer/tokenizer.h"

typedef struct {
  const char *name, *text;
  const char *controls[2]; /* NULL: it has none, and no tokenizer shows it */
} ChatBuiltin;

extern const ChatBuiltin chat_builtins[]; /* ends with a NULL name */

const ChatBuiltin *chat_builtin_named(const char *name);        /* NULL: there is none */
const ChatBuiltin *chat_builtin_of(const Tokenizer *tokenizer); /* by its special tokens; NULL likewise */

#endif
