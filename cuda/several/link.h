/* link.h - connections between the processes that share a model: rank 0 listens, and each other rank
 * connects.
 *
 * Called by: ranks.c. Both ends prove that they have the key and are of the same job before anything else is
 * sent. A message is a kind, a size, as many bytes, and an HMAC of all this and of the message's number. Each
 * direction of a connection has a key of its own. A message is refused if it was changed, repeated or sent on
 * another connection, or if it follows a gap. Nothing is encrypted. All processes are of one build, so a
 * message's bytes are structs as they are in memory. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "cuda/several/sha256.h"

enum { LINK_HOST = 64, LINK_LARGEST = 1 << 26 };

/* How a process finds the other processes, and what it has to prove. */
typedef struct {
  const char *host;  /* of rank 0 */
  int port, n_ports; /* rank 0 listens on the first free one of n_ports from `port` on */
  bool here;         /* all ranks are on this machine: rank 0 listens only on the loopback interface */
  const char *job;   /* text that other jobs of the same user do not have */
  uint8_t key[SHA256_BYTES];
  int rank, n;
  int timeout_s;             /* the longest time to connect, and the longest without a sign of life */
  bool (*interrupted)(void); /* true ends the wait for other ranks */
} LinkOptions;

/* One end of a connection. */
typedef struct {
  int socket;           /* -1: none */
  char host[LINK_HOST]; /* the other end's */
  pthread_mutex_t sending;
  HmacKey out_key, in_key;
  uint64_t n_sent, n_taken; /* numbers of the next messages to send and to take */
  bool is_forged;           /* a message was not the other end's next one: no more are taken */
  Buffer in;
  double heard_ms;
} Link;

/* Rank 0: waits until ranks 1 .. n - 1 are connected to links[1 .. n). */
Status link_listen(const LinkOptions *options, Link *links, Error *err);
/* Another rank: connects to rank 0 as soon as that listens. */
Status link_connect(const LinkOptions *options, Link *link, Error *err);
void link_close(Link *link);

/* Sends a message whose bytes are a, then b. False: it has more than LINK_LARGEST bytes, or the other end is
 * gone or reads nothing for timeout_s. only_now: if another thread is sending, sends nothing and returns
 * true. */
bool link_send(Link *link, uint32_t kind, const void *a, size_t a_size, const void *b, size_t b_size,
               bool only_now);
/* Receives bytes that have come, at most 64 KB; false if the other end is gone, or memory ran out. */
bool link_receive(Link *link);
/* Takes the next complete message, which begins at received byte *used, and moves *used past the message. The
 * bytes stay until link_receive() or link_drop(). False: there is no message, or link->is_forged. */
bool link_next(Link *link, uint32_t *kind, const char **bytes, size_t *size, size_t *used);
void link_drop(Link *link, size_t used); /* drops the first `used` bytes received */
