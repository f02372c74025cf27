/* key_table.h - a map from numbers of 64 bits, such as hashes, to pointers or numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint64_t key; /* 0: empty */
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

/* The entry of a key, or NULL. It is valid until key_table_add(). PRECOND key != 0, for both functions */
const KeyEntry *key_table_find(const KeyTable *table, uint64_t key);
/* Adds an entry whose key is new; false if memory runs out. */
bool key_table_add(KeyTable *table, KeyEntry entry);
void key_table_release(KeyTable *table);
