/* pool.h - memory that is taken piece by piece and given back all at once. It is never moved, so that no
 * piece costs much more time than another. */
#pragma once

#include <stddef.h>

/* Zero-initialise it. */
typedef struct {
  char **chunks; /* [n_chunks] */
  size_t n_chunks, chunks_capacity;
  size_t used, size; /* bytes of the last chunk */
  size_t total;      /* bytes of all chunks */
} Pool;

/* `size` bytes for any type; NULL if memory runs out. */
void *pool_alloc(Pool *pool, size_t size);
void pool_release(Pool *pool);
