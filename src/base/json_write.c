/* json_write.c - strings as JSON.
 *
 * Always true: the output is valid JSON and valid UTF-8, whatever the input. */
#include <string.h>

#include "base/json.h"
#include "base/terminal_text.h"
#include "base/utf8.h"

/* The letter of the two-character escape of a control character (n for \n), or 0. */
static char letter_of(uint32_t code) {
  static const char codes[] = "\b\t\n\f\r", letters[] = "btnfr";
  const char *found = code && code < 0x20 ? strchr(codes, (int)code) : NULL;
  return found ? letters[found - codes] : 0;
}

Status json_write_string(Buffer *out, const char *text, size_t size, Error *err) {
  TRY(buffer_append(out, "\"", 1, err));
  size_t done = 0; /* text[done .. at) is to be written unchanged */
  for (size_t at = 0; at < size;) {
    uint32_t code;
    int length = utf8_decode(text + at, size - at, &code);
    bool bad = length <= 0, quoted = !bad && (code == '"' || code == '\\');
    bool unseen = !bad && steers_terminal(code);
    size_t step = bad ? utf8_bad_length(text + at, size - at) : (size_t)length;
    if (bad || quoted || unseen) {
      TRY(buffer_append(out, text + done, at - done, err));
      done = at + step;
      if (bad)
        TRY(buffer_append(out, "\xef\xbf\xbd", 3, err));
      else if (quoted)
        TRY(buffer_append(out, (char[]){'\\', (char)code}, 2, err));
      else if (letter_of(code))
        TRY(buffer_append(out, (char[]){'\\', letter_of(code)}, 2, err));
      else
        TRY(buffer_printf(out, err, "\\u%04x", (unsigned)code));
    }
    at += step;
  }
  if (done < size) TRY(buffer_append(out, text + done, size - done, err));
  return buffer_append(out, "\"", 1, err);
}
