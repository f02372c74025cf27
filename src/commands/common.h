/* common.h - shared by all commands: exit status, notes, signals, seeds, terminals, file names. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "terminal/spinner.h"

/* Ends a command: returns the exit status and prints "auk: MESSAGE" to standard error for a failure that has
 * a message. A closed pipe and an interruption print nothing. */
int command_finish(Status status, const Error *err);

/* Prints "auk: ..." to standard error as one line without control characters. */
void print_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A random seed below 2^53, which every JSON reader represents exactly. */
Status random_seed(uint64_t *seed, Error *err);

/* True if the descriptor is a terminal that understands escape sequences: TERM is set and not "dumb". Only
 * such a terminal shows progress, which is erased afterwards. */
bool terminal_takes_escapes(int descriptor);
/* Replaces the progress line on standard error, which must be a terminal that takes escapes. The text, ASCII,
 * is cut to the terminal's width: of a line that wraps, only the last row could be erased. */
void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A spinner on standard error for the time in which a model is loaded. */
Spinner loading_spinner(bool is_wanted);

/* Appends a text escaped as in a JSON string, without the quotes around it: a terminal would obey its control
 * characters. */
Status append_escaped(Buffer *out, const char *text, Error *err);

/* Refuses "-" as the name of a file where neither standard input nor standard output is supported; NULL (no
 * name) passes. */
Status file_name_check(const char *what, const char *path, Error *err);

/* Reads a flag's size, of `least` bytes or more: a number, then optionally K, M, G or T (powers of 1024),
 * then optionally B, or iB after such a letter. */
Status size_parse(const char *flag, const char *text, uint64_t least, uint64_t *bytes, Error *err);

/* Sets the error "PATH: cannot WHAT: " and errno's text; returns STATUS_FAILED. */
Status system_error(const char *path, const char *what, Error *err);

/* Installs a signal handler. The first SIGINT, SIGTERM or, unless it is ignored, SIGHUP then sets the
 * returned flag; a second one ends the program. */
const volatile int *interrupt_catch(void);
bool interrupt_came(void); /* true if that flag is set */
