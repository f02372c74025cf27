/* terminal_text.h - text as a terminal may be given it: to be read, and not to be obeyed.
 *
 * Names and texts come from unchecked files. A control character (escape sequences begin with
 * one) steers the terminal; a bidirectional control, or a separator of lines or paragraphs, makes a line read
 * otherwise than it is. All of them stand as visible characters in place of themselves. */
#ifndef AUK_BASE_TERMINAL_TEXT_H
#define AUK_BASE_TERMINAL_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* C0 (newline and tab too), DEL, C1, U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069. */
bool steers_terminal(uint32_t code);

/* Appends text[0..size), whole characters: newlines and tabs stay, a carriage return is dropped, the other
 * characters that steer a terminal, and bytes that are no UTF-8, are pictures or U+FFFD. Applied twice it
 * gives the same. */
Status terminal_text(Buffer *out, const char *text, size_t size, Error *err);

#endif
