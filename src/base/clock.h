/* clock.h - clocks for measuring. */
#pragma once

#include <time.h>

static inline double clock_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Time that passes. */
static inline double clock_ms(void) {
  return clock_of(CLOCK_MONOTONIC);
}

/* Time that this thread computes: what else runs on the machine matters little. */
static inline double clock_thread_ms(void) {
  return clock_of(CLOCK_THREAD_CPUTIME_ID);
}
