/* buffers.h - places a session's buffers in one piece of memory by their lifetimes, for any backend.
 *
 * A buffer that only some operations of a layer use shares its memory with buffers of the layer's other
 * operations. buffers_add() notes a buffer's size, buffers_fit() places all buffers, and buffers_point()
 * sets the pointers to them when there is memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "model/program.h"

enum { MOST_BUFFERS = 128 };

/* The caller sets it to zeros before it takes buffers. */
typedef struct {
  OpKind first, last; /* the lifetime of buffers that are taken next, set by buffers_live() */
  bool zeros;         /* buffers that are taken next have to begin as zeros; the backend clears them */
  int n;              /* buffers taken so far */
  struct {
    void *pointer; /* the address of the pointer to the buffer */
    size_t bytes;  /* SIZE_MAX: too large */
    size_t at;     /* offset from the start of the memory, set by buffers_fit() */
    OpKind first, last;
    bool zeros;
  } all[MOST_BUFFERS];
} Buffers;

/* Buffers that are taken from now on live in operations `first` to `last` of each layer, and need not begin
 * as zeros. From OP_EMBED to OP_LOGITS means always, also from one step to the next. */
void buffers_live(Buffers *buffers, OpKind first, OpKind last);

/* Takes a buffer of n * width items of `size` bytes. `pointer` is the address of the pointer that
 * buffers_point() will set. PRECOND fewer than MOST_BUFFERS are taken. */
void buffers_add(Buffers *buffers, void *pointer, size_t n, size_t width, size_t size);

/* Places all buffers at multiples of `align`, a power of two. Returns the bytes of the whole memory, a
 * multiple of `align`; SIZE_MAX: the sum overflowed. */
size_t buffers_fit(Buffers *buffers, size_t align);

/* Sets the pointers to the placed buffers; those of 0 bytes stay as they are. */
void buffers_point(const Buffers *buffers, void *start);

/* n * size, the bytes of n items; SIZE_MAX if that overflows. */
size_t buffers_product(size_t n, size_t size);
