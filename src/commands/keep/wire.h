/* wire.h - messages between a client (another auk process) and the holder, the process that keeps a
 * model (holder.h), over a unix socket.
 *
 *   WireHead | body [head.size]      a body is structs and arrays as they are in memory, since the key
 *                                    (place.h) makes sure that both processes are of one build; LOOK and
 *                                    STOP need no key, but a STATE of another size cannot be read
 *
 *   a client                          the holder
 *   HELLO key                    ->
 *                                <-   WELCOME state, with the tokenizer's image as a descriptor; or REFUSED
 *   ASK request                  ->                                      any number at a time
 *   REPLY forced tokens, mask    ->   (only in lockstep: before each token, unless forced ones are left)
 *                                <-   PROGRESS, TOKEN ...
 *                                <-   DONE; or REFUSED with the reason, and the end of the connection
 *   CANCEL                       ->   (nothing comes back)
 *   LOOK                         ->
 *                                <-   STATE
 *   STOP                         ->
 *                                <-   STATE; if the holder stops, the connection ends with it */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "engine/request.h"

typedef enum {
  WIRE_HELLO = 1,
  WIRE_WELCOME,
  WIRE_REFUSED,
  WIRE_ASK,
  WIRE_REPLY,
  WIRE_CANCEL,
  WIRE_PROGRESS,
  WIRE_TOKEN,
  WIRE_DONE,
  WIRE_LOOK,
  WIRE_STATE,
  WIRE_STOP,
} WireKind;

typedef struct {
  uint32_t kind, size; /* WireKind; bytes of the body, at most WIRE_LARGEST */
} WireHead;

/* WHOLE_CONTEXT: as many tokens as a process takes by itself, since the prompts are not known yet: a holder
 * whose -c has made its context shorter does not do. */
enum { WHOLE_CONTEXT = -1, WIRE_LARGEST = 1 << 28, WIRE_LARGEST_GREETING = 1 << 20, WIRE_NAME = 256 };

/* WIRE_HELLO; then the key's text. */
typedef struct {
  int32_t keep_seconds; /* new time that an unused holder stays; -1: unchanged */
  int32_t n_ctx;        /* tokens of context that are needed; 0: any; or WHOLE_CONTEXT */
} WireHello;

/* WIRE_ASK; then ids [n_ids], end tokens [n_eos], forced tokens [n_forced]. Fields are as in
 * EngineRequest and GenerateOptions. scores: score() is set; lockstep: allow() or may_force is set. */
typedef struct {
  uint32_t id; /* id of the request, counted by the client */
  int32_t n_ids, n_eos, n_forced, n_scored, n_ctx, max_tokens, n_best;
  bool ignore_eos, scores, lockstep;
  bool alone; /* without a holder the client would compute the request in a session */
  SamplerSettings sampler;
} WireAsk;

/* WIRE_REPLY. The forced tokens [n_forced] follow, then the mask, if has_mask. */
typedef struct {
  uint32_t id;
  int32_t n_forced;
  bool has_mask;
} WireReply;

/* WIRE_CANCEL */
typedef struct {
  uint32_t id;
} WireCancel;

/* WIRE_PROGRESS is for EngineJob.progress, WIRE_DONE for EngineJob.done. WIRE_DONE ends with log_p
 * [n_scored]. */
typedef struct {
  uint32_t id;
  int32_t done, total; /* of WIRE_PROGRESS */
  EngineResult result;
} WireResult;

/* WIRE_TOKEN. The scores [n_best + 1] follow, if the request asks for them. */
typedef struct {
  uint32_t id;
  int32_t token;
  bool forced;
} WireToken;

/* WIRE_STOP */
typedef struct {
  bool if_idle; /* stop only if no client is connected */
} WireStop;

/* WIRE_WELCOME, WIRE_STATE */
typedef struct {
  int32_t pid, n_ctx, n_sequences, vocab_size, n_calls, n_running;
  int32_t keep_seconds, left_seconds; /* left until the holder ends; -1: clients are connected */
  bool stops;                         /* the holder takes no more clients */
  bool guesses;                       /* speculative decoding is on */
  uint64_t n_answered, memory_bytes;
  int64_t since; /* seconds since 1970 */
  char backend[16], model[WIRE_NAME];
} WireState;

/* One end of a connection. */
typedef struct {
  int socket; /* -1: none; it is read and written without blocking */
  Buffer in, out;
  size_t in_used, out_sent;
  size_t largest; /* most bytes of a body; fewer than WIRE_LARGEST before a client has greeted */
  int descriptor; /* the last descriptor received; -1: none */
  bool ended;     /* the other end is gone, or breaks the rules */
} Wire;

Wire wire_on(int socket);
void wire_close(Wire *wire);

/* Queues a message. Its body is `body` [size] and then `more` [more_size], in bytes. */
Status wire_put(Wire *wire, WireKind kind, const void *body, size_t size, const void *more, size_t more_size,
                Error *err);
/* Sends what can be sent now; if the other end is gone, the rest is dropped. */
void wire_send(Wire *wire);
/* wire_send(), with a descriptor attached (-1: none). */
void wire_send_descriptor(Wire *wire, int descriptor);
/* Receives the bytes that are there, up to about a megabyte. Memory grows with received bytes, not with the
 * size that a head announces. If the other end is gone, sets `ended` after the last bytes. */
Status wire_receive(Wire *wire, Error *err);
/* Takes the next complete message; false: there is none. Its body stays valid until the next wire_take() or
 * wire_receive(). A message that is too large sets `ended`. */
bool wire_take(Wire *wire, WireKind *kind, const char **body, size_t *size);
/* Waits up to `ms` milliseconds for a message; false: none came, or memory ran out. A signal ends the
 * wait. */
bool wire_wait(Wire *wire, int ms, WireKind *kind, const char **body, size_t *size, Error *err);
/* True if something is still to be sent. */
bool wire_is_full(const Wire *wire);

/* True if this user runs the process at the other end. *pid is then that process's id. */
bool wire_is_own(int socket, pid_t *pid);
