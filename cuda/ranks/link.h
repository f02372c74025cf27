/* link.h - connections between the processes that share a model: rank 0 listens, each other one connects.
 *
 * Called by: ranks.c. Both ends prove that they have the key and are of the same job before anything else is
 * sent; what follows is neither encrypted nor signed. A message is a kind, a size, and as many bytes; all
 * processes are of one build, so its bytes are structs as they are in memory. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "cuda/ranks/sha256.h"

enum { LINK_HOST = 64, LINK_LARGEST = 1 << 26 };

/* Who connects to whom. */
typedef struct {
  const char *host;  /* of rank 0 */
  int port, n_ports; /* it listens on the first one that is free */
  bool here;         /* all ranks are on this machine: it listens on the loopback alone */
  const char *job;   /* text that other jobs of the same user do not have */
  uint8_t key[SHA256_BYTES];
  int rank, n;
  int timeout_s;             /* for connecting, and without a sign of life */
  bool (*interrupted)(void); /* ends the wait for others */
} LinkPlace;

/* One end of a connection. */
typedef struct {
  int socket;           /* -1: none */
  char host[LINK_HOST]; /* the other end's */
  pthread_mutex_t sending;
  Buffer in;
  double heard_ms;
} Link;

/* Rank 0: waits until ranks 1 .. n - 1 are connected to links[1 .. n). */
Status link_listen(const LinkPlace *place, Link *links, Error *err);
/* Another rank: connects to rank 0, which may not listen yet. */
Status link_connect(const LinkPlace *place, Link *link, Error *err);
void link_close(Link *link);

/* Sends a message of two parts; false if the other end is gone. With `only_now` nothing is sent while another
 * thread is sending. */
bool link_send(Link *link, uint32_t kind, const void *a, size_t a_size, const void *b, size_t b_size,
               bool only_now);
/* Receives what is there; false if the other end is gone. */
bool link_receive(Link *link);
/* Takes the next complete message out of what was received: its bytes stay until the next call. */
bool link_next(Link *link, uint32_t *kind, const char **bytes, size_t *size, size_t *used);
void link_drop(Link *link, size_t used); /* what link_next() has given */
