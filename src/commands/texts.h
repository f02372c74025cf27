/* texts.h - what people write, from files, standard input and arguments: texts, lines, ids. */
#ifndef AUK_COMMANDS_TEXTS_H
#define AUK_COMMANDS_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/status.h"

/* No context holds a text of this size: the longest are of some million tokens of some bytes. */
#define TEXT_LIMIT ((size_t)64 << 20)

/* What messages call a file that a person names: "standard input" for "-" and where it is NULL. */
const char *text_name(const char *path);

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

/* Appends the ids of a text: numbers with white space, commas or brackets between them. `name` is for
 * messages (STATUS_USAGE). */
Status ids_parse(const char *name, const Buffer *text, IdList *ids, Error *err);

#endif
