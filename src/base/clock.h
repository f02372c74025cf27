/* clock.h - clocks for measuring and for deadlines. */
#pragma once

#include <time.h>

static inline double clock_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Elapsed time: milliseconds of the monotonic clock. */
static inline double clock_ms(void) {
  return clock_of(CLOCK_MONOTONIC);
}

/* The time of a clock `ms` milliseconds from now: the deadline of a wait. */
static inline struct timespec clock_after(clockid_t clock, double ms) {
  struct timespec now;
  clock_gettime(clock, &now);
  const long long ns = now.tv_nsec + (long long)(ms * 1e6);
  now.tv_sec += (time_t)(ns / 1000000000);
  now.tv_nsec = (long)(ns % 1000000000);
  return now;
}

/* CPU time of this thread in milliseconds; other load on the machine changes it little. */
static inline double clock_thread_ms(void) {
  return clock_of(CLOCK_THREAD_CPUTIME_ID);
}
