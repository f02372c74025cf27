/* terminal_text.c - see terminal_text.h. */
#include "base/terminal_text.h"

#include "base/utf8.h"

bool steers_terminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

Status terminal_text(Buffer *out, const char *text, size_t size, Error *err) {
  size_t start = 0, at = 0;
  while (at < size) {
    uint32_t code;
    int length = utf8_decode(text + at, size - at, &code);
    if (length <= 0) {
      code = 0x80; /* no character: becomes U+FFFD, like any control character without a picture */
      length = 1;
    }
    if (steers_terminal(code) && code != '\n' && code != '\t') {
      char shown[4]; /* U+0000 to U+001F and U+007F have control pictures, other code points have none */
      uint32_t picture = code < 0x20 ? 0x2400 + code : code == 0x7f ? 0x2421 : 0xfffd;
      int n = code == '\r' ? 0 : utf8_encode(picture, shown);
      TRY(buffer_append(out, text + start, at - start, err));
      TRY(buffer_append(out, shown, (size_t)n, err));
      start = at + (size_t)length;
    }
    at += (size_t)length;
  }
  return buffer_append(out, text + start, size - start, err);
}
