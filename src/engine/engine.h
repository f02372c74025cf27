/* engine.h - answers requests: many at once in a batch, one at a time in a session, or either.
 *
 * job->next() gives requests one after another, and job->done() reports the end of each. Which sequence a
 * request gets:
 *
 *   the engine has     a request gets
 *   a session          the session, when no other request is computed
 *   a batch            a sequence of the batch, as soon as one is idle
 *   both (keep)        the session if the request is `alone` and nothing else is computed, else the batch
 *
 * With both, steps of the session and of the batch alternate. A process that keeps a model has both where a
 * batch differs from a session: on a device whose kernels for several rows round otherwise, and for models
 * with a recurrent state. (A batch does not keep that state for later requests.) */
#pragma once

#include "engine/batch.h"
#include "engine/one.h"

typedef struct Engine Engine;

typedef struct {
  const SessionOptions *session; /* NULL: no session */
  PromptStore store;             /* for the session; its functions may be NULL */
  const BatchOptions *batch;     /* NULL: no batch */
} EngineOptions;

/* Opens an engine on a loaded model. The caller keeps the model loaded while the engine is open. Errors are
 * those of session_open() and batch_open(). *engine is NULL after a failure. */
Status engine_open(const Backend *backend, BackendModel *loaded, const Model *model,
                   const EngineOptions *options, Engine **engine, Error *err);
void engine_close(Engine *engine); /* NULL is fine */

int engine_context(const Engine *engine); /* most tokens of a sequence */
Session *engine_session(Engine *engine);  /* NULL: none; only for use between two engine_run() */
bool engine_has_batch(const Engine *engine);
/* The request that the session computes; NULL: none. */
const EngineRequest *engine_in_session(const Engine *engine);
int engine_pages_used(const Engine *engine); /* by the batch: 0 outside of engine_run() */
/* If `owner` owns the tokens that the session holds, they have no owner from now on. */
void engine_disown(Engine *engine, const void *owner);

/* Answers all requests. After STATUS_INTERRUPTED or another failure, done() is not called for the requests
 * that had not ended. */
Status engine_run(Engine *engine, const EngineJob *job, Error *err);
