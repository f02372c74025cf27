/* arena.h - memory that is taken piece by piece and given back all at once. It is never moved, so that no
 * piece costs much more time than another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct ArenaBlock ArenaBlock;
/* Zero-initialise it; `limit` may be set. */
typedef struct {
  ArenaBlock *blocks;  /* the first one is being filled */
  size_t total, limit; /* bytes of all blocks; `limit` 0: none */
} Arena;
/* n items of `size` bytes, aligned for any type, not zeroed; NULL with err set. */
void *arena_alloc(Arena *arena, size_t n, size_t size, Error *err);
/* Makes room for one more item in an array of `count` items of `size` bytes; `items` is the address of the
 * pointer to the array. False with err set. */
bool arena_grow(Arena *arena, void *items, size_t count, size_t *capacity, size_t size, Error *err);
void arena_release(Arena *arena);
