/* buffers.c - see buffers.h. */
#include "model/buffers.h"

#include <stdbool.h>
#include <stdint.h>

size_t buffers_product(size_t n, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(n, size, &bytes) ? SIZE_MAX : bytes;
}

void buffers_begin(Buffers *b, void *start) {
  b->start = start;
  b->n = 0;
  buffers_live(b, OP_EMBED, OP_LOGITS);
}

void buffers_live(Buffers *b, OpKind first, OpKind last) {
  b->first = first;
  b->last = last;
}

void *buffers_take(Buffers *b, size_t n, size_t size) {
  const int own = b->n++;
  if (b->start) return b->all[own].bytes > 0 ? (char *)b->start + b->all[own].at : NULL;
  b->all[own].bytes = buffers_product(n, size);
  b->all[own].first = b->first;
  b->all[own].last = b->last;
  return NULL;
}

/* The lowest offset at which the buffer overlaps no placed buffer, order[0..n), that lives at the same
 * time. */
static size_t first_place(const Buffers *b, int own, const int *order, int n, size_t align) {
  size_t place = 0;
  for (int i = 0; i < n; i++) {
    const int other = order[i];
    const size_t end = (b->all[other].at + b->all[other].bytes + align - 1) & ~(align - 1);
    const bool at_once = b->all[own].first <= b->all[other].last && b->all[other].first <= b->all[own].last;
    if (!at_once || place + b->all[own].bytes <= b->all[other].at || end <= place) continue;
    place = end;
    i = -1; /* buffers checked before may overlap the new place */
  }
  return place;
}

/* The largest buffers are placed first: smaller ones then fit into memory of larger ones that are not in
 * use. */
size_t buffers_fit(Buffers *b, size_t align) {
  int order[MOST_BUFFERS];
  size_t all = 0, end = 0;
  for (int i = 0; i < b->n; i++) {
    int place = i;
    if (b->all[i].bytes > SIZE_MAX / 2 - all || (all += b->all[i].bytes + align) > SIZE_MAX / 2)
      return SIZE_MAX;
    for (; place > 0 && b->all[order[place - 1]].bytes < b->all[i].bytes; place--)
      order[place] = order[place - 1];
    order[place] = i;
  }
  for (int i = 0; i < b->n; i++) {
    const int own = order[i];
    b->all[own].at = b->all[own].bytes > 0 ? first_place(b, own, order, i, align) : 0;
    if (b->all[own].at + b->all[own].bytes > end) end = b->all[own].at + b->all[own].bytes;
  }
  return (end + align - 1) & ~(align - 1);
}
