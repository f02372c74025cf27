/* word_cache.c - remembers encoded words; see word_cache.h.
 *
 * Called by: bpe.c. The cache only saves time: without memory for it everything still works. A full cache is
 * emptied, so that it follows a text whose words change. */
#include "tokenizer/word_cache.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST_SLOTS = 512, MOST_SLOTS = 1 << 17 };

void word_cache_release(WordCache *cache) {
  free(cache->slots);
  buffer_release(&cache->keys);
  id_list_release(&cache->ids);
  *cache = (WordCache){0};
}

/* Doubles the slots or, at the maximum, empties them. */
static bool make_room(WordCache *cache) {
  size_t size = cache->slots ? (cache->mask + 1) * 2 : FEWEST_SLOTS;
  if (size > MOST_SLOTS) {
    memset(cache->slots, 0, (cache->mask + 1) * sizeof *cache->slots);
    cache->count = cache->keys.size = cache->ids.count = 0;
    return true;
  }
  WordSlot *slots = calloc(size, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; cache->slots && i <= cache->mask; i++) {
    if (cache->slots[i].key_size == 0) continue;
    size_t at = cache->slots[i].hash & (size - 1);
    while (slots[at].key_size) at = (at + 1) & (size - 1);
    slots[at] = cache->slots[i];
  }
  free(cache->slots);
  cache->slots = slots;
  cache->mask = size - 1;
  return true;
}

WordSlot *word_cache_seek(WordCache *cache, const char *word, size_t size, uint64_t hash) {
  if ((!cache->slots || cache->count * 2 > cache->mask) && !make_room(cache)) return NULL;
  for (size_t at = hash & cache->mask;; at = (at + 1) & cache->mask) {
    WordSlot *slot = &cache->slots[at];
    if (slot->key_size == 0) return slot;
    if (slot->hash == hash && slot->key_size == size && memcmp(cache->keys.data + slot->key, word, size) == 0)
      return slot;
  }
}

void word_cache_fill(WordCache *cache, WordSlot *slot, const char *word, size_t size, uint64_t hash,
                     const int32_t *ids, size_t n_ids) {
  size_t key = cache->keys.size, first = cache->ids.count;
  if (buffer_append(&cache->keys, word, size, NULL) != STATUS_OK) return;
  for (size_t i = 0; i < n_ids; i++)
    if (id_list_append(&cache->ids, ids[i], NULL) != STATUS_OK) return;
  *slot = (WordSlot){hash, (uint32_t)key, (uint32_t)size, (uint32_t)first, (uint32_t)n_ids};
  cache->count++;
}
