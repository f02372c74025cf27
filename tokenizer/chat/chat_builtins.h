/* chat_builtins.h - private to chat*.c: templates that need no checkpoint. */
#ifndef AUK_TOKENIZER_CHAT_BUILTINS_H
#define AUK_TOKENIZER_CHAT_BUILTINS_H

#include "tokenizer/tokenizer.h"

typedef struct {
  const char *name, *text;
  const char *controls[2]; /* NULL: the format has none and is never detected */
} ChatBuiltin;

extern const ChatBuiltin chat_builtins[]; /* ends with a NULL name */

const ChatBuiltin *chat_builtin_named(const char *name);        /* NULL: unknown */
const ChatBuiltin *chat_builtin_of(const Tokenizer *tokenizer); /* by special tokens; NULL: none */

#endif
