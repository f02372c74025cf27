/* stop.c - see stop.h.   Called by: text_chain.c. */
#include "commands/answer/filters/stop.h"

#include <string.h>

/* Length of the longest stop string that `held` ends with, or 0. */
static size_t complete_match(const StopFilter *filter) {
  size_t longest = 0;
  for (size_t i = 0; i < filter->n_strings; i++) {
    size_t length = strlen(filter->strings[i]);
    if (length <= longest || length > filter->held.size) continue;
    if (memcmp(filter->held.data + filter->held.size - length, filter->strings[i], length) == 0)
      longest = length;
  }
  return longest;
}

/* Length of the longest suffix of `held` that is a proper prefix of a stop string. */
static size_t possible_match(const StopFilter *filter) {
  size_t longest = 0;
  for (size_t i = 0; i < filter->n_strings; i++) {
    size_t length = strlen(filter->strings[i]) - 1;
    if (length > filter->held.size) length = filter->held.size;
    while (length > longest &&
           memcmp(filter->held.data + filter->held.size - length, filter->strings[i], length) != 0)
      length--;
    if (length > longest) longest = length;
  }
  return longest;
}

static Status pass_on(StopFilter *filter, size_t size, Buffer *out, Error *err) {
  if (size == 0) return STATUS_OK;
  TRY(buffer_append(out, filter->held.data, size, err));
  filter->held.size -= size;
  memmove(filter->held.data, filter->held.data + size, filter->held.size);
  return STATUS_OK;
}

Status stop_filter_push(StopFilter *filter, const char *text, size_t size, Buffer *out, Error *err) {
  if (filter->n_strings == 0) return buffer_append(out, text, size, err);
  for (size_t i = 0; i < size && !filter->stopped; i++) {
    TRY(buffer_append(&filter->held, text + i, 1, err));
    size_t match = complete_match(filter);
    if (match) {
      TRY(pass_on(filter, filter->held.size - match, out, err));
      filter->held.size = 0;
      filter->stopped = true;
    }
  }
  return filter->stopped ? STATUS_OK : pass_on(filter, filter->held.size - possible_match(filter), out, err);
}

Status stop_filter_end(StopFilter *filter, Buffer *out, Error *err) {
  return pass_on(filter, filter->held.size, out, err);
}

void stop_filter_release(StopFilter *filter) {
  buffer_release(&filter->held);
}
