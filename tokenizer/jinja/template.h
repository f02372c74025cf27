/* template.h - Jinja, as the chat templates of checkpoints use it: variables in, a prompt out.
 *
 * The reference is jinja2 3.1.6 set up as Hugging Face's transformers does it: an immutable sandbox,
 * trim_blocks, lstrip_blocks, loop controls, {% generation %}, raise_exception, strftime_now, and a tojson
 * that does not escape HTML. What differs: integers have 64 bits, and going beyond them fails; tags that
 * read other templates (include, import, extends, block), autoescape, and the filters random, pprint,
 * striptags, urlize, wordwrap and xmlattr are refused by name; what Python prints with an address is printed
 * without; a variable that is given, read in a loop or macro, and only behind that set at the top level, is
 * read as it was given (jinja2 finds nothing).
 *
 * A template is hostile input like any file. Its text is limited to 1 MB and 100 open brackets; a rendering
 * to 10 million steps, 64 MB of text, 512 MB of memory and 1,000 levels of evaluation, which together end
 * whatever does not end by itself within a second. */
#ifndef AUK_JINJA_TEMPLATE_H
#define AUK_JINJA_TEMPLATE_H

#include "base/json.h"

typedef struct Template Template; /* parsed; read-only from then on */

/* Parses a template's text. `name` begins the messages ("NAME: line 3: ..."); failures are STATUS_MODEL. NULL
 * after a failure; close with template_close() (NULL is fine). */
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
  const Json *variables; /* an object or NULL: messages, add_generation_prompt, tools, ... Its strings are not
                            trusted, but those that are members named "role" */
  const Json *specials;  /* an object or NULL: bos_token, eos_token, ... Its strings are trusted; variables of
                            the same name win */
  const volatile int *interrupted; /* NULL: never. Once it is not 0 rendering ends with STATUS_INTERRUPTED */
  int64_t now; /* seconds since the epoch as a clock on the wall counts them: for strftime_now */
} TemplateInput;

/* Appends what the template makes of the input. A string keeps, through every operation of the language,
 * which of its parts are trusted: literals of the template are, and digits and structure that it makes; what
 * comes from the variables is not. raise_exception() is STATUS_USAGE with its message (*raised true), which
 * is then also what is appended, in full; every other failure is STATUS_MODEL with name, line and construct
 * ("NAME: line 3: message.x.y: 'dict object' has no attribute 'x'"), and nothing is appended. */
Status template_render(const Template *parsed, const TemplateInput *input, TrustedText *out, bool *raised,
                       Error *err);

/* Whether the template mentions a variable of this name anywhere ("enable_thinking"). */
bool template_mentions(const Template *parsed, const char *variable);

/* Whether its text holds this string anywhere ("<|im_end|>"). */
bool template_writes(const Template *parsed, const char *string);

#endif
