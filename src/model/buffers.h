/* buffers.h - memory of a session's buffers from their lifetimes, for any backend.
 *
 * A buffer that only some operations of a layer use shares its memory with buffers that other operations of
 * the layer use. Each buffer is taken twice, in the same order: first the sizes are
 * counted, then buffers_fit() places them, then buffers_take() gives the addresses. */
#pragma once

#include <stddef.h>

#include "model/program.h"

enum { MOST_BUFFERS = 128 };

typedef struct {
  void *start;        /* NULL: sizes are counted, and all addresses are NULL */
  OpKind first, last; /* the lifetime of what is taken next */
  int n;              /* taken so far */
  struct {
    size_t bytes; /* SIZE_MAX: too many */
    size_t at;    /* set by buffers_fit(): from the start on */
    OpKind first, last;
  } all[MOST_BUFFERS];
} Buffers;

/* Begins to count, or with `start` to give the addresses of what was counted and placed. The first buffers
 * live always. */
void buffers_begin(Buffers *buffers, void *start);

/* Later buffers matter in each layer from operation `first` to `last` alone; OP_EMBED and
 * OP_LOGITS: always, from one step to the next as well. */
void buffers_live(Buffers *buffers, OpKind first, OpKind last);

/* Memory of n items of so many bytes; NULL while it counts, and if there are none. PRECOND at most
 * MOST_BUFFERS are taken. */
void *buffers_take(Buffers *buffers, size_t n, size_t size);

/* Places all at multiples of `align`, a power of two. Returns the bytes of all together, a multiple of it;
 * SIZE_MAX: too many. */
size_t buffers_fit(Buffers *buffers, size_t align);

/* n items of so many bytes; SIZE_MAX if that overflows. */
size_t buffers_product(size_t n, size_t size);
