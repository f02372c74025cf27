/* holder_internal.h - what holder.c (calls and the process), holder_job.c (their requests, in the batch) and
 * holder_session.c (the request of a call that is alone) share. */
#pragma once

#include "commands/keep/holder.h"
#include "commands/keep/wire.h"

/* A connected call. */
typedef struct Caller {
  Wire wire;
  bool greeted;
  double heard_ms; /* its last message before it greeted; at first, when it connected */
  int n_running;   /* requests in the batch or the session */
} Caller;

/* A request of a call, waiting or in the batch. */
typedef struct Request {
  struct Holder *holder;
  Caller *caller; /* NULL: it is gone, or has cancelled the request */
  WireAsk ask;
  int32_t *ids;  /* [ask.n_ids] then [ask.n_eos], then [ask.n_forced] */
  IdList forced; /* of the last reply */
  uint64_t *mask;
  TokenScore *scores; /* [ask.n_best + 1] of the next token */
  double *log_p;      /* [ask.n_scored] */
  bool running;       /* in the batch or the session */
  bool has_mask;
  bool has_forced; /* `forced` is not in the batch yet */
  bool awaits;     /* in lockstep: the call has not said yet what comes next */
  int n_forced;    /* tokens given to the batch that the sink has not had */
  double asked_ms; /* when it began to await */
} Request;

/* The request in the session, and what the session holds. */
typedef struct {
  Request *request; /* NULL: none */
  BatchRequest asked;
  BatchResult result;
  bool has_prompt, generates;
  Generating generating;
  double start_ms;
  int first;   /* tokens of the prompt that were there */
  int n_calls; /* of the progress function, in this part of the prompt */
  Status listened;
  Error err; /* of `listened` */

  const Caller *owner; /* whose last text the session holds; NULL: it is gone */
  int n_plain;         /* so many of its tokens were computed as a prompt, from the first on */
  bool scored;         /* it has the logits after its tokens, and has scored what may follow */
} Alone;

typedef struct Holder {
  Assistant *assistant;
  int keep_seconds;
  Buffer key;
  char *path;  /* of the socket */
  ino_t inode; /* its own; 0: it is not there yet */
  int listener;
  int mark;  /* keep_mark_holder(), or -1 */
  int image; /* the tokenizer's, or -1 */
  bool image_tried;
  bool stops;
  double deaf_until_ms; /* no descriptors were left: until then none is accepted */
  Caller **callers;     /* [n_callers] */
  size_t n_callers, callers_capacity;
  Request **requests; /* [n_requests] in the order in which they came */
  size_t n_requests, requests_capacity;
  int n_running;
  Alone alone;
  uint64_t n_answered;
  uint64_t device_bytes; /* of a device's own memory */
  int64_t since;
  double used_ms; /* when the last call left */
} Holder;

/* Takes a message of a call that concerns a request; a broken one sets *broken. */
Status holder_take_request(Holder *holder, Caller *caller, WireKind kind, const char *body, size_t size,
                           bool *broken, Error *err);
/* Drops the requests of a call that is gone. */
void holder_drop(Holder *holder, const Caller *caller);
/* Computes until no request is left. */
Status holder_compute(Holder *holder, Error *err);

/* A request is done: its call gets the result, and the request is dropped. */
Status holder_done(Holder *holder, const BatchRequest *request, const BatchResult *result, Error *err);
/* Reports a part of the prompt to the request's call, with n_reused and prefill_ms of the result. */
void holder_put_progress(const Request *request, const BatchResult *result, int done, int total);

/* Begins a request in the session, which has none. A mistake in it is its own. */
Status holder_session_take(Holder *holder, Request *r, const BatchRequest *request, Error *err);
/* Computes a step of the session's request, if there is one and it does not await its call. A failure that is
 * no mistake in the request is reported to its call, and ends the holder. */
Status holder_session_step(Holder *holder, Error *err);
/* True if that would compute something. */
bool holder_session_may_go(const Holder *holder);
/* The call is gone: what the session holds belongs to no call. */
void holder_session_disown(Holder *holder, const Caller *caller);

/* Takes what has come on all sockets, and sends what waits to be sent; waits up to `ms` for something. */
Status holder_listen(Holder *holder, int ms, Error *err);
