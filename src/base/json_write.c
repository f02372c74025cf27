/* json_write.c - strings, objects and arrays as JSON.
 *
 * Always true: any bytes of a string value give valid JSON and valid UTF-8. */
#include <inttypes.h>
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

Status json_put_key(JsonWriter w, const char *key) {
  const Buffer *out = w.out;
  if (out->size && !memchr("{[\n", out->data[out->size - 1], 3)) TRY(buffer_append(w.out, ", ", 2, w.err));
  return key ? buffer_printf(w.out, w.err, "\"%s\": ", key) : STATUS_OK;
}

Status json_put_raw(JsonWriter w, const char *key, const char *value) {
  TRY(json_put_key(w, key));
  return buffer_append_string(w.out, value, w.err);
}

Status json_put_int(JsonWriter w, const char *key, int64_t value) {
  TRY(json_put_key(w, key));
  return buffer_printf(w.out, w.err, "%" PRId64, value);
}

Status json_put_size(JsonWriter w, const char *key, uint64_t value) {
  TRY(json_put_key(w, key));
  return buffer_printf(w.out, w.err, "%" PRIu64, value);
}

Status json_put_bool(JsonWriter w, const char *key, bool value) {
  return json_put_raw(w, key, value ? "true" : "false");
}

Status json_put_string(JsonWriter w, const char *key, const char *value) {
  return value ? json_put_text(w, key, value, strlen(value)) : json_put_raw(w, key, "null");
}

Status json_put_text(JsonWriter w, const char *key, const char *text, size_t size) {
  TRY(json_put_key(w, key));
  return json_write_string(w.out, text ? text : "", size, w.err);
}

Status json_end(JsonWriter w, const char *bracket) {
  return buffer_append_string(w.out, bracket, w.err);
}
