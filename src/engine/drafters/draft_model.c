/* draft_model.c - see draft_model.h. */
#include "engine/drafters/draft_model.h"

#include <stdlib.h>

typedef struct {
  Session *session;
  int vocab_size;
} ModelDrafter;

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  const ModelDrafter *d = self;
  const Timeline *own = session_view(d->session).text;
  if (text->n > own->n_ctx) return STATUS_OK;
  TRY(session_sync(d->session, text->ids, text->n, err));
  TRY(sampler_set(own->sampler, sampler_settings(text->sampler), err));
  sampler_set_draws(own->sampler, sampler_draws(text->sampler));
  for (;;) {
    int32_t id;
    TRY(session_sample(d->session, &id, err));
    if (id >= d->vocab_size) return STATUS_OK;
    guesses->ids[guesses->n++] = id;
    if (guesses->n == most || session_room(d->session) == 0) return STATUS_OK;
    TRY(session_decode(d->session, id, err));
  }
}

static void close_model(void *self) {
  ModelDrafter *d = self;
  session_close(d->session);
  free(d);
}

Status draft_model_open(Session *session, int vocab_size, double cost, Drafter *drafter, Error *err) {
  *drafter = (Drafter){.name = NULL};
  ModelDrafter *d;
  if (NEW(d, 1, "the draft model", err)) return session_close(session), STATUS_FAILED;
  *d = (ModelDrafter){session, vocab_size};
  *drafter = (Drafter){.name = "model", .cost = cost, .self = d, .propose = propose, .close = close_model};
  return STATUS_OK;
}
