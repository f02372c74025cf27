/* stop.h - finds stop strings in streamed text. Text passes through, except a suffix that could begin a stop
 * string: the next piece decides about this suffix. The first complete match counts (the longest of several
 * that end at the same byte), so the result does not depend on how the text is cut into pieces. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

typedef struct {
  const char *const *strings; /* [n_strings], none empty */
  size_t n_strings;
  Buffer held; /* a proper prefix of a stop string */
  bool stopped;
} StopFilter; /* held starts zeroed; release it with stop_filter_release() */

/* Takes text[0..size) and appends what can be shown now; drops what follows a stop string. */
Status stop_filter_push(StopFilter *filter, const char *text, size_t size, Buffer *out, Error *err);
/* At the end of the text: appends what was held back; nothing after a stop. */
Status stop_filter_end(StopFilter *filter, Buffer *out, Error *err);
void stop_filter_release(StopFilter *filter);
