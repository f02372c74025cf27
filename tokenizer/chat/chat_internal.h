/* chat_internal.h - private to chat*.c: what a Chat is made of. */
#ifndef AUK_TOKENIZER_CHAT_INTERNAL_H
#define AUK_TOKENIZER_CHAT_INTERNAL_H

#include "tokenizer/chat/chat.h"
#include "tokenizer/chat/chat_builtins.h"

enum { TEMPLATE_FILE_LIMIT = 1 << 20 }; /* bytes: the longest in use have some 20,000 */

struct Chat {
  Template *template;
  Json *specials; /* an object: the special tokens, and the variables that every template gets */
  char *source;
  uint64_t hash;              /* chat_hash() */
  const ChatBuiltin *builtin; /* NULL: not a built-in template */
  const volatile int *interrupted;
};

#endif
