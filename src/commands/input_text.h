/* input_text.h - texts, lines and ids that a user gives in files, on standard input and as arguments. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/status.h"

/* Bytes. No context holds a longer text: the longest contexts are some million tokens of a few bytes. */
#define TEXT_LIMIT ((size_t)64 << 20)

/* The name of an input file in messages: "standard input" for "-" and NULL. */
const char *text_name(const char *path);

/* Prints a note that standard input is being read, if it is a terminal. Call it before reading. */
void text_note_terminal(void);

/* Prints a note if the text is empty (size 0): the prompt, which may be about that text, is still
 * answered. */
void text_note_empty(const char *path, size_t size);

/* Appends a file, or standard input for "-" and NULL. Refuses more than TEXT_LIMIT bytes, and what is no
 * text: other formats by their name, invalid UTF-8 and NUL with the byte offset (STATUS_USAGE). A byte order
 * mark at the beginning is dropped. */
Status text_read(const char *path, Buffer *out, Error *err);
/* text_read() for a text to tokenize: NULs are allowed, and a byte order mark stays. */
Status text_read_with_nul(const char *path, Buffer *out, Error *err);
/* Appends a file for a parser (of schemas, grammars, conversations); the parser refuses broken texts by their
 * line. Other formats are refused by their name; a byte order mark is dropped. */
Status text_read_source(const char *path, Buffer *out, Error *err);
/* Refuses an argument that is not valid UTF-8; `what` names its flag. */
Status text_check(const char *what, const char *text, Error *err);
Status text_check_bytes(const char *what, const char *text, size_t size, Error *err);
bool text_is_blank(const char *text, size_t size); /* true if the text is only white space */
void text_drop_newline(Buffer *text);              /* the final newline of a file is not part of its text */

/* Drops the byte order mark of an input's first line, and refuses formats other than text by their name. */
Status text_begin_lines(const char *name, Buffer *first, Error *err);
typedef Status (*LineAnswer)(void *user, const char *where, const Buffer *line, Buffer *out, Error *err);
/* Calls answer(user, "NAME: line N", line, &out, &error) for each line of a file (NULL or "-": standard
 * input) as it arrives, the first without its byte order mark. Writes to standard output what answer()
 * appended to `out`, or, if it failed, {"error": MESSAGE}. Failed lines do not stop the loop; at the end they
 * cause STATUS_FAILED with "NAME: 2 of 9 lines WHAT, line 3 first". */
Status lines_answer(const char *path, LineAnswer answer, void *user, const char *what, Error *err);
/* Appends {"NAME": "TEXT"} and a newline. */
Status line_append_member(const char *name, const char *text, size_t size, Buffer *out, Error *err);

/* Appends ids that are separated by white space, commas or brackets, and may have a byte order mark before
 * them; `name` is for messages. */
Status ids_parse(const char *name, const Buffer *text, IdList *ids, Error *err);
