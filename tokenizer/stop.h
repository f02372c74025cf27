/* stop.h - checks whether work in this folder is interrupted. */
#pragma once

#include "base/status.h"

/* Loops check once in this many rounds of a few nanoseconds each. */
#define STOP_EACH ((size_t)1 << 16)

/* Fails with STATUS_INTERRUPTED once a signal handler has set *interrupted; never if `interrupted` is
 * NULL. */
static inline Status stop_check(const volatile int *interrupted, Error *err) {
  return interrupted && *interrupted ? error_set(err, STATUS_INTERRUPTED, "interrupted") : STATUS_OK;
}
