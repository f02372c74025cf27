/* team.c - see team.h.
 *
 * Always true: `round` counts the jobs. `work`, `context` and `n` are written only after every thread has
 *              reached the last barrier of the previous job. A thread that waits for `round` or `phase` to
 *              change increments `n_asleep` before it last reads that number. raise_number() changes the
 *              number before it reads `n_asleep`. So no thread sleeps through a change. */
#include "cpu/team.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/signals.h"

enum {
  LINE = 64,       /* bytes of a cache line */
  STACK = 1 << 20, /* least bytes of a thread's stack; the kernels use a tenth of it */
};

/* A waiting thread first spins, then yields its core for awake_ms, then sleeps. If a yield took lost_ms or
 * more, cores are scarce: a spinning thread may keep the awaited thread from running. So for crowded_ms
 * waiting threads spin only SHORT_SPINS times, and then sleep without yielding. */
#if defined(__x86_64__)
enum { SPINS = 4096, SHORT_SPINS = 256 }; /* a spin takes some 25 ns */
#else
enum { SPINS = 1 << 16, SHORT_SPINS = 4096 }; /* a spin takes a few ns */
#endif
static const double awake_ms = 3, lost_ms = 1, crowded_ms = 200;

struct Team {
  int n;
  pthread_t *threads; /* [n - 1] */
  TeamWork *work;     /* NULL: threads end */
  void *context;
  pthread_mutex_t lock; /* for `wake` */
  pthread_cond_t wake;
  _Atomic double crowded_until; /* clock_ms() until which waits are short */
  alignas(LINE) atomic_uint round;
  atomic_int n_asleep;
  alignas(LINE) atomic_uint phase; /* number of barriers that all threads have reached */
  alignas(LINE) atomic_int n_waiting;
};

static void spin(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void sleep_while(Team *t, atomic_uint *number, unsigned is) {
  pthread_mutex_lock(&t->lock);
  atomic_fetch_add(&t->n_asleep, 1);
  while (atomic_load(number) == is) pthread_cond_wait(&t->wake, &t->lock);
  atomic_fetch_sub(&t->n_asleep, 1);
  pthread_mutex_unlock(&t->lock);
}

static void wait_while(Team *t, atomic_uint *number, unsigned is) {
  const double begin = clock_ms();
  const bool crowded = begin < atomic_load_explicit(&t->crowded_until, memory_order_relaxed);
  for (int turn = 0; turn < (crowded ? SHORT_SPINS : SPINS); turn++) {
    if (atomic_load_explicit(number, memory_order_acquire) != is) return;
    spin();
  }
  for (double now = clock_ms(); !crowded && now - begin < awake_ms;) {
    const double before = now;
    if (atomic_load_explicit(number, memory_order_acquire) != is) return;
    sched_yield();
    now = clock_ms();
    if (now - before < lost_ms) continue;
    atomic_store_explicit(&t->crowded_until, now + crowded_ms, memory_order_relaxed);
    break;
  }
  sleep_while(t, number, is);
}

/* Adds 1 to *number, and wakes all threads that sleep. */
static void raise_number(Team *t, atomic_uint *number) {
  atomic_fetch_add(number, 1);
  if (atomic_load(&t->n_asleep) == 0) return;
  pthread_mutex_lock(&t->lock);
  pthread_cond_broadcast(&t->wake);
  pthread_mutex_unlock(&t->lock);
}

void team_wait(Team *t) {
  const unsigned phase = atomic_load_explicit(&t->phase, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&t->n_waiting, 1, memory_order_acq_rel) + 1 < t->n) {
    wait_while(t, &t->phase, phase);
    return;
  }
  atomic_store_explicit(&t->n_waiting, 0, memory_order_relaxed);
  raise_number(t, &t->phase);
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
    wait_while(t, &t->round, round);
    if (!t->work) return NULL;
    t->work(t->context, member.me, t->n);
    team_wait(t);
  }
}

static void begin_round(Team *t, TeamWork *work, void *context) {
  t->work = work;
  t->context = context;
  raise_number(t, &t->round);
}

void team_run(Team *t, TeamWork *work, void *context) {
  begin_round(t, work, context);
  work(context, 0, t->n);
  team_wait(t);
}

int team_size(int n_threads) {
  return n_threads >= 8 && n_threads >= omp_get_num_procs() ? n_threads - 1 : n_threads;
}

/* Returns false if there is no memory for a thread, or the process has as many as it is allowed. */
static bool add_thread(Team *t, const pthread_attr_t *attributes) {
  Member *member = malloc(sizeof *member);
  if (!member) return false;
  *member = (Member){t, t->n};
  if (pthread_create(&t->threads[t->n - 1], attributes, run_member, member) == 0) {
    t->n++;
    return true;
  }
  free(member);
  return false;
}

static void add_threads(Team *t, int n) {
  pthread_attr_t attributes;
  sigset_t before;
  size_t stack;
  if (pthread_attr_init(&attributes)) return;
  if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < STACK)
    pthread_attr_setstacksize(&attributes, STACK);
  block_signals(&before);
  while (t->n < n && add_thread(t, &attributes)) continue;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

Status team_open(int n, Team **out, Error *err) {
  Team *t = *out = aligned_alloc(LINE, sizeof *t);
  if (!t) return error_set(err, STATUS_FAILED, "out of memory for threads");
  *t = (Team){.n = 1};
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->wake, NULL);
  t->threads = mem_alloc((size_t)n, sizeof *t->threads, "threads", err);
  if (t->threads) {
    add_threads(t, n);
    return STATUS_OK;
  }
  team_close(t);
  *out = NULL;
  return STATUS_FAILED;
}

void team_close(Team *t) {
  if (!t) return;
  begin_round(t, NULL, NULL);
  for (int i = 0; i < t->n - 1; i++) pthread_join(t->threads[i], NULL);
  pthread_cond_destroy(&t->wake);
  pthread_mutex_destroy(&t->lock);
  free(t->threads);
  free(t);
}
