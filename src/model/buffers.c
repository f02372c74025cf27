/* buffers.c - see buffers.h. */
#include "model/buffers.h"

#include <stdint.h>
#include <string.h>

size_t buffers_product(size_t n, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(n, size, &bytes) ? SIZE_MAX : bytes;
}

void buffers_live(Buffers *b, OpKind first, OpKind last) {
  b->first = first;
  b->last = last;
  b->zeros = false;
}

void buffers_add(Buffers *b, void *pointer, size_t n, size_t width, size_t size) {
  const int own = b->n++;
  b->all[own].pointer = pointer;
  b->all[own].bytes = buffers_product(buffers_product(n, width), size);
  b->all[own].first = b->first;
  b->all[own].last = b->last;
  b->all[own].zeros = b->zeros;
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

static bool lives_always(const Buffers *b, int own) {
  return b->all[own].first == OP_EMBED && b->all[own].last == OP_LOGITS;
}

/* Buffers that live always go first: the others then share one piece of memory without gaps. Among these the
 * larger go first, so that smaller ones fit into memory of larger ones that are not in use. */
static bool goes_before(const Buffers *b, int own, int other) {
  const bool always = lives_always(b, own);
  return always == lives_always(b, other) ? b->all[own].bytes > b->all[other].bytes : always;
}

size_t buffers_fit(Buffers *b, size_t align) {
  int order[MOST_BUFFERS];
  size_t all = 0, end = 0;
  for (int i = 0; i < b->n; i++) {
    int place = i;
    if (b->all[i].bytes > SIZE_MAX / 2 - all || (all += b->all[i].bytes + align) > SIZE_MAX / 2)
      return SIZE_MAX;
    for (; place > 0 && goes_before(b, i, order[place - 1]); place--) order[place] = order[place - 1];
    order[place] = i;
  }
  for (int i = 0; i < b->n; i++) {
    const int own = order[i];
    b->all[own].at = b->all[own].bytes > 0 ? first_place(b, own, order, i, align) : 0;
    if (b->all[own].at + b->all[own].bytes > end) end = b->all[own].at + b->all[own].bytes;
  }
  return (end + align - 1) & ~(align - 1);
}

void buffers_point(const Buffers *b, void *start) {
  for (int i = 0; i < b->n; i++) {
    const void *buffer = (char *)start + b->all[i].at;
    if (b->all[i].bytes > 0) memcpy(b->all[i].pointer, &buffer, sizeof buffer);
  }
}
