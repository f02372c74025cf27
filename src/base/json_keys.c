/* json_keys.c - finds an object's duplicate keys in expected linear time, also among hostile keys.
 *
 * Called by: json_validate.c.
 * Always true: keys[mark .. n_keys) are the keys of the innermost open object, `mark` being n_keys when the
 *              object began; equal keys have equal hashes, however they are escaped. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/hash64.h"
#include "base/json_text.h"

/* --- SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, with 1 and 3 rounds):
 * colliding keys cannot be chosen without knowing the seed. */

static inline void sip_round(uint64_t v[4]) {
  v[0] += v[1], v[1] = rotate64(v[1], 13) ^ v[0], v[0] = rotate64(v[0], 32);
  v[2] += v[3], v[3] = rotate64(v[3], 16) ^ v[2];
  v[0] += v[3], v[3] = rotate64(v[3], 21) ^ v[0];
  v[2] += v[1], v[1] = rotate64(v[1], 17) ^ v[2], v[2] = rotate64(v[2], 32);
}

static uint64_t sip_hash(const uint64_t seed[2], const char *bytes, size_t size) {
  uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d, seed[0] ^ 0x6c7967656e657261,
                   seed[1] ^ 0x7465646279746573};
  for (size_t left = size;; bytes += 8, left -= 8) {
    uint64_t word = 0;
    if (left < 8) { /* the last word: the remaining bytes, with the size in the top byte */
      for (size_t i = 0; i < left; i++) word |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
      word |= (uint64_t)size << 56;
    } else {
      memcpy(&word, bytes, 8); /* in native byte order: the hash is never stored */
    }
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    if (left < 8) break;
  }
  v[2] ^= 0xff;
  for (int i = 0; i < 3; i++) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void json_keys_begin(JsonKeys *keys) {
  *keys = (JsonKeys){0};
  if (getrandom(keys->seed, sizeof keys->seed, GRND_NONBLOCK) == (ssize_t)sizeof keys->seed) return;
  struct timespec now; /* shortly after booting there may be no random numbers yet */
  clock_gettime(CLOCK_REALTIME, &now);
  keys->seed[0] = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
  keys->seed[1] = (uint64_t)(uintptr_t)keys;
}

Status json_keys_push(JsonKeys *keys, const char *content, size_t content_size, size_t at, size_t size,
                      Error *err) {
  return APPEND(keys->keys, keys->n_keys, keys->capacity, "the keys of JSON objects", err,
                (JsonKey){.hash = sip_hash(keys->seed, content, content_size),
                          .at = (uint32_t)at,
                          .size = (uint32_t)size});
}

/* Reports whether two keys with the same hash are equal. */
static Status same_key(const char *text, JsonKey a, JsonKey b, bool *same, Error *err) {
  OWNED(buffer_release) Buffer one = {0}, other = {0};
  TRY(json_unescape(text + a.at, a.size, &one, err));
  TRY(json_unescape(text + b.at, b.size, &other, err));
  *same = one.size == other.size && (one.size == 0 || memcmp(one.data, other.data, one.size) == 0);
  return STATUS_OK;
}

/* Looks each key up in a hash table with open addressing, at most half full; a slot holds a key's index plus
 * 1, or 0 if it is free. */
Status json_keys_close(JsonKeys *all, size_t mark, const char *text, size_t *duplicate, Error *err) {
  size_t n = all->n_keys - mark, n_slots = 16;
  *duplicate = SIZE_MAX;
  all->n_keys = mark;
  if (n < 2) return STATUS_OK;
  const JsonKey *keys = all->keys + mark;
  while (n_slots < 2 * n) n_slots *= 2;
  TRY(mem_grow(&all->slots, &all->slot_capacity, n_slots, sizeof *all->slots, "the keys of a JSON object",
               err));
  memset(all->slots, 0, n_slots * sizeof *all->slots);
  for (size_t i = 0; i < n; i++) {
    size_t slot = keys[i].hash & (n_slots - 1);
    for (; all->slots[slot]; slot = (slot + 1) & (n_slots - 1)) {
      const JsonKey *other = &keys[all->slots[slot] - 1];
      bool same = false;
      if (other->hash == keys[i].hash) TRY(same_key(text, *other, keys[i], &same, err));
      if (!same) continue;
      *duplicate = keys[i].at;
      return STATUS_OK;
    }
    all->slots[slot] = (uint32_t)(i + 1);
  }
  return STATUS_OK;
}

void json_keys_release(JsonKeys *keys) {
  free(keys->keys);
  free(keys->slots);
  *keys = (JsonKeys){0};
}
