/* ranks.c - see ranks.h. */
#include "cuda/several/ranks.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/several/nccl.h"
#include "model/slice.h"

enum { ALIVE_MS = 1000, LOOK_MS = 100, REASON_MS = 3000 };

/* Messages. The first two go both ways, the next two to rank 0, the rest from rank 0. */
typedef enum {
  SAYS_ALIVE = 1, /* nothing else was sent for a while */
  SAYS_FACTS,     /* RankFacts, lines; from rank 0 without bytes: all agree */
  SAYS_LOADED,    /* the rank's part of the model is loaded */
  SAYS_FAILED,    /* int status, reason */
  SAYS_JOIN,      /* NcclId */
  SAYS_CALL,
  SAYS_END, /* int: STATUS_OK, or the status with which all end */
} Says;

typedef struct Message {
  struct Message *next;
  uint32_t kind;
  size_t size;
  char bytes[];
} Message;

struct Ranks {
  RanksOptions options;
  int rank, n;
  Link links[MAX_SPLIT]; /* rank 0: to each other rank; others: to rank 0, at [0] */
  pthread_t watcher;
  atomic_bool ending;
  pthread_mutex_t lock; /* guards all below, except numbers */
  pthread_cond_t came;
  Message *first[MAX_SPLIT], **last[MAX_SPLIT]; /* each link's queue of messages that take() has not taken */
  bool lost;
  Error why;
  Reduce *nccl;
  bool numbers[RANKS_NUMBERS]; /* true: a session has it; only the thread that opens sessions uses these */
  bool joining;                /* a thread waits in NCCL for ranks that join */
};

int ranks_rank(const Ranks *r) {
  return r->rank;
}

/* --- the watching thread */

/* On ranks other than 0 the reason begins with this process's rank: rank 0, which otherwise adds it, may be
 * gone. */
static void note_loss(Ranks *r, int from, const char *reason) {
  char who[32] = "";
  if (r->rank > 0) snprintf(who, sizeof who, "rank %d: ", r->rank);
  error_set(&r->why, STATUS_FAILED, "%srank %d on %s: %s", who, from, r->links[from].host, reason);
}

/* Notes that a rank is lost, and ends every wait for a rank. Then rank 0 ends the other ranks; if it waits in
 * NCCL for ranks to join, it also ends itself. Any other rank ends itself. */
static void lose(Ranks *r, int from, const char *reason) {
  pthread_mutex_lock(&r->lock);
  const bool first = !r->lost, joining = r->joining;
  if (first) note_loss(r, from, reason);
  r->lost = true;
  nccl_abort(r->nccl);
  pthread_cond_broadcast(&r->came);
  pthread_mutex_unlock(&r->lock);
  if (!first) return;
  const int status = STATUS_FAILED;
  for (int i = 1; i < r->n && r->rank == 0; i++)
    if (i != from) link_send(&r->links[i], SAYS_END, &status, sizeof status, NULL, 0, true);
  if (r->rank > 0 || joining) r->options.end(r->options.said, STATUS_FAILED, r->why.text);
}

/* Keeps a message for the thread that waits for it. */
static void keep(Ranks *r, int from, uint32_t kind, const char *bytes, size_t size) {
  Message *message = malloc(sizeof *message + size);
  if (!message) {
    lose(r, from, "no memory for a message");
    return;
  }
  *message = (Message){.kind = kind, .size = size};
  memcpy(message->bytes, bytes, size);
  pthread_mutex_lock(&r->lock);
  *r->last[from] = message;
  r->last[from] = &message->next;
  pthread_cond_broadcast(&r->came);
  pthread_mutex_unlock(&r->lock);
}

static void heed(Ranks *r, int from, uint32_t kind, const char *bytes, size_t size) {
  int status = STATUS_FAILED;
  if (kind == SAYS_ALIVE) return;
  if (kind == SAYS_END && size == sizeof status) {
    memcpy(&status, bytes, sizeof status);
    r->options.end(r->options.said, (Status)status, NULL);
  }
  if (kind != SAYS_FAILED || size < sizeof status) {
    keep(r, from, kind, bytes, size);
    return;
  }
  Error reason;
  error_set(&reason, STATUS_FAILED, "%.*s", (int)(size - sizeof status), bytes + sizeof status);
  lose(r, from, reason.text);
}

static void read_link(Ranks *r, int from) {
  Link *link = &r->links[from];
  const char *bytes;
  uint32_t kind;
  size_t size, used = 0;
  const bool there = link_receive(link);
  while (link_next(link, &kind, &bytes, &size, &used)) heed(r, from, kind, bytes, size);
  link_drop(link, used);
  if (link->is_forged) lose(r, from, "a message was changed on the way, or another process has sent it");
  if (!there && !r->ending) lose(r, from, "it has ended");
}

static void *watch(void *user) {
  Ranks *r = user;
  const int begin = r->rank == 0 ? 1 : 0, end = r->rank == 0 ? r->n : 1;
  double said_ms = 0;
  while (!r->ending) {
    struct pollfd ready[MAX_SPLIT];
    for (int i = begin; i < end; i++) ready[i] = (struct pollfd){.fd = r->links[i].socket, .events = POLLIN};
    poll(ready + begin, (nfds_t)(end - begin), LOOK_MS);
    const double now = clock_ms();
    for (int i = begin; i < end && !r->ending && !r->lost; i++) {
      if (ready[i].revents) read_link(r, i);
      if (now - r->links[i].heard_ms > r->options.link.timeout_s * 1e3) {
        char reason[64];
        snprintf(reason, sizeof reason, "no sign of life for %d s", r->options.link.timeout_s);
        lose(r, i, reason);
      }
    }
    if (r->lost) {
      usleep(LOOK_MS * 1000);
      continue;
    }
    if (now - said_ms < ALIVE_MS) continue;
    said_ms = now;
    for (int i = begin; i < end; i++) link_send(&r->links[i], SAYS_ALIVE, NULL, 0, NULL, 0, true);
  }
  return NULL;
}

/* --- messages */

static Status report_lost(const Ranks *r, Error *err) {
  return error_set(err, STATUS_FAILED, "%s", r->why.text);
}

/* Waits for the next message of rank `from`; fails if that is not of kind `kind`. The caller frees it. */
static Status take(Ranks *r, int from, uint32_t kind, Message **taken, Error *err) {
  pthread_mutex_lock(&r->lock);
  while (!r->first[from] && !r->lost) pthread_cond_wait(&r->came, &r->lock);
  Message *message = r->lost ? NULL : r->first[from];
  if (message) {
    r->first[from] = message->next;
    if (!message->next) r->last[from] = &r->first[from];
  }
  pthread_mutex_unlock(&r->lock);
  *taken = NULL;
  if (!message) return report_lost(r, err);
  if (message->kind == kind) {
    *taken = message;
    return STATUS_OK;
  }
  free(message);
  return error_set(err, STATUS_FAILED, "rank %d on %s: an unexpected message", from, r->links[from].host);
}

/* Sends a message. If the connection is gone, the watching thread notices that, and knows the reason. */
static Status say(Ranks *r, int to, Says kind, const void *a, size_t a_size, const void *b, size_t b_size,
                  Error *err) {
  if (a_size + b_size > LINK_LARGEST)
    return error_set(err, STATUS_FAILED, "a message to the ranks is too large");
  if (link_send(&r->links[to], kind, a, a_size, b, b_size, false)) return STATUS_OK;
  TRY(ranks_check(r, true, err));
  return error_set(err, STATUS_FAILED, "rank %d on %s: it has ended", to, r->links[to].host);
}

static Status say_to_all(Ranks *r, Says kind, const void *a, size_t a_size, const void *b, size_t b_size,
                         Error *err) {
  for (int i = 1; i < r->n; i++) TRY(say(r, i, kind, a, a_size, b, b_size, err));
  return STATUS_OK;
}

Status ranks_check(Ranks *r, bool failed, Error *err) {
  const struct timespec end = clock_after(CLOCK_REALTIME, failed ? REASON_MS : 0);
  pthread_mutex_lock(&r->lock);
  while (failed && !r->lost && pthread_cond_timedwait(&r->came, &r->lock, &end) == 0) {
  }
  const bool lost = r->lost;
  pthread_mutex_unlock(&r->lock);
  return lost ? report_lost(r, err) : STATUS_OK;
}

/* --- from the beginning to the end */

static void close_ranks(Ranks *r) {
  for (int i = 0; i < MAX_SPLIT; i++) {
    link_close(&r->links[i]);
    while (r->first[i]) {
      Message *next = r->first[i]->next;
      free(r->first[i]);
      r->first[i] = next;
    }
  }
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->came);
  free(r);
}

RELEASE_BY(ranks_release, Ranks, close_ranks)

Status ranks_join(const RanksOptions *options, Ranks **out, Error *err) {
  *out = NULL;
  OWNED(ranks_release) Ranks *r = NULL;
  TRY(NEW(r, 1, "ranks", err));
  r->options = *options;
  r->rank = options->link.rank;
  r->n = options->link.n;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->came, NULL);
  for (int i = 0; i < MAX_SPLIT; i++) {
    r->links[i].socket = -1;
    r->last[i] = &r->first[i];
  }
  TRY(r->rank == 0 ? link_listen(&options->link, r->links, err)
                   : link_connect(&options->link, &r->links[0], err));
  if (pthread_create(&r->watcher, NULL, watch, r) != 0)
    return error_set(err, STATUS_FAILED, "--split auto: no thread to watch the ranks");
  *out = TAKE(r);
  return STATUS_OK;
}

/* The error of a rank whose messages are not this build's. */
static Status report_build(const Ranks *r, int from, Error *err) {
  return error_set(err, STATUS_FAILED, "rank %d on %s is another build of auk than rank %d", from,
                   r->links[from].host, r->rank);
}

/* Compares the lines of another rank, "name: value" each, with rank 0's lines. */
static Status compare(const Ranks *r, int from, const char *own, const char *other, Error *err) {
  while (*own && *other) {
    const size_t n = strcspn(own, "\n"), n_other = strcspn(other, "\n"), name = strcspn(own, ":\n") + 2;
    if (n != n_other || memcmp(own, other, n) != 0)
      return error_set(err, STATUS_FAILED,
                       "rank %d on %s differs from rank 0 in its %.*s: %.*s in place of %.*s", from,
                       r->links[from].host, (int)(name - 2), own, n_other > name ? (int)(n_other - name) : 0,
                       n_other > name ? other + name : other, n > name ? (int)(n - name) : 0, own + name);
    own += n + (own[n] == '\n');
    other += n_other + (other[n_other] == '\n');
  }
  return *own || *other ? report_build(r, from, err) : STATUS_OK;
}

Status ranks_agree(Ranks *r, const RankFacts *facts, const char *lines, size_t *least_free, Error *err) {
  RankFacts all[MAX_SPLIT] = {*facts};
  *least_free = facts->free_bytes;
  if (r->rank > 0) {
    OWNED(mem_release) Message *message = NULL;
    TRY(say(r, 0, SAYS_FACTS, facts, sizeof *facts, lines, strlen(lines) + 1, err));
    return take(r, 0, SAYS_FACTS, &message, err);
  }
  for (int i = 1; i < r->n; i++) {
    OWNED(mem_release) Message *message = NULL;
    TRY(take(r, i, SAYS_FACTS, &message, err));
    if (message->size <= sizeof all[i] || message->bytes[message->size - 1] != 0)
      return report_build(r, i, err);
    memcpy(&all[i], message->bytes, sizeof all[i]);
    TRY(compare(r, i, lines, message->bytes + sizeof all[i], err));
    if (all[i].free_bytes < *least_free) *least_free = all[i].free_bytes;
    for (int k = 0; k < i; k++)
      if (memcmp(all[i].gpu, all[k].gpu, sizeof all[k].gpu) == 0)
        return error_set(
            err, STATUS_FAILED,
            "ranks %d and %d use the same GPU of %s: each needs its own (--gpus-per-task=1, or as many "
            "processes as GPUs)",
            k, i, r->links[i].host);
  }
  return say_to_all(r, SAYS_FACTS, NULL, 0, NULL, 0, err);
}

static Status exchange_id(Ranks *r, NcclId *id, Error *err) {
  if (r->rank > 0) {
    OWNED(mem_release) Message *message = NULL;
    TRY(say(r, 0, SAYS_LOADED, NULL, 0, NULL, 0, err));
    TRY(take(r, 0, SAYS_JOIN, &message, err));
    if (message->size != sizeof *id) return report_build(r, 0, err);
    memcpy(id, message->bytes, sizeof *id);
    return STATUS_OK;
  }
  for (int i = 1; i < r->n; i++) {
    OWNED(mem_release) Message *message = NULL;
    TRY(take(r, i, SAYS_LOADED, &message, err));
  }
  TRY(nccl_make_id(id, err));
  return say_to_all(r, SAYS_JOIN, id, sizeof *id, NULL, 0, err);
}

static void set_joining(Ranks *r, bool joining, Reduce *nccl) {
  pthread_mutex_lock(&r->lock);
  r->joining = joining;
  r->nccl = nccl;
  pthread_mutex_unlock(&r->lock);
}

Status ranks_join_nccl(Ranks *r, Reduce **nccl, Error *err) {
  NcclId id = {{0}};
  *nccl = NULL;
  TRY(exchange_id(r, &id, err));
  set_joining(r, true, NULL);
  const Status status = nccl_join(&id, r->rank, r->n, nccl, err);
  set_joining(r, false, *nccl);
  return status ? status : ranks_check(r, false, err);
}

int ranks_take_number(Ranks *r) {
  for (int i = 0; i < RANKS_NUMBERS; i++)
    if (!r->numbers[i]) {
      r->numbers[i] = true;
      return i;
    }
  return -1;
}

void ranks_give_number(Ranks *r, int number) {
  r->numbers[number] = false;
}

void ranks_forget_nccl(Ranks *r) {
  set_joining(r, false, NULL);
}

Status ranks_tell(Ranks *r, const void *a, size_t a_size, const void *b, size_t b_size, Error *err) {
  TRY(ranks_check(r, false, err));
  return say_to_all(r, SAYS_CALL, a, a_size, b, b_size, err);
}

Status ranks_take_call(Ranks *r, Buffer *call, Error *err) {
  OWNED(mem_release) Message *message = NULL;
  TRY(take(r, 0, SAYS_CALL, &message, err));
  call->size = 0;
  return buffer_append(call, message->bytes, message->size, err);
}

void ranks_report(Ranks *r, Status status, const Error *reason) {
  const int number = (int)status;
  const bool sent =
      link_send(&r->links[0], SAYS_FAILED, &number, sizeof number, reason->text, strlen(reason->text), false);
  if (sent) sleep((unsigned)r->options.link.timeout_s); /* rank 0 ends this process meanwhile */
  r->options.end(r->options.said, status, sent ? NULL : reason->text);
}

void ranks_end(Ranks *r) {
  if (!r) return;
  pthread_mutex_lock(&r->lock);
  const bool lost = r->lost;
  pthread_mutex_unlock(&r->lock);
  const int status = lost ? STATUS_FAILED : STATUS_OK;
  r->ending = true;
  for (int i = 1; i < r->n && r->rank == 0; i++)
    link_send(&r->links[i], SAYS_END, &status, sizeof status, NULL, 0, lost);
  pthread_join(r->watcher, NULL);
  close_ranks(r);
}
