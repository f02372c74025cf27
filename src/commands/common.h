/* common.h - what commands share: how they end, notes, signals that end them, seeds, what terminals are sent,
 * names of files. */
#ifndef AUK_COMMANDS_COMMON_H
#define AUK_COMMANDS_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

/* Ends a command: prints "auk: MESSAGE" to standard error where there is a message and `status` is a failure
 * that is told (a closed pipe and an interruption are not), and returns the exit status. */
int command_finish(Status status, const Error *err);

/* Prints "auk: ..." to standard error as one line without control characters: for what has names of files in
 * it. */
void print_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A seed nobody gave: below 2^53, which every reader of JSON keeps exactly. */
Status random_seed(uint64_t *seed, Error *err);

/* Whether the descriptor is a terminal that may be sent more than lines of text: TERM is set, and not "dumb".
 * Only such a one is shown progress, which is taken off it again. */
bool terminal_takes_escapes(int descriptor);

/* Appends a text from a file with its control characters escaped: a terminal must not obey them. */
Status append_escaped(Buffer *out, const char *text, Error *err);

/* Refuses "-" as the file of a flag or a command (NULL: none is given) that takes neither standard input nor
 * standard output: it would be a file of this name. */
Status file_name_check(const char *what, const char *path, Error *err);

/* From the first call on the first SIGINT, SIGTERM or SIGHUP (unless that is ignored) sets the returned flag,
 * and a second one ends the program. */
const volatile int *interrupt_catch(void);
bool interrupt_came(void); /* whether it has set it */

#endif
