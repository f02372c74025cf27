/* read_rate.c - measures memory bandwidth, the limit of a decode step.
 *
 * Called by: `auk bench` and `auk inspect --gpu-memory` through cpu_backend.probe. A model that fits into
 * the caches is read faster. */
#include <stdlib.h>

#include "base/clock.h"
#include "cpu/cpu.h"

#include <omp.h>

enum { PASSES = 3, LANES = 8, PART = 4096 };

/* Bytes to read: thread_bytes for each thread, since the largest caches have some 12 MB per core; at least
 * least_bytes, since one core may use a cache of some 100 MB alone. Rates under a sanitizer mean
 * nothing, so there the sizes keep tests fast. */
#ifdef __SANITIZE_ADDRESS__
static const size_t least_bytes = (size_t)1 << 20, most_bytes = (size_t)4 << 20;
#else
static const size_t least_bytes = (size_t)256 << 20, most_bytes = (size_t)1 << 30;
#endif
static const size_t thread_bytes = (size_t)16 << 20;

/* XORs all words, in LANES chains: a single chain would be slower than memory. */
static uint64_t fold(const uint64_t *words, size_t n, int n_threads) {
  uint64_t all = 0;
#pragma omp parallel for reduction(^ : all) num_threads(n_threads)
  for (size_t part = 0; part < n / PART; part++) {
    uint64_t lanes[LANES] = {0};
    for (size_t i = 0; i < PART; i += LANES)
      for (size_t lane = 0; lane < LANES; lane++) lanes[lane] ^= words[part * PART + i + lane];
    for (size_t lane = 0; lane < LANES; lane++) all ^= lanes[lane];
  }
  return all;
}

/* Writes the memory, since all untouched pages are one page of zeros. */
static void touch(uint64_t *words, size_t n, int n_threads) {
#pragma omp parallel for num_threads(n_threads)
  for (size_t i = 0; i < n; i++) words[i] = i;
}

static size_t bytes_for(int n_threads) {
  const size_t bytes = thread_bytes * (size_t)n_threads;
  return bytes < least_bytes ? least_bytes : bytes > most_bytes ? most_bytes : bytes;
}

Status cpu_measure_machine(const BackendOptions *options, MachineRates *rates, Error *err) {
  *rates = (MachineRates){0};
  const int n_threads = options->n_threads ? options->n_threads : omp_get_max_threads();
  const size_t bytes = bytes_for(n_threads), n = bytes / sizeof(uint64_t);
  uint64_t *words;
  TRY(NEW(words, n, "memory to read", err));
  touch(words, n, n_threads);
  uint64_t odd = 0; /* stays 0: in 0 .. n - 1, with n % 4 == 0, each bit is set an even number of times */
  for (int pass = 0; pass < PASSES; pass++) {
    const double start = clock_ms();
    odd |= fold(words, n, n_threads);
    const double gbps = (double)bytes / (clock_ms() - start) * 1e-6;
    if (odd == 0 && gbps > rates->read_gbps) rates->read_gbps = gbps; /* other load only lowers it */
  }
  free(words);
  return STATUS_OK;
}
