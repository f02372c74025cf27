/* utf8.h - UTF-8 after RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at text[0..size). Returns its length 1..4 and sets *code; 0 if the bytes are the
 * beginning of a longer character (also for size 0); -1 if no character begins so. */
int utf8_decode(const void *text, size_t size, uint32_t *code);

/* Writes `code` (a Unicode scalar value) to out[0..4) and returns its length 1..4. */
int utf8_encode(uint32_t code, void *out);

/* Bytes of valid, complete UTF-8 at the beginning of the text. */
size_t utf8_valid_prefix(const void *text, size_t size);

/* The offset of the nearest byte before `at` that is no continuation byte, or 0. In valid text the character
 * that ends at `at` begins there. PRECOND at > 0 */
size_t utf8_before(const void *text, size_t at);

/* Length 1..3 of the maximal ill-formed part at text[0..size), which one U+FFFD replaces (Unicode, section
 * 3.9, "substitution of maximal subparts"), as in Rust, Python and browsers. PRECOND utf8_decode() <= 0 */
size_t utf8_bad_length(const void *text, size_t size);
