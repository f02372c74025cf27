/* engine.c - see engine.h. */
#include "engine/engine.h"

#include <stdlib.h>

struct Engine {
  One one;      /* one.session NULL: no session */
  Batch *batch; /* NULL: no batch */
};

RELEASE_BY(engine_release, Engine, engine_close)

Status engine_open(const Backend *backend, BackendModel *loaded, const Model *model,
                   const EngineOptions *options, Engine **engine, Error *err) {
  *engine = NULL;
  OWNED(engine_release) Engine *e = NULL;
  TRY(NEW(e, 1, "an engine", err));
  e->one.store = options->store;
  if (options->session) TRY(session_open(backend, loaded, model, options->session, &e->one.session, err));
  if (options->batch) TRY(batch_open(backend, loaded, model, options->batch, &e->batch, err));
  *engine = TAKE(e);
  return STATUS_OK;
}

void engine_close(Engine *e) {
  if (!e) return;
  batch_close(e->batch);
  session_close(e->one.session);
  free(e);
}

int engine_context(const Engine *e) {
  return e->batch ? batch_context(e->batch) : session_view(e->one.session).n_ctx;
}

Session *engine_session(Engine *e) {
  return e->one.session;
}

bool engine_has_batch(const Engine *e) {
  return e->batch != NULL;
}

const EngineRequest *engine_in_session(const Engine *e) {
  return e->one.run.state != RUN_ENDED ? &e->one.run.request : NULL;
}

int engine_pages_used(const Engine *e) {
  return e->batch ? batch_pages_used(e->batch) : 0;
}

void engine_disown(Engine *e, const void *owner) {
  if (e->one.owner == owner) e->one.owner = NULL;
}

/* --- the schedule */

static bool is_empty(const Engine *e) {
  return e->one.run.state == RUN_ENDED && (!e->batch || batch_is_empty(e->batch));
}

static Status place(Engine *e, const EngineJob *job, const EngineRequest *request, Error *err) {
  const bool in_session = e->one.session && is_empty(e) && (request->alone || !e->batch);
  return in_session ? one_begin(&e->one, job, request, err) : batch_enter(e->batch, job, request, err);
}

/* Takes requests while there is room for one. */
static Status take_requests(void *user, const EngineJob *job, Error *err) {
  Engine *e = user;
  while (e->batch ? batch_has_room(e->batch) : is_empty(e)) {
    EngineRequest request = {0};
    bool found;
    TRY(job->next(job->user, is_empty(e), &request, &found, err));
    if (!found) return STATUS_OK;
    TRY(place(e, job, &request, err));
  }
  return STATUS_OK;
}

static Status run(Engine *e, const EngineJob *job, Error *err) {
  for (bool all_wait = false;;) {
    bool one_waits = true, batch_waits = true;
    if (job->interrupted && *job->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    if (job->listen) TRY(job->listen(job->user, all_wait, err));
    TRY(take_requests(e, job, err));
    if (is_empty(e)) return STATUS_OK;
    if (e->one.run.state != RUN_ENDED) TRY(one_step(&e->one, job, &one_waits, err));
    if (e->batch && !batch_is_empty(e->batch))
      TRY(batch_step(e->batch, job, take_requests, e, &batch_waits, err));
    all_wait = one_waits && batch_waits;
  }
}

Status engine_run(Engine *e, const EngineJob *job, Error *err) {
  const Status status = run(e, job, err);
  one_drop(&e->one);
  if (e->batch) batch_drop(e->batch);
  const int n = engine_pages_used(e);
  if (status || n == 0) return status;
  return error_set(err, STATUS_FAILED, "%d pages are still in use: a fault of auk", n);
}
