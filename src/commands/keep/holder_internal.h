/* holder_internal.h - what holder.c (calls and the process), holder_job.c (their requests, in the batch) and
 * holder_session.c (the request of a call that is alone) share. */
#pragma once

#include "commands/keep/holder.h"
#include "commands/keep/wire.h"

/* A connected call. */
typedef struct Caller {
  Wire wire;
  bool greeted;
  double heard_ms; /* time of the caller's last message, at first of its connection */
  int n_running;   /* requests in the batch or the session */
} Caller;

/* A request of a call, waiting or in the batch. */
typedef struct Request {
  struct Holder *holder;
  Caller *caller; /* NULL: the call is gone, or has cancelled the request */
  WireAsk ask;
  int32_t *ids;  /* [ask.n_ids] of the prompt, then [ask.n_eos] end tokens, then [ask.n_forced] forced ones */
  IdList forced; /* forced tokens of the last reply */
  uint64_t *mask;
  TokenScore *scores; /* [ask.n_best + 1] of the next token */
  double *log_p;      /* [ask.n_scored] */
  bool running;       /* in the batch or the session */
  bool has_mask;
  bool has_forced; /* `forced` is not in the batch yet */
  bool awaits;     /* in lockstep: the call has not said yet what comes next */
  int n_forced;    /* forced tokens that the batch was given and the sink has not received yet */
  double asked_ms; /* when the request began to wait for the reply */
} Request;

/* The request in the session, and what the session holds. */
typedef struct {
  Request *request; /* NULL: none */
  BatchRequest asked;
  BatchResult result;
  bool has_prompt, generates;
  Generating generating;
  double start_ms;
  int first;       /* tokens of the prompt that the session had already */
  int n_calls;     /* calls of prefilling() in this part of the prompt */
  Status listened; /* result of holder_listen() in prefilling() */
  Error err;       /* error of `listened` */

  const Caller *owner; /* the call whose last text the session holds; NULL: the call is gone */
  int n_plain;         /* how many tokens of the session, from the first on, were computed as a prompt */
  bool scored;         /* the session has the logits after its tokens, and has scored continuations */
} Alone;

typedef struct Holder {
  Assistant *assistant;
  int keep_seconds;
  Buffer key;
  char *path;  /* path of the socket */
  ino_t inode; /* inode of the socket; 0: not made yet */
  int listener;
  int mark;  /* descriptor from keep_mark_holder(), or -1 */
  int image; /* descriptor of the tokenizer's image, or -1 */
  bool image_tried;
  bool stops;
  double deaf_until_ms; /* no call is accepted until then, since descriptors ran out */
  Caller **callers;     /* [n_callers] */
  size_t n_callers, callers_capacity;
  Request **requests; /* [n_requests] in the order of their arrival */
  size_t n_requests, requests_capacity;
  int n_running;
  Alone alone;
  uint64_t n_answered;
  uint64_t device_bytes; /* bytes of the device's own memory in use; 0: the device has none */
  int64_t since;
  double used_ms; /* when the last call left */
} Holder;

/* Takes a call's message about a request; *broken: the message breaks the rules of wire.h. */
Status holder_take_request(Holder *holder, Caller *caller, WireKind kind, const char *body, size_t size,
                           bool *broken, Error *err);
/* Drops the requests of a call that is gone. */
void holder_drop(Holder *holder, const Caller *caller);
/* Computes until no request is left. */
Status holder_compute(Holder *holder, Error *err);

/* Ends a request: sends the result to its call, and frees the request. */
Status holder_done(Holder *holder, const BatchRequest *request, const BatchResult *result, Error *err);
/* Reports the progress of a prompt to the request's call, with n_reused and prefill_ms of the result. */
void holder_put_progress(const Request *request, const BatchResult *result, int done, int total);

/* Begins a request in the session. PRECOND the session has none. An invalid request fails alone. */
Status holder_session_take(Holder *holder, Request *r, const BatchRequest *request, Error *err);
/* Computes a step of the session's request, if there is one and it does not await its call. A failure that is
 * no mistake in the request is reported to its call, and ends the holder. */
Status holder_session_step(Holder *holder, Error *err);
/* True if holder_session_step() would compute something. */
bool holder_session_may_go(const Holder *holder);
/* Notes that a call is gone: what the session holds belongs to no call. */
void holder_session_disown(Holder *holder, const Caller *caller);

/* Receives and sends what is possible on all sockets; waits up to `ms` milliseconds for the first event. */
Status holder_listen(Holder *holder, int ms, Error *err);
