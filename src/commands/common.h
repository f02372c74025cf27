/* common.h - what commands share: how they end, how they open a model, texts, signals that end a program.
 *
 * Environment: AUK_MODEL is the model where no flag names one. */
#ifndef AUK_COMMANDS_COMMON_H
#define AUK_COMMANDS_COMMON_H

#include "base/buffer.h"
#include "base/status.h"
#include "commands/flags.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* Ends a command: prints "auk: MESSAGE" to standard error where there is a message and `status` is a failure
 * that is told (a closed pipe and an interruption are not), and returns the exit status. */
int command_finish(Status status, const Error *err);

/* -m, --rope-theta, --norm-eps, --tokenizer. Zero-initialise it. */
typedef struct {
  const char *path;
  ModelOverrides overrides;
} ModelFlags;
extern const Flag model_flags[4];
#define MODEL_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Model", model_flags, Struct, member, ModelFlags)

/* A model that is named without -m; NULL: none is. Two are STATUS_USAGE. */
Status model_flags_take_operand(ModelFlags *values, const char *operand, Error *err);

/* Where the model lies that the flags name, else the environment: the path itself, or the place in the
 * Hugging Face cache that the name stands for (hub.h). free() it; NULL after a failure. STATUS_USAGE where
 * none is named. */
Status model_flags_path(const ModelFlags *values, char **path, Error *err);
/* Refuses such a path where nothing is there, saying where the name was looked for, as model_flags_open()
 * does. */
Status model_flags_check(const ModelFlags *values, const char *path, Error *err);
Status model_flags_open(const ModelFlags *values, Model **model, Error *err); /* model_close() it */

/* The tokenizer that belongs to an open model, refused with what to do where it has none. */
Status model_tokenizer_check(const Model *model, const char *model_path, Error *err);
Status model_tokenizer_open(const Model *model, const char *model_path, Tokenizer **tokenizer, Error *err);

/* No context holds a text of this size: the longest are of some million tokens of some bytes. */
#define TEXT_LIMIT ((size_t)64 << 20)

/* Reads a person's text: a file, or standard input for "-" (also a fifo). Refused above TEXT_LIMIT, and where
 * it is not valid UTF-8 (STATUS_USAGE, with the byte offset). */
Status text_read(const char *path, Buffer *out, Error *err);
/* Refuses an argument that is not valid UTF-8; `what` is its flag. */
Status text_check(const char *what, const char *text, Error *err);
void text_drop_newline(Buffer *text); /* the one that ends a file is no part of its text */

/* Answers each line of a file (NULL or "-": of standard input) as it comes: take(user, NAME, number from 1,
 * line, &failed). Lines that failed stop nothing; in the end they are STATUS_FAILED, "NAME: 2 of 9 lines
 * WHAT, line 3 first". */
typedef Status (*LineSink)(void *user, const char *name, size_t number, const Buffer *line, bool *failed,
                           Error *err);
Status lines_take(const char *path, LineSink take, void *user, const char *what, Error *err);

/* A seed nobody gave: below 2^53, which every reader of JSON keeps exactly. */
Status random_seed(uint64_t *seed, Error *err);

/* Appends the ids of a text: numbers with white space, commas or brackets between them. `name` is for
 * messages (STATUS_USAGE). */
Status ids_parse(const char *name, const Buffer *text, IdList *ids, Error *err);

/* Refuses ids that the model has no embedding for: a tokenizer that makes them belongs to another model
 * (STATUS_MODEL), a person who gives them is told (STATUS_USAGE). */
typedef enum { IDS_ENCODED, IDS_GIVEN } IdSource;
Status ids_check(const Model *model, const int32_t *ids, size_t n, const char *source, IdSource from,
                 Error *err);

/* Whether the descriptor is a terminal that may be sent more than lines of text: TERM is set, and not "dumb".
 * Only such a one is shown progress, which is taken off it again. */
bool terminal_takes_escapes(int descriptor);

/* Appends a text from a file with its control characters escaped: a terminal must not obey them. */
Status append_escaped(Buffer *out, const char *text, Error *err);

/* From the first call on the first SIGINT, SIGTERM or SIGHUP (unless that is ignored) sets the returned flag,
 * and a second one ends the program. */
const volatile int *interrupt_catch(void);

#endif
