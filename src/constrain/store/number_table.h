/* number_table.h - a hash table of numbers, which finds equal items of an array that its owner keeps.
 *
 *   uint32_t number;
 *   for (NumberWalk w = number_table_walk(&table, hash); number_walk_next(&w, &number);)
 *     if (items[number] equals the wanted one) return number;
 *   ... append the item ...
 *   number_table_put(&table, hash, number);
 *
 * Always true: at most half of the slots are in use, so that a walk ends. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t number; /* number of the item + 1; 0: empty */
  uint32_t hash;   /* upper half of the 64-bit hash */
} NumberSlot;

/* Zero-initialise it. */
typedef struct {
  NumberSlot *slots; /* [n_slots], a power of two */
  size_t n_slots, count;
} NumberTable;

/* A walk over the numbers with one hash. */
typedef struct {
  const NumberTable *table;
  uint32_t hash;
  size_t at; /* slot */
} NumberWalk;

/* Makes room for one number, before each number_table_put(); false if memory runs out. */
bool number_table_reserve(NumberTable *table);
void number_table_put(NumberTable *table, uint64_t hash, uint32_t number);
/* Forgets all numbers and keeps the memory. */
void number_table_reset(NumberTable *table);
void number_table_release(NumberTable *table);

static inline NumberWalk number_table_walk(const NumberTable *table, uint64_t hash) {
  return (NumberWalk){table, (uint32_t)(hash >> 32), (size_t)(hash >> 32)};
}
/* The next number whose hash has the same upper half; false if there is none. */
static inline bool number_walk_next(NumberWalk *walk, uint32_t *number) {
  const NumberTable *t = walk->table;
  if (t->n_slots == 0) return false;
  for (;;) {
    const NumberSlot slot = t->slots[walk->at++ & (t->n_slots - 1)];
    *number = slot.number - 1;
    if (slot.number == 0) return false;
    if (slot.hash == walk->hash) return true;
  }
}
