/* hash64.h - XXH64, a fast 64-bit hash for identifying contents and detecting damage
 * (github.com/Cyan4973/xxHash, doc/xxhash_spec.md). Not secure: collisions can be constructed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t hash64(const void *bytes, size_t size, uint64_t seed);

static inline uint64_t rotate64(uint64_t x, int n) {
  return x << n | x >> (64 - n);
}
