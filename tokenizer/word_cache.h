/* word_cache.h - a bounded cache of encoded words, for one encoding. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef struct {
  uint64_t hash;
  uint32_t key, key_size; /* key: offset in keys; key_size 0: empty slot */
  uint32_t ids, n_ids;    /* ids: index in WordCache.ids */
} WordSlot;

/* Zero-initialise it. */
typedef struct {
  WordSlot *slots; /* [mask + 1] at most half full */
  size_t mask, count;
  Buffer keys;
  IdList ids;
} WordCache;

void word_cache_release(WordCache *cache);

/* The slot of a word of 1 .. WORD_CACHE_LONGEST bytes: its own or, with key_size 0, a free slot for
 * word_cache_fill(). Valid until the next call; NULL without memory. */
#define WORD_CACHE_LONGEST 128
WordSlot *word_cache_seek(WordCache *cache, const char *word, size_t size, uint64_t hash);
/* Stores the ids of the word; does nothing without memory. */
void word_cache_fill(WordCache *cache, WordSlot *slot, const char *word, size_t size, uint64_t hash,
                     const int32_t *ids, size_t n_ids);
