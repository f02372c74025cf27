/* holder_internal.h - what holder.c (calls and the process) and holder_job.c (their requests in the batch)
 * share. */
#pragma once

#include "commands/keep/holder.h"
#include "commands/keep/wire.h"

/* A connected call. */
typedef struct Caller {
  Wire wire;
  bool greeted;
  int n_running; /* requests in the batch */
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
  bool running;       /* in the batch */
  bool has_mask;
  bool has_forced; /* `forced` is not in the batch yet */
  bool awaits;     /* in lockstep: the call has not said yet what comes next */
  int n_forced;    /* tokens given to the batch that the sink has not had */
  double asked_ms; /* when it began to await */
} Request;

typedef struct Holder {
  Assistant *assistant;
  int keep_seconds;
  Buffer key;
  char *path;  /* of the socket */
  ino_t inode; /* its own; 0: it is not there yet */
  int listener;
  int image; /* the tokenizer's, or -1 */
  bool image_tried;
  bool stops;
  Caller **callers; /* [n_callers] */
  size_t n_callers, callers_capacity;
  Request **requests; /* [n_requests] in the order in which they came */
  size_t n_requests, requests_capacity;
  int n_running;
  uint64_t n_answered;
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

/* Takes what has come on all sockets, and sends what waits to be sent; waits up to `ms` for something. */
Status holder_listen(Holder *holder, int ms, Error *err);
