/* hash.c - makes seeds. */
#include "tokenizer/hash.h"

#include <sys/random.h>
#include <time.h>

uint64_t hash_seed(void) {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed | 1;
  struct timespec now; /* fallback before the kernel has gathered entropy */
  clock_gettime(CLOCK_REALTIME, &now);
  return hash_fold((uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)&seed, (uint64_t)now.tv_sec | 1) | 1;
}
