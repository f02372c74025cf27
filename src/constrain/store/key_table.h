/* key_table.h - a map from numbers of 64 bits, such as hashes, to pointers or numbers. A key may have several
 * entries, so that the owner of an array finds equal items by their hash:
 *
 *   for (const KeyEntry *e = key_table_find(&table, hash); e; e = key_table_next(&table, e))
 *     if (items[e->value.number] equals the wanted one) return e->value.number;
 *   return key_table_append(&table, hash, &items, &count, &capacity, &item, sizeof item, &failure);
 *
 * Always true: at most half of the slots are in use, so that a search ends. */
#pragma once

#include "constrain/store/failure.h"

typedef struct {
  uint64_t key; /* 0: empty; entries of key 0 have key 1 */
  union {
    const void *pointer;
    uint32_t number;
  } value;
} KeyEntry;

/* Zero-initialise it. */
typedef struct {
  KeyEntry *slots; /* [n_slots] a power of two */
  size_t n_slots, count;
} KeyTable;

/* An entry of a key, and the next one of the same key; NULL: there is none. It is valid until
 * key_table_add(). */
const KeyEntry *key_table_find(const KeyTable *table, uint64_t key);
const KeyEntry *key_table_next(const KeyTable *table, const KeyEntry *entry);
/* Adds an entry; false if memory runs out. */
bool key_table_add(KeyTable *table, KeyEntry entry);
/* Appends an item of `size` bytes to the array to which `items` points, and adds an entry with the item's
 * number. Returns that number; 0 and a failure if memory runs out. */
uint32_t key_table_append(KeyTable *table, uint64_t key, void *items, size_t *count, size_t *capacity,
                          const void *item, size_t size, Failure *failure);
/* Forgets all entries and keeps the memory. */
void key_table_reset(KeyTable *table);
void key_table_release(KeyTable *table);
