/* holder_internal.h - shared by holder.c (the process and its clients) and holder_job.c (the clients'
 * requests in the engine). */
#pragma once

#include "commands/keep/holder.h"
#include "commands/keep/wire.h"

/* A client: another auk process, connected by a socket, that asks for answers. */
typedef struct Caller {
  Wire wire;
  bool greeted;
  double heard_ms; /* time of the client's last message, or of its connection if it has sent none */
  int n_running;   /* requests in the engine */
} Caller;

/* A request of a client, waiting or in the engine. */
typedef struct Request {
  struct Holder *holder;
  Caller *caller; /* NULL: the client is gone, or has cancelled the request */
  WireAsk ask;
  int32_t *ids;  /* [ask.n_ids] of the prompt, then [ask.n_eos] end tokens, then [ask.n_forced] forced ones */
  IdList forced; /* forced tokens of the last reply */
  uint64_t *mask;
  TokenScore *scores; /* [ask.n_best + 1] of the next token */
  double *log_p;      /* [ask.n_scored] */
  bool running;       /* in the engine */
  bool has_mask;
  bool has_forced; /* `forced` was not passed to the engine yet */
  bool awaits;     /* in lockstep (wire.h): the client has not said yet what comes next */
  int n_forced;    /* forced tokens that the engine was given and the sink has not received yet */
  double asked_ms; /* when the request began to wait for the reply */
} Request;

typedef struct Holder {
  Assistant *assistant;
  int keep_seconds;
  Buffer key;
  char *path;  /* path of the socket */
  ino_t inode; /* inode of the socket; 0: not made yet */
  int listener;
  int mark;  /* descriptor from keep_mark_holder(), or -1 */
  int image; /* descriptor of the tokenizer's image (tokenizer_image_make()), or -1 */
  bool image_tried;
  bool stops;
  double deaf_until_ms; /* until then no client is accepted: memory or descriptors ran out */
  Caller **callers;     /* [n_callers] */
  size_t n_callers, callers_capacity;
  Request **requests; /* [n_requests] in the order of their arrival */
  size_t n_requests, requests_capacity;
  int n_running;
  uint64_t n_answered;
  uint64_t device_bytes; /* bytes of the device's own memory in use; 0: the device has none */
  int64_t since;
  double used_ms; /* when the last client left; at first, when serving began */
} Holder;

/* Takes a client's message about a request; *broken: the message breaks the rules of wire.h. */
Status holder_take_request(Holder *holder, Caller *caller, WireKind kind, const char *body, size_t size,
                           bool *broken, Error *err);
/* Drops the requests of a client that is gone. */
void holder_drop(Holder *holder, const Caller *caller);
/* Computes until no request is left. */
Status holder_compute(Holder *holder, Error *err);

/* Receives and sends what is possible on all sockets; waits up to `ms` milliseconds for the first event. */
Status holder_listen(Holder *holder, int ms, Error *err);
