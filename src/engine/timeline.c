/* timeline.c - see timeline.h. */
#include "engine/timeline.h"

bool timeline_changes_rope(const Timeline *t, int n) {
  return (n > rope_original_context(t->config)) != t->long_rope;
}

void timeline_count(Timeline *t, int from, bool is_answer) {
  for (int i = from; t->counts && i < t->n_ids; i++) sampler_count_token(t->sampler, t->ids[i], is_answer);
}

void timeline_append(Timeline *t, int32_t id) {
  t->ids[t->n_ids++] = id;
  timeline_count(t, t->n_ids - 1, true);
}

int timeline_accept(Timeline *t) {
  const int before = t->n_past;
  while (t->n_past < t->n_ids && drafting_judge(&t->drafting, t->ids[t->n_past])) t->n_past++;
  t->logits_row += t->n_past - before;
  return t->n_past - before;
}

int timeline_room(const Timeline *t, int room, int n_more) {
  const Drafting *d = &t->drafting;
  if (!d->drafter) return 0;
  if (room > d->guessing.most) room = d->guessing.most;
  if (room > t->n_ctx - t->n_ids) room = t->n_ctx - t->n_ids;
  return n_more >= 0 && room > n_more ? n_more : room;
}

Status timeline_guess(Timeline *t, int most, Error *err) {
  Drafting *d = &t->drafting;
  const DraftText text = {.ids = t->ids,
                          .n = t->n_ids,
                          .n_computed = t->n_past < t->n_ids ? t->n_past : t->n_ids - 1,
                          .sampler = t->sampler};
  drafting_forget(d);
  TRY(drafting_guess(d, &text, most, err));
  if (d->n_unchanged > t->n_past) d->n_unchanged = t->n_past; /* later tokens may be replaced */
  return STATUS_OK;
}
