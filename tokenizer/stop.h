/* stop.h - how long work in this folder heeds an interruption. */
#ifndef AUK_TOKENIZER_STOP_H
#define AUK_TOKENIZER_STOP_H

#include "base/status.h"

/* Loops look once in so many rounds of a few nanoseconds each. */
#define STOP_EACH ((size_t)1 << 16)

/* STATUS_INTERRUPTED once *interrupted is not 0. `interrupted` is what a signal handler sets, or NULL:
 * never. */
static inline Status stop_check(const volatile int *interrupted, Error *err) {
  return interrupted && *interrupted ? error_set(err, STATUS_INTERRUPTED, "interrupted") : STATUS_OK;
}

#endif
