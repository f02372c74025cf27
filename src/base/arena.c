/* arena.c - see arena.h. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ArenaBlock {
  ArenaBlock *next;
  size_t used, size;
  _Alignas(16) char bytes[];
};

enum { FIRST_BLOCK = 1 << 14, LARGEST_BLOCK = 1 << 20, ALIGNMENT = 16 };

static ArenaBlock *add_block(Arena *arena, size_t need, Error *err) {
  size_t size = arena->blocks ? 2 * arena->blocks->size : FIRST_BLOCK;
  if (size > LARGEST_BLOCK) size = LARGEST_BLOCK;
  if (size < need) size = need;
  if (arena->limit && size > arena->limit - arena->total) {
    error_set(err, STATUS_MODEL, "takes more than %zu MB of memory", arena->limit >> 20);
    return NULL;
  }
  ArenaBlock *block = malloc(sizeof *block + size);
  if (!block) {
    error_set(err, STATUS_FAILED, "out of memory: %zu bytes are needed", size);
    return NULL;
  }
  *block = (ArenaBlock){.next = arena->blocks, .size = size};
  arena->total += size;
  arena->blocks = block;
  return block;
}

void *arena_alloc(Arena *arena, size_t n, size_t size, Error *err) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX / 2) bytes = PTRDIFF_MAX / 2;
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  ArenaBlock *block = arena->blocks;
  if (!block || block->size - block->used < bytes) block = add_block(arena, bytes, err);
  if (!block) return NULL;
  void *memory = block->bytes + block->used;
  block->used += bytes;
  return memory;
}

bool arena_grow(Arena *arena, void *items, size_t count, size_t *capacity, size_t size, Error *err) {
  if (count < *capacity) return true;
  size_t wanted = 2 * *capacity + 4;
  void *old, *grown = arena_alloc(arena, wanted, size, err);
  if (!grown) return false;
  memcpy(&old, items, sizeof old);
  if (count) memcpy(grown, old, count * size);
  memcpy(items, &grown, sizeof grown);
  *capacity = wanted;
  return true;
}

void arena_release(Arena *arena) {
  for (ArenaBlock *block = arena->blocks, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  *arena = (Arena){0};
}
