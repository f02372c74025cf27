/* key_table.c - see key_table.h. */
#include "constrain/store/key_table.h"

#include <stdlib.h>
#include <string.h>

/* The first entry with the key in the slots from `at` to the next empty one. */
static const KeyEntry *search(const KeyTable *table, size_t at, uint64_t key) {
  for (;; at++) {
    const KeyEntry *entry = &table->slots[at & (table->n_slots - 1)];
    if (entry->key == key || !entry->key) return entry->key ? entry : NULL;
  }
}

/* Keys may be small numbers: the product mixes their bits. */
static size_t first_slot(uint64_t key) {
  return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

const KeyEntry *key_table_find(const KeyTable *table, uint64_t key) {
  key += key == 0;
  return table->n_slots > 0 ? search(table, first_slot(key), key) : NULL;
}

const KeyEntry *key_table_next(const KeyTable *table, const KeyEntry *entry) {
  return search(table, (size_t)(entry - table->slots) + 1, entry->key);
}

static void put(KeyTable *table, KeyEntry entry) {
  size_t at = first_slot(entry.key) & (table->n_slots - 1);
  while (table->slots[at].key) at = (at + 1) & (table->n_slots - 1);
  table->slots[at] = entry;
}

static bool grow(KeyTable *table) {
  const KeyTable old = *table;
  const size_t n = old.n_slots ? old.n_slots * 2 : 64;
  KeyEntry *slots = calloc(n, sizeof *slots);
  if (!slots) return false;
  *table = (KeyTable){slots, n, old.count};
  for (size_t i = 0; i < old.n_slots; i++)
    if (old.slots[i].key) put(table, old.slots[i]);
  free(old.slots);
  return true;
}

bool key_table_add(KeyTable *table, KeyEntry entry) {
  if (table->count * 2 >= table->n_slots && !grow(table)) return false;
  entry.key += entry.key == 0;
  put(table, entry);
  table->count++;
  return true;
}

uint32_t key_table_append(KeyTable *table, uint64_t key, void *items, size_t *count, size_t *capacity,
                          const void *item, size_t size, Failure *failure) {
  if (!failure_grow(failure, items, capacity, *count + 1, size)) return 0;
  if (!key_table_add(table, (KeyEntry){key, {.number = (uint32_t)*count}}))
    return failure_set(failure, STATUS_FAILED, "out of memory"), 0;
  char *grown;
  memcpy(&grown, items, sizeof grown); /* the caller's pointer is of any type */
  memcpy(grown + *count * size, item, size);
  return (uint32_t)(*count)++;
}

void key_table_reset(KeyTable *table) {
  if (table->n_slots) memset(table->slots, 0, table->n_slots * sizeof *table->slots);
  table->count = 0;
}

void key_table_release(KeyTable *table) {
  free(table->slots);
  *table = (KeyTable){.count = 0};
}
