/* key_table.c - see key_table.h. */
#include "constrain/store/key_table.h"

#include <stdlib.h>

/* The slot of a key, or an empty one for it. Keys may be small numbers: the product mixes their bits. */
static size_t slot_of(const KeyTable *table, uint64_t key) {
  const size_t last = table->n_slots - 1;
  size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & last;
  while (table->slots[at].key && table->slots[at].key != key) at = (at + 1) & last;
  return at;
}

const KeyEntry *key_table_find(const KeyTable *table, uint64_t key) {
  if (table->n_slots == 0) return NULL;
  const KeyEntry *entry = &table->slots[slot_of(table, key)];
  return entry->key ? entry : NULL;
}

static bool grow(KeyTable *table) {
  const KeyTable old = *table;
  const size_t n = old.n_slots ? old.n_slots * 2 : 256;
  KeyEntry *slots = calloc(n, sizeof *slots);
  if (!slots) return false;
  *table = (KeyTable){slots, n, old.count};
  for (size_t i = 0; i < old.n_slots; i++)
    if (old.slots[i].key) slots[slot_of(table, old.slots[i].key)] = old.slots[i];
  free(old.slots);
  return true;
}

bool key_table_add(KeyTable *table, KeyEntry entry) {
  if (table->count * 2 >= table->n_slots && !grow(table)) return false;
  table->slots[slot_of(table, entry.key)] = entry;
  table->count++;
  return true;
}

void key_table_release(KeyTable *table) {
  free(table->slots);
  *table = (KeyTable){.count = 0};
}
