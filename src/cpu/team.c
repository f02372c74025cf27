/* team.c - see team.h.
 *
 * Always true: `round` counts the pieces of work. A thread that has seen it rise reads `work` and `context`,
 *              which change only while all threads wait for the next round. A thread adds itself to
 *              `n_asleep` before it looks at `round` for the last time, and start_round() raises `round`
 *              before it looks at `n_asleep`: so no thread sleeps through a round. */
#include "cpu/team.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/signals.h"

enum {
  LINE = 64,    /* bytes that cores pass on together */
  SPINS = 4096, /* before a waiting thread offers its core to others: some 100 us */
};
static const double awake_ms = 3; /* without work; then threads sleep */

struct Team {
  int n;
  pthread_t *threads; /* [n - 1] */
  int n_threads;      /* that were made */
  TeamWork *work;     /* NULL: threads end */
  void *context;
  pthread_mutex_t lock; /* of `wake` */
  pthread_cond_t wake;
  alignas(LINE) atomic_uint round;
  atomic_int n_asleep;
  alignas(LINE) atomic_uint phase; /* of team_wait(): how often all threads have come there */
  alignas(LINE) atomic_int n_waiting;
};

/* One turn of a loop that waits. */
static void spin(unsigned turn) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
  if (turn >= SPINS) sched_yield(); /* the thread that is waited for may have no core */
}

void team_wait(Team *t) {
  const unsigned phase = atomic_load_explicit(&t->phase, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&t->n_waiting, 1, memory_order_acq_rel) + 1 == t->n) {
    atomic_store_explicit(&t->n_waiting, 0, memory_order_relaxed);
    atomic_store_explicit(&t->phase, phase + 1, memory_order_release);
    return;
  }
  for (unsigned turn = 0; atomic_load_explicit(&t->phase, memory_order_acquire) == phase; turn++) spin(turn);
}

static void sleep_until_after(Team *t, unsigned round) {
  pthread_mutex_lock(&t->lock);
  atomic_fetch_add(&t->n_asleep, 1);
  while (atomic_load(&t->round) == round) pthread_cond_wait(&t->wake, &t->lock);
  atomic_fetch_sub(&t->n_asleep, 1);
  pthread_mutex_unlock(&t->lock);
}

static void wait_for_work(Team *t, unsigned round) {
  double since = 0;
  for (unsigned turn = 0; atomic_load_explicit(&t->round, memory_order_acquire) == round; turn++) {
    spin(turn);
    if (turn % 256 != 255) continue; /* not each turn: reading the clock takes longer than a turn */
    const double now = clock_ms();
    if (since == 0) since = now;
    if (now - since < awake_ms) continue;
    sleep_until_after(t, round);
    return;
  }
}

static void start_round(Team *t, TeamWork *work, void *context) {
  t->work = work;
  t->context = context;
  atomic_fetch_add(&t->round, 1);
  if (atomic_load(&t->n_asleep) == 0) return;
  pthread_mutex_lock(&t->lock);
  pthread_cond_broadcast(&t->wake);
  pthread_mutex_unlock(&t->lock);
}

typedef struct {
  Team *team;
  int me;
} Member;

static void *run_member(void *given) {
  const Member member = *(Member *)given;
  Team *t = member.team;
  free(given);
  for (unsigned round = 0;; round++) {
    wait_for_work(t, round);
    if (!t->work) return NULL;
    t->work(t->context, member.me, t->n);
    team_wait(t);
  }
}

void team_run(Team *t, TeamWork *work, void *context) {
  start_round(t, work, context);
  work(context, 0, t->n);
  team_wait(t);
}

int team_size(int n_threads) {
  return n_threads >= 8 && n_threads >= omp_get_num_procs() ? n_threads - 1 : n_threads;
}

static Status make_thread(Team *t, Error *err) {
  Member *member = mem_alloc(1, sizeof *member, "a thread", err);
  if (!member) return STATUS_FAILED;
  *member = (Member){t, t->n_threads + 1};
  const int failed = pthread_create(&t->threads[t->n_threads], NULL, run_member, member);
  if (!failed) {
    t->n_threads++;
    return STATUS_OK;
  }
  free(member);
  return error_set(err, STATUS_FAILED, "cannot make thread %d of %d: %s", t->n_threads + 2, t->n,
                   strerror(failed));
}

static Status make_threads(Team *t, Error *err) {
  sigset_t before;
  block_signals(&before);
  Status status = STATUS_OK;
  while (!status && t->n_threads < t->n - 1) status = make_thread(t, err);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

Status team_open(int n, Team **out, Error *err) {
  Team *t = aligned_alloc(LINE, sizeof *t);
  *out = NULL;
  if (!t) return error_set(err, STATUS_FAILED, "out of memory for threads");
  *t = (Team){.n = n};
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->wake, NULL);
  t->threads = mem_alloc((size_t)n, sizeof *t->threads, "threads", err);
  if (t->threads && !make_threads(t, err)) {
    *out = t;
    return STATUS_OK;
  }
  team_close(t);
  return STATUS_FAILED;
}

void team_close(Team *t) {
  if (!t) return;
  start_round(t, NULL, NULL);
  for (int i = 0; i < t->n_threads; i++) pthread_join(t->threads[i], NULL);
  pthread_cond_destroy(&t->wake);
  pthread_mutex_destroy(&t->lock);
  free(t->threads);
  free(t);
}
