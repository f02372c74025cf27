/* output.h - writing to standard output, which gets only the answer; a failed write is an error.
 *
 * A closed pipe gives STATUS_PIPE with an empty message (the program ends quietly with 141; output_begin()
 * ignores SIGPIPE); any other failure (a full disk) gives STATUS_FAILED naming the descriptor. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

void output_begin(void); /* once, at the start of the program */

/* Writes all bytes unbuffered to standard output; if that is a terminal, through terminal_text(). */
Status output_write(const void *bytes, size_t size, Error *err);
/* output_write() to another descriptor, which messages call `name`. */
Status output_write_to(int descriptor, const char *name, const void *bytes, size_t size, Error *err);
/* Writes all bytes unchanged, to a terminal too: for text from terminal_text() that has escape sequences
 * around it. */
Status output_write_shown(const void *bytes, size_t size, Error *err);
Status output_printf(Error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool output_is_terminal(void);
bool progress_is_terminal(void); /* true if standard error, where progress and statistics go, is a terminal */
void progress_clear(void);       /* erases the line of progress, if standard error is a terminal */
