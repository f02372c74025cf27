/* template.h - Jinja, as the chat templates of checkpoints use it: variables in, a prompt out.
 *
 * The reference is jinja2 3.1 set up as Hugging Face transformers does it (trim_blocks, lstrip_blocks, loop
 * controls, raise_exception, strftime_now, tojson that does not escape HTML). A template is hostile input like any
 * file: its nesting, its steps and what it writes are limited. */
#ifndef AUK_TOKENIZER_TEMPLATE_H
#define AUK_TOKENIZER_TEMPLATE_H

#include "base/json.h"

typedef struct Template Template; /* parsed; read-only from then on */

/* Parses a template's text. `name` begins the messages ("NAME: line 3: ..."); failures are STATUS_MODEL. NULL after a
 * failure; close with template_close() (NULL is fine). */
Status template_parse(const char *name, const char *text, size_t size, Template **parsed, Error *err);
void template_close(Template *parsed);

/* Text of which every part is known to be the template's own (trusted) or somebody else's. */
typedef struct {
  size_t end; /* the run ends before this byte; it begins where the one before it ends */
  bool trusted;
} TextRun;
typedef struct {
  Buffer text;
  TextRun *runs; /* [n_runs] neighbours differ in trust; each is valid UTF-8 by itself */
  size_t n_runs, capacity;
} TrustedText; /* starts zeroed */
void trusted_text_release(TrustedText *text);

typedef struct {
  const Json
      *variables; /* an object: messages, add_generation_prompt, tools, ...; its strings are not trusted, but
                            those of members named "role" */
  const Json *
      specials; /* an object: bos_token, eos_token, ...; its strings are trusted; variables win; may be NULL */
  int64_t now;  /* seconds since the epoch, in local time of the caller's choice: for strftime_now */
} TemplateInput;

/* Appends what the template makes of the input. A string keeps, through every operation of the language, which of its
 * parts are trusted: literals of the template are, what comes from the variables is not. raise_exception() is STATUS_USAGE
 * with exactly its message (*raised true); every other failure is STATUS_MODEL with name, line and construct. */
Status template_render(const Template *parsed, const TemplateInput *input, TrustedText *out, bool *raised,
                       Error *err);

/* Whether the template mentions a variable of this name anywhere ("enable_thinking"). */
bool template_mentions(const Template *parsed, const char *variable);

/* Whether its text holds this string anywhere ("<|im_end|>"). */
bool template_writes(const Template *parsed, const char *string);

#endif
