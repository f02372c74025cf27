/* repetition.c - see repetition.h.
 *
 * Called by: answer.c. A token costs as many comparisons as a passage has tokens: a fraction of a
 * microsecond. */
#include "commands/answer/repetition.h"

bool repetition_push(Repetition *repetition, int32_t id) {
  Repetition *r = repetition;
  bool circles = false;
  for (int p = 1, at = r->at; p <= r->n; p++) {
    at = at == 0 ? REPETITION_PASSAGE - 1 : at - 1;
    r->n_equal[p] = r->last[at] != id                   ? 0
                    : r->n_equal[p] < REPETITION_ROUNDS ? r->n_equal[p] + 1
                                                        : REPETITION_ROUNDS;
    circles = circles || r->n_equal[p] == REPETITION_ROUNDS;
  }
  r->last[r->at] = id;
  r->at = (r->at + 1) % REPETITION_PASSAGE;
  if (r->n < REPETITION_PASSAGE) r->n++;
  return circles;
}
