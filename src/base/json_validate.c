/* json_validate.c - validates a text to RFC 8259 and makes the copy that cJSON parses.
 *
 * Always true: `at` never passes `end`; text[copied .. at) is not in the copy yet; inside a skipped member
 *              (muted > 0) nothing is copied; recursion is at most JSON_MAX_DEPTH deep.
 *
 * Where the RFC leaves a choice, duplicate keys, lone surrogates in \u escapes and a byte order mark are
 * refused. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/utf8.h"

typedef struct {
  const char *name; /* the text's name, for messages */
  Status refused;
  const char *text, *at, *end;
  bool python;     /* Infinity is a value */
  int depth;       /* number of open objects and arrays */
  size_t n_values; /* values in the tree so far */
  JsonSkip *skips;
  size_t n_skips;
  Buffer *copy; /* or NULL */
  const char *copied;
  int muted; /* number of open skipped members */
  JsonKeys keys;
  Buffer key; /* scratch: the decoded bytes of a key with escapes */
  Error *err;
} Validator;

static Status value(Validator *v, uint32_t below);

/* --- messages */

static Status __attribute__((format(printf, 3, 4)))
refuse(const Validator *v, const char *at, const char *format, ...) {
  size_t line = 1, column = 1; /* columns count characters */
  for (const char *p = v->text; p < at; p++) {
    if (*p == '\n') {
      line++;
      column = 1;
    } else if ((*p & 0xc0) != 0x80) {
      column++;
    }
  }
  char what[512];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return error_set(v->err, v->refused, "%s:%zu:%zu: %s", v->name, line, column, what);
}

static Status expected(const Validator *v, const char *what) {
  if (v->at == v->end) return refuse(v, v->at, "expected %s, found the end of the text", what);
  unsigned char found = (unsigned char)*v->at;
  if (found > 0x20 && found < 0x7f) return refuse(v, v->at, "expected %s, found '%c'", what, found);
  return refuse(v, v->at, "expected %s, found byte 0x%02x", what, found);
}

/* --- the copy */

static Status copy_until(Validator *v, const char *until) {
  if (!v->copy || v->muted) return STATUS_OK;
  TRY(buffer_append(v->copy, v->copied, (size_t)(until - v->copied), v->err));
  v->copied = until;
  return STATUS_OK;
}

/* Puts bytes[0..size) into the copy in place of text[from .. to). */
static Status copy_instead(Validator *v, const char *from, const char *to, const char *bytes, size_t size) {
  if (!v->copy || v->muted) return STATUS_OK;
  TRY(copy_until(v, from));
  v->copied = to;
  return buffer_append(v->copy, bytes, size, v->err);
}

/* --- strings */

/* The value of four hexadecimal digits, or -1. PRECOND at + 4 <= end of the text */
static int hex4(const char *at) {
  int code = 0;
  for (int i = 0; i < 4; i++) {
    char c = at[i], lower = (char)(c | 0x20);
    if (c >= '0' && c <= '9') {
      code = code << 4 | (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      code = code << 4 | (lower - 'a' + 10);
    } else {
      return -1;
    }
  }
  return code;
}

/* The value of the \uXXXX at `at`, or -1. */
static int unicode_escape(const char *at, const char *end) {
  return end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2) : -1;
}

static Status escape(Validator *v) {
  const char *from = v->at;
  if (v->end - from < 2) {
    v->at = v->end;
    return expected(v, "an escape");
  }
  if (from[1] != 'u') {
    v->at++;
    if (!strchr("\"\\/bfnrt", from[1]) || !from[1])
      return expected(v, "one of \"\\/bfnrtu after a backslash");
    v->at++;
    return STATUS_OK;
  }
  int code = unicode_escape(from, v->end);
  if (code < 0) return refuse(v, from, "expected four hexadecimal digits after \\u");
  v->at = from + 6;
  if (code == 0) return copy_instead(v, from, v->at, "\xc0\x80", 2);
  if (code < 0xd800 || code > 0xdfff) return STATUS_OK;
  int low = unicode_escape(v->at, v->end);
  if (code > 0xdbff || low < 0xdc00 || low > 0xdfff)
    return refuse(v, from, "lone surrogate \\u%04x: a pair \\ud8..-\\udb.. \\udc..-\\udf.. is expected",
                  code);
  v->at += 6;
  return STATUS_OK;
}

/* Reads a character of two bytes or more. */
static inline Status wide_character(Validator *v) {
  const unsigned char *s = (const unsigned char *)v->at;
  if (v->end - v->at >= 2 && s[0] >= 0xc2 && s[0] <= 0xdf && (s[1] & 0xc0) == 0x80) {
    v->at += 2; /* nearly all wide characters of a byte-level vocabulary */
    return STATUS_OK;
  }
  uint32_t code;
  int length = utf8_decode(s, (size_t)(v->end - v->at), &code);
  if (length <= 0) return refuse(v, v->at, "invalid UTF-8: byte 0x%02x", s[0]);
  v->at += length;
  return STATUS_OK;
}

/* Reads a string; *escaped: it holds a backslash. PRECOND *at == '"' */
static Status string(Validator *v, bool *escaped) {
  const char *from = v->at++;
  *escaped = false;
  for (;;) {
    const char *at = v->at, *end = v->end;
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20 && *at < 0x7f) at++;
    v->at = at;
    if (at == end) return refuse(v, from, "the string that begins here does not end");
    unsigned char c = (unsigned char)*at;
    if (c == '"') {
      v->at++;
      return STATUS_OK;
    }
    if (c == '\\') {
      *escaped = true;
      TRY(escape(v));
    } else if (c < 0x20) {
      return refuse(v, at, "raw control byte 0x%02x in a string", c);
    } else if (c == 0x7f) {
      v->at++;
    } else {
      TRY(wide_character(v));
    }
  }
}

Status json_unescape(const char *text, size_t size, Buffer *out, Error *err) {
  const char *at = text, *end = text + size;
  while (at < end) {
    const char *slash = memchr(at, '\\', (size_t)(end - at));
    TRY(buffer_append(out, at, (size_t)((slash ? slash : end) - at), err));
    if (!slash || end - slash < 2) break;
    at = slash + 2;
    static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    const char *letter = slash[1] ? strchr(letters, slash[1]) : NULL;
    int code = unicode_escape(slash, end);
    if (code < 0) {
      TRY(buffer_append(out, letter ? &meanings[letter - letters] : &slash[1], 1, err));
      continue;
    }
    at = slash + 6;
    if (code >= 0xd800 && code <= 0xdbff) {
      int low = unicode_escape(at, end);
      code = low < 0xdc00 || low > 0xdfff ? 0xfffd : 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      if (code != 0xfffd) at += 6;
    } else if (code >= 0xdc00 && code <= 0xdfff) {
      code = 0xfffd;
    }
    char bytes[4];
    TRY(buffer_append(out, bytes, (size_t)utf8_encode((uint32_t)code, bytes), err));
  }
  return STATUS_OK;
}

/* --- numbers */

static bool digit_at(const Validator *v) {
  return v->at < v->end && *v->at >= '0' && *v->at <= '9';
}

static Status digits(Validator *v) {
  if (!digit_at(v)) return expected(v, "a digit");
  while (digit_at(v)) v->at++;
  return STATUS_OK;
}

static Status number(Validator *v) {
  const char *from = v->at;
  if (*v->at == '-') v->at++;
  if (v->at < v->end && *v->at == '0') {
    v->at++;
    if (digit_at(v)) return refuse(v, from, "a number begins with a needless 0");
  } else {
    TRY(digits(v));
  }
  if (v->at < v->end && *v->at == '.') {
    v->at++;
    TRY(digits(v));
  }
  if (v->at < v->end && (*v->at == 'e' || *v->at == 'E')) {
    v->at++;
    if (v->at < v->end && (*v->at == '+' || *v->at == '-')) v->at++;
    TRY(digits(v));
  }
  if (!v->copy || v->muted) return STATUS_OK;
  TRY(copy_instead(v, from, from, (char[]){'"', JSON_NUMBER_MARK}, 2));
  TRY(copy_until(v, v->at));
  return buffer_append(v->copy, "\"", 1, v->err);
}

/* --- members */

/* Returns those skips of the bit mask `below` whose paths continue through this key. *whole: the skip whose
 * path ends with this key, or NULL. */
static uint32_t follow_skips(const Validator *v, uint32_t below, const char *key, size_t size,
                             JsonSkip **whole) {
  uint32_t going_on = 0;
  *whole = NULL;
  for (size_t i = 0; i < v->n_skips; i++) {
    if (!(below >> i & 1)) continue;
    const char *component = v->skips[i].path; /* moves to the component of this depth */
    for (int d = 1; d < v->depth; d++) component = strchr(component, '.') + 1;
    size_t length = strcspn(component, ".");
    if (length != size || memcmp(component, key, size) != 0) continue;
    if (component[length])
      going_on |= (uint32_t)1 << i;
    else
      *whole = &v->skips[i];
  }
  return going_on;
}

static Status skipped_value(Validator *v, uint32_t below, JsonSkip *skip) {
  const char *from = v->at;
  TRY(copy_until(v, from));
  v->muted++;
  TRY(value(v, below));
  v->muted--;
  skip->span = (JsonSpan){from, (size_t)(v->at - from)};
  return copy_instead(v, from, v->at, "null", 4);
}

/* Reads a member. PRECOND *at == '"' */
static Status member(Validator *v, uint32_t below) {
  const char *key = v->at + 1;
  bool escaped;
  TRY(string(v, &escaped));
  size_t size = (size_t)(v->at - 1 - key), at = (size_t)(key - v->text), content_size = size;
  const char *content = key;
  if (escaped) {
    v->key.size = 0;
    TRY(json_unescape(key, size, &v->key, v->err));
    content = v->key.data;
    content_size = v->key.size;
  }
  TRY(json_keys_push(&v->keys, content, content_size, at, size, v->err));
  JsonSkip *whole = NULL;
  if (below) below = follow_skips(v, below, content, content_size, &whole);
  v->at = json_pass_space(v->at, v->end);
  if (v->at == v->end || *v->at != ':') return expected(v, "':' after a key");
  v->at = json_pass_space(v->at + 1, v->end);
  return whole ? skipped_value(v, below, whole) : value(v, below);
}

/* --- values */

static Status literal(Validator *v, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(v->end - v->at) < length || memcmp(v->at, word, length) != 0)
    return refuse(v, v->at, "expected %s", word);
  v->at += length;
  return STATUS_OK;
}

/* Reads an object or array. PRECOND *at == '{' or '[' */
static Status container(Validator *v, uint32_t below) {
  bool object = *v->at == '{';
  char close = object ? '}' : ']';
  if (v->depth == JSON_MAX_DEPTH) return refuse(v, v->at, "nested deeper than %d", JSON_MAX_DEPTH);
  v->depth++;
  size_t mark = v->keys.n_keys;
  v->at = json_pass_space(v->at + 1, v->end);
  if (v->at == v->end || *v->at != close) {
    for (;;) {
      if (object && (v->at == v->end || *v->at != '"')) return expected(v, "a key in quotes");
      TRY(object ? member(v, below) : value(v, 0));
      v->at = json_pass_space(v->at, v->end);
      if (v->at < v->end && *v->at == close) break;
      if (v->at == v->end || *v->at != ',') return expected(v, object ? "',' or '}'" : "',' or ']'");
      v->at = json_pass_space(v->at + 1, v->end);
    }
  }
  v->at++;
  v->depth--;
  if (!object) return STATUS_OK;
  size_t duplicate;
  TRY(json_keys_close(&v->keys, mark, v->text, &duplicate, v->err));
  if (duplicate == SIZE_MAX) return STATUS_OK;
  const char *key = v->text + duplicate;
  int shown = (int)strcspn(key, "\"");
  return refuse(v, key, "duplicate key \"%.*s\"", shown > 100 ? 100 : shown, key);
}

/* Accepts Infinity, which Python's json module reads and writes although it is not JSON. */
static Status infinity(Validator *v) {
  static const char object[] = "{\"__float__\":\"Infinity\"}";
  const char *from = v->at;
  TRY(literal(v, "Infinity"));
  return copy_instead(v, from, v->at, object, sizeof object - 1);
}

/* Reads a value. `below`: bit mask of the JsonSkips whose paths lead through the value. */
static Status value(Validator *v, uint32_t below) {
  bool escaped;
  if (v->copy && !v->muted && ++v->n_values > JSON_MAX_VALUES)
    return refuse(v, v->at, "more than %zu values", JSON_MAX_VALUES);
  switch (v->at < v->end ? *v->at : 0) {
  case '"': return string(v, &escaped);
  case '{':
  case '[': return container(v, *v->at == '{' ? below : 0);
  case 't': return literal(v, "true");
  case 'f': return literal(v, "false");
  case 'n': return literal(v, "null");
  case '-': return number(v);
  case 'I': return v->python ? infinity(v) : expected(v, "a value");
  default: return digit_at(v) ? number(v) : expected(v, "a value");
  }
}

static Status whole_text(Validator *v) {
  if (v->end - v->at >= 3 && memcmp(v->at, "\xef\xbb\xbf", 3) == 0)
    return refuse(v, v->at, "begins with a byte order mark, expected JSON");
  v->at = json_pass_space(v->at, v->end);
  uint32_t all = v->n_skips == JSON_MAX_SKIPS ? UINT32_MAX : ((uint32_t)1 << v->n_skips) - 1;
  TRY(value(v, all));
  TRY(copy_until(v, v->at));
  v->at = json_pass_space(v->at, v->end);
  return v->at == v->end ? STATUS_OK : expected(v, "the end of the text");
}

Status json_validate(const char *name, Status refused, bool python, const char *text, size_t size,
                     JsonSkip *skips, size_t n_skips, Buffer *copy, Error *err) {
  if (size > JSON_MAX_SIZE)
    return error_set(err, refused, "%s: %zu bytes of JSON, expected at most %zu", name, size, JSON_MAX_SIZE);
  if (n_skips > JSON_MAX_SKIPS)
    return error_set(err, STATUS_FAILED, "%s: %zu members to skip, at most %d", name, n_skips,
                     JSON_MAX_SKIPS);
  if (size == 0) return error_set(err, refused, "%s: empty, expected JSON", name);
  Validator v = {.name = name,
                 .refused = refused,
                 .python = python,
                 .text = text,
                 .at = text,
                 .end = text + size,
                 .skips = skips,
                 .n_skips = n_skips,
                 .copy = copy,
                 .copied = text,
                 .err = err};
  for (size_t i = 0; i < n_skips; i++) skips[i].span = (JsonSpan){0};
  json_keys_begin(&v.keys);
  Status status = whole_text(&v);
  json_keys_release(&v.keys);
  buffer_release(&v.key);
  if (status != STATUS_OK)
    for (size_t i = 0; i < n_skips; i++) skips[i].span = (JsonSpan){0};
  return status;
}
