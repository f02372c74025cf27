/* clock.h - a monotonic clock for measuring. */
#pragma once

#include <time.h>

static inline double clock_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}
