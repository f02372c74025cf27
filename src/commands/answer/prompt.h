/* prompt.h - the text of a prompt, from -p, files and standard input, and what is cut of one too long. */
#ifndef AUK_COMMANDS_ANSWER_PROMPT_H
#define AUK_COMMANDS_ANSWER_PROMPT_H

#include "commands/answer/assistant.h"
#include "commands/written_file.h"

typedef enum { TRUNCATE_NONE, TRUNCATE_START, TRUNCATE_MIDDLE } Truncation;

typedef struct {
  const char *text; /* -p, or NULL */
  StringList files; /* -f; "-" is standard input */
  int truncate;     /* Truncation */
} PromptFlags;      /* zero-initialise it; release the files */

extern const Flag prompt_flags[3];
#define PROMPT_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Prompt", prompt_flags, Struct, member, PromptFlags)

/* The parts of a prompt, put together by prompt_join():
 *   no -p                    the input
 *   -p with {}               the input in place of each {}; {{}} is {}
 *   -p without, and input    the input, a newline, and -p
 *   -p alone                 -p as it is, braces and all */
typedef struct {
  const char *frame; /* -p beside an input, else NULL */
  size_t n_places;   /* {} in it */
  Buffer input;      /* standard input and files; -p where it is alone */
} Prompt;            /* starts zeroed */

/* Reads standard input, then the files: standard input where it was asked for or something is piped in (where
 * "-" is among the files: in its place there), each text beginning on a line of its own; the newline that
 * ends the last one is no part of the prompt. A pipe without a byte is none. STATUS_USAGE where there is no
 * prompt at all, or nothing but an empty -p. Never reads a terminal that was not asked for. */
Status prompt_read(const PromptFlags *flags, Prompt *prompt, Error *err);
void prompt_release(Prompt *prompt);

/* Refuses an output that is one of the files, or standard input: the answer would take the place of what it
 * is about. */
Status prompt_spares(const PromptFlags *flags, const WrittenFile *output, Error *err);

/* Whether "-" is among the files. */
bool prompt_asks_for_input(const PromptFlags *flags);

/* Whether there would be a prompt at all: -p, a file, or something piped in. */
bool prompt_is_given(const PromptFlags *flags);

/* Appends the prompt with input[0..size) for its input. */
Status prompt_join(const Prompt *prompt, const char *input, size_t size, Buffer *out, Error *err);

/* Appends the ids of the prompt in the assistant's chat. Where --truncate allows it and they would leave less
 * than -n of the context for the answer (a quarter of it where -n does not say, never more than half), whole
 * tokens of the input are cut, and it says so on standard error. */
Status prompt_encode(const Prompt *prompt, const Assistant *assistant, Truncation truncation, IdList *ids,
                     Error *err);

#endif
