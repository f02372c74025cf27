/* buffers.h - places a session's buffers in one piece of memory by their lifetimes, for any backend.
 *
 * A buffer that only some operations of a layer use shares its memory with buffers of the layer's other
 * operations. Each buffer is taken twice, in the same order. The first buffers_take() only counts its size;
 * buffers_fit() then places all buffers; the second buffers_take() returns the address. */
#pragma once

#include <stddef.h>

#include "model/program.h"

enum { MOST_BUFFERS = 128 };

typedef struct {
  void *start;        /* start of the memory; NULL: sizes are counted, and addresses are NULL */
  OpKind first, last; /* the lifetime of buffers that are taken next */
  int n;              /* buffers taken so far */
  struct {
    size_t bytes; /* SIZE_MAX: too large */
    size_t at;    /* offset from `start`, set by buffers_fit() */
    OpKind first, last;
  } all[MOST_BUFFERS];
} Buffers;

/* With start NULL, buffers_take() counts sizes from now on. Otherwise it returns the addresses of the placed
 * buffers in the memory at `start`. Until the first buffers_live(), buffers live always. */
void buffers_begin(Buffers *buffers, void *start);

/* Buffers that are taken from now on live in operations `first` to `last` of each layer. From OP_EMBED to
 * OP_LOGITS means always, also from one step to the next. */
void buffers_live(Buffers *buffers, OpKind first, OpKind last);

/* Memory for n items of `size` bytes; NULL while sizes are counted, and for 0 bytes. PRECOND fewer than
 * MOST_BUFFERS are taken. */
void *buffers_take(Buffers *buffers, size_t n, size_t size);

/* Places all buffers at multiples of `align`, a power of two. Returns the bytes of the whole memory, a
 * multiple of `align`; SIZE_MAX: the sum overflowed. */
size_t buffers_fit(Buffers *buffers, size_t align);

/* n * size, the bytes of n items; SIZE_MAX if that overflows. */
size_t buffers_product(size_t n, size_t size);
