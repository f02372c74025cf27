/* buffer.c - growable arrays of bytes and of token ids.
 *
 * Always true: size <= capacity; a failed call leaves the contents unchanged. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Status buffer_append(Buffer *buffer, const void *bytes, size_t size, Error *err) {
  if (size == 0) return STATUS_OK;
  size_t need;
  if (__builtin_add_overflow(buffer->size, size, &need)) need = SIZE_MAX; /* mem_grow() refuses SIZE_MAX */
  TRY(mem_grow(&buffer->data, &buffer->capacity, need, 1, "text", err));
  memcpy(buffer->data + buffer->size, bytes, size);
  buffer->size = need;
  return STATUS_OK;
}

Status buffer_append_string(Buffer *buffer, const char *string, Error *err) {
  return buffer_append(buffer, string, strlen(string), err);
}

Status buffer_printf(Buffer *buffer, Error *err, const char *format, ...) {
  va_list args;
  char *text;
  va_start(args, format);
  int length = vasprintf(&text, format, args);
  va_end(args);
  if (length < 0) return error_set(err, STATUS_FAILED, "cannot format text");
  Status status = buffer_append(buffer, text, (size_t)length + 1, err);
  if (status == STATUS_OK) buffer->size--; /* the NUL stays after the text */
  free(text);
  return status;
}

void buffer_release(Buffer *buffer) {
  free(buffer->data);
  *buffer = (Buffer){0};
}

Status id_list_append(IdList *list, int32_t id, Error *err) {
  return APPEND(list->ids, list->count, list->capacity, "token ids", err, id);
}

void id_list_release(IdList *list) {
  free(list->ids);
  *list = (IdList){0};
}
