/* chat_internal.h - private to chat*.c: the parts of a Chat, and the built-in templates. */
#pragma once

#include "tokenizer/chat/chat.h"

enum { TEMPLATE_FILE_LIMIT = 1 << 20 }; /* bytes: the longest in use have some 20,000 */

typedef struct {
  const char *name, *text;
  const char *controls[2]; /* NULL: the format has none and is never detected */
} ChatBuiltin;

extern const ChatBuiltin chat_builtins[]; /* ends with a NULL name */

const ChatBuiltin *chat_builtin_named(const char *name);        /* NULL: unknown */
const ChatBuiltin *chat_builtin_of(const Tokenizer *tokenizer); /* by special tokens; NULL: none */

struct Chat {
  Template *template;
  Json *specials; /* an object: the special tokens, and the variables that every template gets */
  char *source;
  uint64_t hash;              /* chat_hash() */
  const ChatBuiltin *builtin; /* NULL: not a built-in template */
  bool has_tool_use;          /* the checkpoint has a template of the name "tool_use" */
  bool in_parts;              /* write contents as lists of one part: the template drops strings */
  const volatile int *interrupted;
};

/* Sets in_parts by a trial: many templates of multimodal models take only lists of parts. */
void chat_try_parts(Chat *chat);
