/* template.h - Jinja, as the chat templates of checkpoints use it: variables in, a prompt out.
 *
 * The reference is jinja2 3.1.6 as set up by Hugging Face's transformers: an immutable sandbox, trim_blocks,
 * lstrip_blocks, loop controls, {% generation %}, raise_exception, strftime_now, and a tojson that does not
 * escape HTML. It differs in this:
 * - Integers have 64 bits; exceeding them fails.
 * - Refused by name are tags that read other templates (include, import, extends, block), autoescape, and the
 *   filters random, pprint, striptags, urlize, wordwrap and xmlattr. Rare forms are refused, too, such as
 *   \N{...} in a string or a print of several values.
 * - Addresses in Python's output are omitted.
 * - A loop or macro can read a variable of the input before the top level sets it. The variable then has its
 *   value of the input; in jinja2 it is undefined.
 *
 * A template is hostile input like any file. Its text has at most 1 MB and 100 open brackets. A rendering has
 * at most 10 million steps, 64 MB of text, 512 MB of memory and 1,000 levels of evaluation: together these
 * limits end it within about a second. */
#pragma once

#include "base/json.h"

typedef struct Template Template; /* parsed; read-only from then on */

/* Parses a template's text. `name` begins the messages ("NAME: line 3: ..."); failures leave NULL and
 * are STATUS_MODEL, or STATUS_FAILED without memory. Close with template_close() (NULL is fine). */
Status template_parse(const char *name, const char *text, size_t size, Template **parsed, Error *err);
void template_close(Template *parsed);
RELEASE_BY(template_release, Template, template_close)

/* Text that records which of its parts are the template's own (trusted) and which came from outside. */
typedef struct {
  size_t end; /* the run ends before this byte and begins where the previous one ends */
  bool trusted;
} TextRun;
typedef struct {
  Buffer text;
  TextRun *runs; /* [n_runs] neighbours differ in trust; each is valid UTF-8 by itself */
  size_t n_runs, capacity;
} TrustedText; /* zero-initialise it */
void trusted_text_release(TrustedText *text);

typedef struct {
  const Json *variables; /* an object or NULL: messages, add_generation_prompt, tools, ... Its strings are
                            not trusted, except members named "role" */
  const Json *specials;  /* an object or NULL: bos_token, eos_token, ... Its strings are trusted; variables of
                            the same name win */
  const volatile int *interrupted; /* once it is set, rendering ends with STATUS_INTERRUPTED; or NULL */
  int64_t now;                     /* local time in seconds since the epoch, for strftime_now */
} TemplateInput;

/* Appends the rendered template. Strings keep track of their trusted parts through every operation. Trusted
 * are literals of the template, digits and punctuation that rendering adds, and what TemplateInput calls
 * trusted. On raise_exception() the status is STATUS_USAGE, *raised is true, and the whole message is
 * appended. Any other failure appends nothing. A failure of the template is STATUS_MODEL with name, line and
 * construct ("NAME: line 3: message.x.y: 'dict object' has no attribute 'x'"); others are STATUS_INTERRUPTED,
 * or STATUS_FAILED without memory. */
Status template_render(const Template *parsed, const TemplateInput *input, TrustedText *out, bool *raised,
                       Error *err);

/* True if the template mentions a variable of this name anywhere ("enable_thinking"). */
bool template_mentions(const Template *parsed, const char *variable);

/* True if the template's text holds this string anywhere ("<|im_end|>"). */
bool template_writes(const Template *parsed, const char *string);
