/* one.h - the schedule of a single sequence: one request at a time in a session. Steps, guesses and bits are
 * those of a process that computes nothing else. The states are a request's (request.h, RunState).
 *
 * A step (one_step()) computes a chunk of the prompt, all scores, or one token of the answer; between two
 * steps the caller may compute something else. A failure of the device or an interruption of the job is
 * returned to the caller, who then calls one_drop().
 *
 * Asynchronous decode keeps up to two tokens enqueued: the device computes one token while the host shows
 * another. Tokens and random numbers are those of synchronous decode. */
#pragma once

#include "engine/request.h"
#include "engine/session.h"

/* A store of prompts outside of the session, for --cache. */
typedef struct {
  void *user;
  /* Puts stored keys and values of a prefix of ids[0 .. n) into the session; may do nothing. */
  void (*restore)(void *user, Session *session, const int32_t *ids, int n);
  /* Called when the session's first n tokens are a whole prompt. */
  void (*prefilled)(void *user, int n);
} PromptStore;

typedef struct {
  Session *session;
  PromptStore store;    /* functions may be NULL */
  const EngineJob *job; /* of the current step */
  Running run;
  int first;         /* tokens of the prompt that the session had */
  const void *owner; /* the owner of the session's text */
  int n_plain;       /* how many tokens of the session, from the first on, were computed as a prompt */
} One;               /* starts zeroed except session and store */

/* Begins a request. An invalid request fails alone: done() gets its error. PRECOND run.state is RUN_ENDED */
Status one_begin(One *one, const EngineJob *job, const EngineRequest *request, Error *err);
/* Computes one step of the request. *idle: nothing was computed, since its turn() said TURN_WAIT. PRECOND
 * run.state is not RUN_ENDED */
Status one_step(One *one, const EngineJob *job, bool *idle, Error *err);
/* Drops the request, if there is one, without done(). */
void one_drop(One *one);

/* Generates the whole answer to the session's text, from its last logits on. PRECOND session_sync() */
Status generate(Session *session, const GenerateOptions *options, TokenSink sink, void *user,
                GenerateResult *result, Error *err);
