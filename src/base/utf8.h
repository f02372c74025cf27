/* utf8.h - UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef AUK_BASE_UTF8_H
#define AUK_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at text[0..size). Returns its length 1..4 and sets *code; 0 where the bytes are the
 * beginning of a character that goes on past `size` (also for size 0); -1 where no character can begin so. */
int utf8_decode(const void *text, size_t size, uint32_t *code);

/* Writes `code` (a Unicode scalar value) to out[0..4) and returns its length 1..4. */
int utf8_encode(uint32_t code, void *out);

/* The offset of the first byte that is not part of valid, whole UTF-8, or `size` where all of it is. */
size_t utf8_valid_prefix(const void *text, size_t size);

/* Where the character begins that ends in front of `at`, in text that is valid up to there; in other text the
 * nearest byte before it that begins anything, or 0. PRECOND at > 0 */
size_t utf8_before(const void *text, size_t at);

/* Length 1..3 of the maximal ill-formed part at text[0..size), which one U+FFFD replaces (Unicode, section
 * 3.9, "substitution of maximal subparts"): what Rust, Python and browsers do. PRECOND utf8_decode() gave <=
 * 0. */
size_t utf8_bad_length(const void *text, size_t size);

#endif
