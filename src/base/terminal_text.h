/* terminal_text.h - makes unchecked text safe to print on a terminal.
 *
 * A control character, such as the first of an escape sequence, steers the terminal; a bidirectional control
 * or a separator of lines or paragraphs makes a line read otherwise than it is. They are replaced by visible
 * characters. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* C0 (newline and tab too), DEL, C1, U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069. */
bool steers_terminal(uint32_t code);

/* Appends text[0..size). Newlines and tabs stay; carriage returns are dropped. Other characters that steer a
 * terminal become control pictures (U+2400..) or U+FFFD. Each invalid byte becomes U+FFFD. PRECOND the text
 * does not end within a character. */
Status terminal_text(Buffer *out, const char *text, size_t size, Error *err);
