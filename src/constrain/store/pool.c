/* pool.c - see pool.h. */
#include "constrain/store/pool.h"

#include <stdlib.h>

#include "base/status.h"

#define CHUNK_BYTES ((size_t)1 << 16)

void *pool_alloc(Pool *pool, size_t size) {
  size = (size + 15) & ~(size_t)15;
  if (pool->used + size > pool->size) {
    const size_t n = size > CHUNK_BYTES ? size : CHUNK_BYTES;
    char *chunk = malloc(n);
    if (!chunk || mem_grow(&pool->chunks, &pool->chunks_capacity, pool->n_chunks + 1, sizeof chunk,
                           "a constraint", NULL))
      return free(chunk), NULL;
    pool->chunks[pool->n_chunks++] = chunk;
    pool->used = 0;
    pool->size = n;
    pool->total += n;
  }
  pool->used += size;
  return pool->chunks[pool->n_chunks - 1] + pool->used - size;
}

void pool_release(Pool *pool) {
  for (size_t i = 0; i < pool->n_chunks; i++) free(pool->chunks[i]);
  free(pool->chunks);
  *pool = (Pool){.chunks = NULL};
}
