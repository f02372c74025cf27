/* buffer.h - growable arrays of bytes (NULs too) and of token ids. Zero-initialise, append, release. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
  char *data;  /* [capacity], the first `size` of them in use; NULL while nothing was appended */
  size_t size; /* bytes */
  size_t capacity;
} Buffer;

Status buffer_append(Buffer *buffer, const void *bytes, size_t size, Error *err);
Status buffer_append_string(Buffer *buffer, const char *string, Error *err);
Status buffer_printf(Buffer *buffer, Error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void buffer_release(Buffer *buffer); /* frees and zeroes: the buffer can be used again */

typedef struct {
  int32_t *ids; /* [capacity], the first `count` of them in use */
  size_t count;
  size_t capacity;
} IdList;

Status id_list_append(IdList *list, int32_t id, Error *err);
void id_list_release(IdList *list);
