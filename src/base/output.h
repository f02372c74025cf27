/* output.h - standard output as the product: only the answer goes there, and a failed write is an error.
 *
 * A closed pipe gives STATUS_PIPE with an empty message (the program ends quietly with 141; SIGPIPE is
 * ignored from output_begin() on); any other failure (a full disk) gives STATUS_FAILED naming what was
 * written. */
#ifndef AUK_BASE_OUTPUT_H
#define AUK_BASE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

void output_begin(void); /* once, at the start of the program */

/* All of it, straight to descriptor 1; on a terminal as terminal_text() has it. */
Status output_write(const void *bytes, size_t size, Error *err);
/* Likewise to another descriptor, which messages call `name`. */
Status output_write_to(int descriptor, const char *name, const void *bytes, size_t size, Error *err);
/* As it is, to a terminal too: for terminal_text() with escape sequences of our own around it. */
Status output_write_shown(const void *bytes, size_t size, Error *err);
Status output_printf(Error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool output_is_terminal(void);
bool progress_is_terminal(void); /* standard error: where progress and statistics go */
void progress_clear(void);       /* takes a line of progress off it again, where it is a terminal */

#endif
