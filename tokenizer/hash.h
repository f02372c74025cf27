/* hash.h - hashes for open-addressing tables, keyed by a seed that files and texts cannot know. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns a new seed; no output of a tokenizer depends on it. */
uint64_t hash_seed(void);

/* Folds the 128-bit product a * b: every bit of the result depends on all bits of both. */
static inline uint64_t hash_fold(uint64_t a, uint64_t b) {
  __extension__ typedef unsigned __int128 Wide;
  Wide product = (Wide)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_word(uint64_t seed, uint64_t word) {
  return hash_fold(word ^ seed, 0x9e3779b97f4a7c15u ^ seed << 1);
}

static inline uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t size) {
  const unsigned char *at = bytes;
  uint64_t hash = seed ^ size, word = 0;
  for (size_t left = size; left > 8; left -= 8, at += 8) {
    memcpy(&word, at, 8);
    hash = hash_fold(hash ^ word, 0xa0761d6478bd642fu) ^ seed;
  }
  size_t tail = size > 8 ? (size - 1) % 8 + 1 : size; /* 1 .. 8 bytes; 0 only for an empty string */
  word = 0;
  memcpy(&word, (const unsigned char *)bytes + size - tail, tail);
  return hash_fold(hash ^ word, 0xe7037ed1a0b428dbu ^ seed << 1);
}
