/* map_claim_life.c - see map_claim_life.h. Called by: map_claim.c. Only the observer's clock counts, from one
 * of its looks to the next. A process whose number has changed between two looks is alive, however long the
 * observer itself was stopped. Each look opens the file anew, which makes NFS ask the server. */
#include "commands/map/map_claim_life.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands/common.h"

enum { SIGN_SIZE = 32, BEATS = 4, LONGEST_LEASE_S = 86400 };

/* --- this process */

struct Life {
  char *path;
  int lease_s;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ending;
  bool ends; /* guarded by `lock` */
};

static Status write_sign(const char *path, unsigned long long number, int lease_s, Error *err) {
  char text[SIGN_SIZE];
  const int size = snprintf(text, sizeof text, "%020llu %05d\n", number, lease_s);
  const int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
  if (descriptor < 0) return system_error(path, "open", err);
  const bool written = pwrite(descriptor, text, (size_t)size, 0) == size;
  if (close(descriptor) == 0 && written) return STATUS_OK; /* close() sends the bytes to an NFS server */
  return system_error(path, "write", err);
}

/* Changes the number until the end. A failed write is ignored: if none succeeds, the lease ends, and other
 * processes take over. */
static void *live(void *given) {
  Life *life = given;
  unsigned long long number = 1;
  pthread_mutex_lock(&life->lock);
  while (!life->ends) {
    const struct timespec until = clock_after(CLOCK_MONOTONIC, life->lease_s * 1e3 / BEATS);
    pthread_cond_timedwait(&life->ending, &life->lock, &until);
    if (!life->ends) write_sign(life->path, ++number, life->lease_s, NULL);
  }
  pthread_mutex_unlock(&life->lock);
  return NULL;
}

/* Starts the thread with all signals blocked, so that the caller's thread gets them. */
static int start_thread(Life *life) {
  pthread_condattr_t attributes;
  sigset_t all, before;
  int failed = pthread_condattr_init(&attributes);
  if (failed) return failed;
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  failed = pthread_cond_init(&life->ending, &attributes);
  pthread_condattr_destroy(&attributes);
  if (failed) return failed;
  pthread_mutex_init(&life->lock, NULL);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  failed = pthread_create(&life->thread, NULL, live, life);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) return 0;
  pthread_mutex_destroy(&life->lock);
  pthread_cond_destroy(&life->ending);
  return failed;
}

Status life_begin(const char *path, int lease_s, Life **out, Error *err) {
  *out = NULL;
  Life *life;
  TRY(NEW(life, 1, "a lease", err));
  life->lease_s = lease_s;
  life->path = mem_alloc(strlen(path) + 1, 1, "a lease", err);
  Status status = life->path ? STATUS_OK : STATUS_FAILED;
  if (status == STATUS_OK) status = write_sign(strcpy(life->path, path), 1, lease_s, err);
  const int failed = status == STATUS_OK ? start_thread(life) : 0;
  if (failed) {
    unlink(path);
    status = error_set(err, STATUS_FAILED, "--claim: cannot start a thread: %s", strerror(failed));
  }
  if (status == STATUS_OK) {
    *out = life;
  } else {
    free(life->path);
    free(life);
  }
  return status;
}

void life_end(Life *life) {
  if (!life) return;
  pthread_mutex_lock(&life->lock);
  life->ends = true;
  pthread_cond_signal(&life->ending);
  pthread_mutex_unlock(&life->lock);
  pthread_join(life->thread, NULL);
  pthread_mutex_destroy(&life->lock);
  pthread_cond_destroy(&life->ending);
  unlink(life->path);
  free(life->path);
  free(life);
}

/* --- the others */

typedef struct {
  char *owner, sign[SIGN_SIZE];
  double since_ms; /* when this sign was first seen */
} Other;

struct Watch {
  double lease_ms;
  Other *others; /* [n] */
  size_t n, capacity;
};

Status watch_open(int lease_s, Watch **out, Error *err) {
  TRY(NEW(*out, 1, "other processes", err));
  (*out)->lease_ms = lease_s * 1e3;
  return STATUS_OK;
}

void watch_close(Watch *watch) {
  for (size_t i = 0; watch && i < watch->n; i++) free(watch->others[i].owner);
  if (watch) free(watch->others);
  free(watch);
}

/* Finds the owner; an owner that was not seen before gets an empty sign. */
static Status find(Watch *w, const char *owner, Other **other, Error *err) {
  for (size_t i = 0; i < w->n; i++)
    if (strcmp((*other = &w->others[i])->owner, owner) == 0) return STATUS_OK;
  TRY(mem_grow(&w->others, &w->capacity, w->n + 1, sizeof *w->others, "other processes", err));
  *other = &w->others[w->n];
  **other = (Other){.owner = mem_alloc(strlen(owner) + 1, 1, "other processes", err)};
  if (!(*other)->owner) return STATUS_FAILED;
  strcpy((*other)->owner, owner);
  (*other)->since_ms = clock_ms();
  w->n++;
  return STATUS_OK;
}

/* The time without a new sign after which the other process is dead. Its own lease counts if that is longer,
 * since it gives its signs as rarely as that lease allows. */
static double lease_ms(const Watch *w, const Other *other) {
  int lease_s = 0;
  if (sscanf(other->sign, "%*20[0-9] %5d", &lease_s) != 1 || lease_s > LONGEST_LEASE_S) lease_s = 0;
  return lease_s * 1e3 > w->lease_ms ? lease_s * 1e3 : w->lease_ms;
}

Status watch_look(Watch *w, const char *owner, const char *path, bool *dead, Error *err) {
  char sign[SIGN_SIZE] = {0};
  Other *other;
  *dead = false;
  TRY(find(w, owner, &other, err));
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a fifo does not block */
  const bool is_gone = descriptor < 0 && errno == ENOENT;
  if (descriptor < 0 || read(descriptor, sign, sizeof sign - 1) < 0) memcpy(sign, other->sign, sizeof sign);
  if (descriptor >= 0) close(descriptor);
  if (memcmp(sign, other->sign, sizeof sign) != 0) {
    memcpy(other->sign, sign, sizeof sign);
    other->since_ms = clock_ms();
  }
  *dead = is_gone || clock_ms() - other->since_ms >= lease_ms(w, other);
  return STATUS_OK;
}
