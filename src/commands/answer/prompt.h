/* prompt.h - the text of a prompt from -p, files and standard input, and its truncation. */
#pragma once

#include "commands/answer/assistant.h"
#include "commands/written_file.h"

typedef enum { TRUNCATE_NONE, TRUNCATE_START, TRUNCATE_MIDDLE } Truncation;

typedef struct {
  StringList texts;     /* -p */
  const char *name;     /* -P, or NULL */
  Buffer named;         /* text of -P and a NUL, once prompt_read_named() was called */
  char *named_path;     /* file of -P */
  StringList files;     /* -f; "-" is standard input */
  int truncate;         /* Truncation */
  const char *messages; /* --messages, or NULL */
} PromptFlags;          /* starts zeroed; release the lists, and call prompt_flags_release() */

extern const Flag prompt_flags[5];
#define PROMPT_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Prompt", prompt_flags, Struct, member, PromptFlags)

/* The parts of a prompt; prompt_join() combines them:
 *   no -p                    the input
 *   -p with {}, and input    -p with the input in place of each {}
 *   -p without {}, input     the input, a newline unless it is empty, and -p
 *   -p alone                 -p unchanged, with its braces
 * Beside an input, {{}} in -p becomes {}. With -P, the named prompt is the -p of this table, and -p is the
 * last part of the input. */
typedef struct {
  const char *frame; /* -p if there is an input, else NULL */
  size_t n_places;   /* number of {} in `frame` */
  Buffer input;      /* standard input and files; -p if it is alone */
} Prompt;            /* starts zeroed */

/* Reads standard input and then the files. Each text begins on its own line; the newline at the end of the
 * whole is dropped. Standard input is read if it is piped in, or if "-" is among the files (then at that
 * position). An empty pipe counts as no input. A terminal is read only with "-". STATUS_USAGE without any
 * prompt, with only an empty -p, or without an input for the {} of -P. */
Status prompt_read(const PromptFlags *flags, Prompt *prompt, Error *err);
void prompt_release(Prompt *prompt);

/* Reads the prompt that -P names. Call it before the other functions; prompt_flags_release() frees the
 * prompt. */
Status prompt_read_named(PromptFlags *flags, Error *err);
void prompt_flags_release(PromptFlags *flags);

/* The text of -P, else of the first -p, else NULL. */
const char *prompt_text(const PromptFlags *flags);

/* Reads the input as prompt_read() does, and appends a prompt for each -p (a single one if there is no -p),
 * each with a NUL at its end. */
Status prompt_read_all(const PromptFlags *flags, Buffer *prompts, Error *err);

/* Refuses an output that is standard input or a file of -f, --messages or -P: writing would destroy it. */
Status prompt_check_output(const PromptFlags *flags, const WrittenFile *output, Error *err);

/* True if "-" is among the files. */
bool prompt_asks_for_input(const PromptFlags *flags);

/* True if there is a prompt: -p, -P, --messages, -f, or piped input. */
bool prompt_is_given(const PromptFlags *flags);

/* Appends the prompt with input[0..size) as its input. */
Status prompt_join(const Prompt *prompt, const char *input, size_t size, Buffer *out, Error *err);

/* Appends the ids of the prompt in the assistant's chat format. With --truncate, whole tokens of the input
 * are cut until the context has room for the answer: -n tokens, but at most half of the context; without -n,
 * a quarter of it. Standard error reports the cut. */
Status prompt_encode(const Prompt *prompt, const Assistant *assistant, Truncation truncation, IdList *ids,
                     Error *err);
