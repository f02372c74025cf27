/* utf8.c - UTF-8, decoded strictly, by the table of well-formed sequences of Unicode 16 (table 3-7).
 *
 * Always true: nothing is read past `size`, whatever the bytes. */
#include "base/utf8.h"

/* Length of a sequence that begins with `lead`, or 0. *low, *high: the range of its second byte. */
static int sequence_length(unsigned char lead, unsigned char *low, unsigned char *high) {
  *low = 0x80, *high = 0xbf;
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead == 0xe0) *low = 0xa0;
  if (lead == 0xed) *high = 0x9f;
  if (lead < 0xf0) return 3;
  if (lead == 0xf0) *low = 0x90;
  if (lead == 0xf4) *high = 0x8f;
  return lead < 0xf5 ? 4 : 0;
}

/* Number of bytes at text[0..size) that are a well-formed beginning of one character. *length: the length of
 * the whole character; 0: none begins so. */
static int well_formed(const unsigned char *text, size_t size, int *length) {
  unsigned char low, high;
  *length = size ? sequence_length(text[0], &low, &high) : 0;
  if (*length == 0) return 0;
  int n = 1;
  while (n < *length && (size_t)n < size && text[n] >= low && text[n] <= high) {
    low = 0x80, high = 0xbf;
    n++;
  }
  return n;
}

int utf8_decode(const void *text, size_t size, uint32_t *code) {
  const unsigned char *s = text;
  if (size && s[0] < 0x80) {
    *code = s[0];
    return 1;
  }
  if (size == 0) return 0;
  int length, n = well_formed(s, size, &length);
  if (n == 0) return -1;
  if (n < length) return (size_t)n == size ? 0 : -1;
  uint32_t value = s[0] & (0x7fu >> length);
  for (int i = 1; i < length; i++) value = value << 6 | (s[i] & 0x3f);
  *code = value;
  return length;
}

int utf8_encode(uint32_t code, void *out) {
  unsigned char *s = out;
  if (code < 0x80) {
    s[0] = (unsigned char)code;
    return 1;
  }
  int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int i = length - 1; i > 0; i--, code >>= 6) s[i] = (unsigned char)(0x80 | (code & 0x3f));
  s[0] = (unsigned char)((0xf00 >> length) | code);
  return length;
}

size_t utf8_valid_prefix(const void *text, size_t size) {
  const unsigned char *s = text;
  size_t at = 0;
  while (at < size) {
    uint32_t code;
    int length = utf8_decode(s + at, size - at, &code);
    if (length <= 0) break;
    at += (size_t)length;
  }
  return at;
}

size_t utf8_before(const void *text, size_t at) {
  const unsigned char *s = text;
  do at--;
  while (at > 0 && (s[at] & 0xc0) == 0x80);
  return at;
}

size_t utf8_bad_length(const void *text, size_t size) {
  int length, n = well_formed(text, size, &length);
  return n > 0 ? (size_t)n : 1;
}
