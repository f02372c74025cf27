/* status.c - error messages and checked memory.
 *
 * Always true: a message is one line of valid UTF-8 that steers no terminal, whatever went into it. */
#include "base/status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal_text.h"
#include "base/utf8.h"

/* Puts '?' for each character that steers a terminal, newlines too, and for bytes of broken UTF-8: names in
 * messages come from unchecked files. */
static void make_printable(char *text) {
  unsigned char *p = (unsigned char *)text, *end = p;
  while (*end) end++;
  while (p < end) {
    uint32_t code;
    int length = utf8_decode(p, (size_t)(end - p), &code);
    if (length <= 0 || steers_terminal(code)) {
      *p++ = '?';
    } else {
      p += length;
    }
  }
}

Status error_set(Error *err, Status status, const char *format, ...) {
  if (!err) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  make_printable(err->text);
  return status;
}

void *mem_alloc(size_t n, size_t size, const char *what, Error *err) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX) {
    error_set(err, STATUS_FAILED, "out of memory: %s needs %zu times %zu bytes", what, n, size);
    return NULL;
  }
  void *memory = calloc(1, bytes ? bytes : 1);
  if (!memory) error_set(err, STATUS_FAILED, "out of memory: %s needs %zu bytes", what, bytes);
  return memory;
}

Status mem_grow(void *items, size_t *capacity, size_t need, size_t size, const char *what, Error *err) {
  if (need <= *capacity) return STATUS_OK;
  size_t wanted = *capacity + *capacity / 2;
  if (wanted < need) wanted = need;
  if (wanted < 16) wanted = 16;
  size_t bytes;
  if (__builtin_mul_overflow(wanted, size, &bytes) || bytes > PTRDIFF_MAX)
    return error_set(err, STATUS_FAILED, "out of memory: %s needs %zu times %zu bytes", what, wanted, size);
  void *grown;
  memcpy(&grown, items, sizeof grown); /* the caller's pointer is of any type */
  grown = realloc(grown, bytes);
  if (!grown) return error_set(err, STATUS_FAILED, "out of memory: %s needs %zu bytes", what, bytes);
  memcpy(items, &grown, sizeof grown);
  *capacity = wanted;
  return STATUS_OK;
}
