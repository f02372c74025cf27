/* stop.h - stop strings in text that comes in pieces.
 *
 * Text passes through, but for its end where that could be the beginning of a stop string: this is held back
 * until the next piece decides. The match that is complete first counts (of several that end at the same byte
 * the longest), so the outcome does not depend on where the pieces were cut. */
#ifndef AUK_COMMANDS_ANSWER_STOP_H
#define AUK_COMMANDS_ANSWER_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

typedef struct {
  const char *const *strings; /* [n_strings], none empty */
  size_t n_strings;
  Buffer held; /* a proper beginning of a stop string */
  bool stopped;
} StopFilter; /* held starts zeroed; release it with stop_filter_release() */

/* Appends to `out` what can be shown now that text[0..size) came; what follows a stop string is dropped. */
Status stop_filter_push(StopFilter *filter, const char *text, size_t size, Buffer *out, Error *err);
/* Appends what is held back: nothing comes any more. Nothing after a stop. */
Status stop_filter_end(StopFilter *filter, Buffer *out, Error *err);
void stop_filter_release(StopFilter *filter);

#endif
