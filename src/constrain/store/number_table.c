/* number_table.c - see number_table.h. */
#include "constrain/store/number_table.h"

#include <stdlib.h>
#include <string.h>

static void put(NumberSlot *slots, size_t n_slots, NumberSlot slot) {
  size_t at = slot.hash & (n_slots - 1);
  while (slots[at].number) at = (at + 1) & (n_slots - 1);
  slots[at] = slot;
}

bool number_table_reserve(NumberTable *table) {
  if (2 * table->count < table->n_slots) return true;
  const size_t n = table->n_slots ? 2 * table->n_slots : 256;
  NumberSlot *slots = calloc(n, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < table->n_slots; i++)
    if (table->slots[i].number) put(slots, n, table->slots[i]);
  free(table->slots);
  table->slots = slots;
  table->n_slots = n;
  return true;
}

void number_table_put(NumberTable *table, uint64_t hash, uint32_t number) {
  put(table->slots, table->n_slots, (NumberSlot){number + 1, (uint32_t)(hash >> 32)});
  table->count++;
}

void number_table_reset(NumberTable *table) {
  if (table->n_slots) memset(table->slots, 0, table->n_slots * sizeof *table->slots);
  table->count = 0;
}

void number_table_release(NumberTable *table) {
  free(table->slots);
  *table = (NumberTable){.slots = NULL};
}
