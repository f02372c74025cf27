/* timeline.c - see timeline.h. */
#include "engine/timeline.h"

bool timeline_changes_rope(const Timeline *t, int n) {
  return (n > rope_original_context(t->config)) != t->long_rope;
}

void timeline_cut(Timeline *t, int n) {
  t->n_past = n;
  t->logits_row = -1;
  drafting_cut(&t->drafting, n);
}

void timeline_count(Timeline *t, int from, int end, bool is_answer) {
  for (int i = from; t->counts && i < end; i++) sampler_count_token(t->sampler, t->ids[i], is_answer);
}

void timeline_append(Timeline *t, int32_t id) {
  t->ids[t->n_ids++] = id;
  timeline_count(t, t->n_ids - 1, t->n_ids, true);
}

int timeline_accept(Timeline *t) {
  const int before = t->n_past;
  while (t->n_past < t->n_ids && drafting_judge(&t->drafting, t->ids[t->n_past])) t->n_past++;
  t->logits_row += t->n_past - before;
  return t->n_past - before;
}

int timeline_room(const Timeline *t, int n, int n_more) {
  const int original = rope_original_context(t->config),
            end = !t->long_rope && original < t->n_ctx ? original : t->n_ctx;
  if (!t->drafting.drafter) return 0;
  if (n > t->drafting.guessing.most) n = t->drafting.guessing.most;
  if (n > end - t->n_ids) n = end - t->n_ids;
  return n_more >= 0 && n > n_more ? n_more : n;
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
