/* repetition.c - see repetition.h.   Called by: filters.c. A token costs up to 256 comparisons, less than a
 * microsecond. */
#include "commands/answer/filters/repetition.h"

/* A passage of p tokens is a loop when this many last tokens equal the tokens p positions before them. */
static int enough(int p) {
  int n = REPETITION_ROUNDS * p;
  return n < REPETITION_LEAST ? REPETITION_LEAST : n > REPETITION_MOST ? REPETITION_MOST : n;
}

bool repetition_push(Repetition *repetition, int32_t id) {
  Repetition *r = repetition;
  bool loops = false;
  for (int p = 1, at = r->at; p <= r->n; p++) {
    at = at == 0 ? REPETITION_PASSAGE - 1 : at - 1;
    if (r->last[at] != id)
      r->n_equal[p] = 0;
    else if (++r->n_equal[p] >= enough(p))
      loops = true;
  }
  r->last[r->at] = id;
  r->at = (r->at + 1) % REPETITION_PASSAGE;
  if (r->n < REPETITION_PASSAGE) r->n++;
  return loops;
}
