/* hash64.c - see hash64.h.
 *
 * Always true: words are read little-endian at any alignment. Four accumulators hide the latency of the
 *              multiplication. */
#include "base/hash64.h"

#include <endian.h>
#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F, P3 = 0x165667B19E3779F9,
                      P4 = 0x85EBCA77C2B2AE63, P5 = 0x27D4EB2F165667C5;

static inline uint64_t word64(const unsigned char *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return le64toh(word);
}

static inline uint64_t word32(const unsigned char *at) {
  uint32_t word;
  memcpy(&word, at, sizeof word);
  return le32toh(word);
}

static inline uint64_t mix(uint64_t sum, uint64_t word) {
  return rotate64(sum + word * P2, 31) * P1;
}

static inline uint64_t merge(uint64_t hash, uint64_t sum) {
  return (hash ^ mix(0, sum)) * P1 + P4;
}

uint64_t hash64(const void *bytes, size_t size, uint64_t seed) {
  const unsigned char *at = bytes, *end = at + size;
  uint64_t hash = seed + P5;
  if (size >= 32) {
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
    for (; end - at >= 32; at += 32) {
      a = mix(a, word64(at));
      b = mix(b, word64(at + 8));
      c = mix(c, word64(at + 16));
      d = mix(d, word64(at + 24));
    }
    hash = rotate64(a, 1) + rotate64(b, 7) + rotate64(c, 12) + rotate64(d, 18);
    hash = merge(merge(merge(merge(hash, a), b), c), d);
  }
  hash += size;
  for (; end - at >= 8; at += 8) hash = rotate64(hash ^ mix(0, word64(at)), 27) * P1 + P4;
  for (; end - at >= 4; at += 4) hash = rotate64(hash ^ word32(at) * P1, 23) * P2 + P3;
  for (; end - at >= 1; at += 1) hash = rotate64(hash ^ *at * P5, 11) * P1;
  hash = (hash ^ hash >> 33) * P2;
  hash = (hash ^ hash >> 29) * P3;
  return hash ^ hash >> 32;
}
