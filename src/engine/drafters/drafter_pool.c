/* drafter_pool.c - see drafter_pool.h.   Called by: session.c, batch.c, timeline.c. */
#include "engine/drafters/drafter_pool.h"

#include <stdlib.h>

#include "base/clock.h"

Status drafter_pool_open(const DraftSource *source, int n, int n_ctx, DrafterPool *pool, Error *err) {
  if (n == 0) return STATUS_OK;
  TRY(NEW(pool->drafters, (size_t)n, "drafters", err));
  TRY(NEW(pool->idle, (size_t)n, "drafters", err));
  for (; pool->n < n; pool->n++) {
    Drafter *drafter = &pool->drafters[pool->n];
    TRY(source->open(source->user, n_ctx, drafter, err));
    pool->idle[pool->n_idle++] = drafter;
  }
  return STATUS_OK;
}

void drafter_pool_close(DrafterPool *pool) {
  for (int i = 0; i < pool->n; i++) drafter_close(&pool->drafters[i]);
  free(pool->drafters);
  free(pool->idle);
  *pool = (DrafterPool){.n = 0};
}

void drafting_lend(DrafterPool *pool, Drafting *d, int n_past) {
  if (d->drafter) return;
  d->drafter = pool->idle[--pool->n_idle];
  if (d->drafter->forget) d->drafter->forget(d->drafter->self);
  d->n_unchanged = 0;
  d->n_drafter_seen = n_past;
}

void drafting_forget(Drafting *d) {
  d->guesses.n = d->n_accepted = 0;
  d->guesses.ms = 0;
}

void drafting_return(DrafterPool *pool, Drafting *d) {
  if (d->drafter) pool->idle[pool->n_idle++] = d->drafter;
  d->drafter = NULL;
  drafting_forget(d);
}

void drafting_cut(Drafting *d, int n_past) {
  drafting_forget(d);
  if (d->n_unchanged > n_past) d->n_unchanged = n_past;
  if (d->n_drafter_seen > n_past) d->n_drafter_seen = n_past;
}

Status drafting_tell(Drafting *d, BackendState *target, const int32_t *ids, int n_past, Error *err) {
  if (!d->drafter || d->drafter->taps.n == 0) return STATUS_OK;
  const int from = d->n_drafter_seen > d->step_pos ? d->n_drafter_seen : d->step_pos,
            end = d->step_pos + d->n_tap_rows, n = (n_past < end ? n_past : end) - from;
  if (n <= 0) return STATUS_OK;
  const DraftRows rows = {target, ids + from, from, d->first_row + from - d->step_pos, n};
  TRY(d->drafter->take(d->drafter->self, &rows, err));
  d->n_drafter_seen = from + n;
  return STATUS_OK;
}

bool drafting_judge(Drafting *d, int32_t id) {
  if (d->n_accepted >= d->guesses.n) return false;
  const bool right = id == d->guesses.ids[d->n_accepted];
  guessing_judge(&d->guessing, right);
  if (right)
    d->n_accepted++;
  else
    drafting_forget(d);
  return right;
}

Status drafting_guess(Drafting *d, const DraftText *text, int most, Error *err) {
  const bool costs = d->drafter->cost > 0; /* if so, a guess that would not pay is not made */
  if (costs) most = guessing_length(&d->guessing, MODEL_RANK, most);
  if (most < 1) return STATUS_OK;
  const double start = clock_ms();
  DraftText known = *text;
  known.n_unchanged = d->n_unchanged;
  TRY(d->drafter->propose(d->drafter->self, &known, most, &d->guesses, err));
  d->guesses.ms = clock_ms() - start;
  if (costs) d->guesses.rank = MODEL_RANK;
  d->n_unchanged = text->n;
  if (!costs) d->guesses.n = guessing_length(&d->guessing, d->guesses.rank, d->guesses.n);
  return STATUS_OK;
}
