/* threads.c - see threads.h.   Called by: main.c, device.c, models/pack.c.
 *
 * A decode step is some hundred short parallel regions. Threads that sleep between regions wake too late, so
 * libgomp lets them spin. By default they spin 300,000 times: 3 to 15 ms where a spin is x86's pause. On a
 * busy machine so long a spin keeps the awaited thread from running, and decoding slows down eightfold. So
 * threads spin only for about the time between two regions, some ten microseconds. Measured on two cores
 * (AMD EPYC Zen 5, SmolLM2-135M, gcc 12), in tokens/s: alone 348 with 300,000 spins and 346 with 1,000;
 * beside ten other processes 3 and 24. */
#include "commands/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/signals.h"
#include "commands/common.h"

/* --- the environment that libgomp reads */

#ifdef __clang__ /* clang's OpenMP library yields the core while it spins, and ignores GOMP_SPINCOUNT */
static const char *const spins = NULL;
#elif defined(__x86_64__)
static const char *const spins = "1000"; /* spins of 10 to 50 ns */
#else
static const char *const spins = "50000"; /* spins of 1 ns: here a spin is only a compiler barrier */
#endif

/* Stack size of the compute threads, which need a tenth of it. A `ulimit -s` from STACK_BYTES to
 * LARGEST_STACK_BYTES is kept. */
static const char stack_variable[] = "OMP_STACKSIZE", stack_size[] = "1M";
enum { STACK_BYTES = 1 << 20, LARGEST_STACK_BYTES = 64 << 20 };
/* The stack on which threads_run() runs the program if `ulimit -s` gives less than STACK_BYTES: 8 MiB, as
 * Linux gives. */
enum { PROGRAM_STACK_BYTES = 8 << 20 };

static bool has_our_stacks(void) {
  const char *value = getenv(stack_variable);
  return value && strcmp(value, stack_size) == 0;
}

/* True if compute threads will have suitable stacks: OMP_STACKSIZE has the value that auk sets, or no
 * variable sets the size and `ulimit -s` is within the bounds or unlimited. An unlimited one gives stacks of
 * 2 MiB. */
static bool has_good_stacks(rlim_t limit) {
  static const char *const others[] = {"OMP_STACKSIZE", "OMP_STACKSIZE_ALL", "GOMP_STACKSIZE",
                                       "KMP_STACKSIZE"};
  if (has_our_stacks()) return true;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (getenv(others[i])) return false;
  return limit == RLIM_INFINITY || (limit >= STACK_BYTES && limit <= LARGEST_STACK_BYTES);
}

/* Executes the program again if the environment needs a change. Returns if it needs none, or after a
 * failure. */
static void set_environment(char **argv, rlim_t stack_limit) {
  const char *program = (const char *)getauxval(AT_EXECFN); /* the executed file: argv[0] may differ */
  bool good_spins = !spins || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT");
  bool good_stacks = has_good_stacks(stack_limit);
  if ((good_spins && good_stacks) || !program || !argv[0]) return;
  if (!good_spins && setenv("GOMP_SPINCOUNT", spins, 1) != 0) return;
  if (!good_stacks && setenv(stack_variable, stack_size, 1) != 0) return;
  execv(program, argv);
  if (!good_stacks) unsetenv(stack_variable); /* libgomp has read the environment before */
}

/* --- the stack of the program */

typedef struct {
  int (*program)(int argc, char **argv);
  int argc;
  char **argv;
  int status;
} Run;

static void *run(void *given) {
  Run *it = given;
  it->status = it->program(it->argc, it->argv);
  return NULL;
}

static int run_in_thread(Run *it, rlim_t limit) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t before;
  int failed = pthread_attr_init(&attributes);
  if (!failed) failed = pthread_attr_setstacksize(&attributes, PROGRAM_STACK_BYTES);
  if (!failed) failed = pthread_create(&thread, &attributes, run, it);
  pthread_attr_destroy(&attributes);
  if (failed) {
    fprintf(stderr,
            "auk: the stack may not have more than %llu KiB, and a thread with more: %s (ulimit -s %d)\n",
            (unsigned long long)limit / 1024, strerror(failed), PROGRAM_STACK_BYTES / 1024);
    return STATUS_FAILED;
  }
  block_signals(&before);
  pthread_join(thread, NULL);
  return it->status;
}

int threads_run(int (*program)(int argc, char **argv), int argc, char **argv) {
  struct rlimit stack = {RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(RLIMIT_STACK, &stack);
  set_environment(argv, stack.rlim_cur);
  if (stack.rlim_cur < STACK_BYTES) { /* the stack grows up to the current limit */
    stack.rlim_cur = stack.rlim_max < PROGRAM_STACK_BYTES ? stack.rlim_max : PROGRAM_STACK_BYTES;
    setrlimit(RLIMIT_STACK, &stack);
  }
  Run it = {.program = program, .argc = argc, .argv = argv};
  return stack.rlim_cur < STACK_BYTES ? run_in_thread(&it, stack.rlim_cur) : program(argc, argv);
}

/* --- the threads that compute */

static int cores_available(void) {
  for (int room = CPU_SETSIZE; room <= 1 << 20; room *= 2) {
    cpu_set_t *cores = CPU_ALLOC((size_t)room);
    size_t size = CPU_ALLOC_SIZE((size_t)room);
    if (!cores) break;
    int n = sched_getaffinity(0, size, cores) == 0 ? CPU_COUNT_S(size, cores) : 0;
    bool short_of_room = n == 0 && errno == EINVAL;
    CPU_FREE(cores);
    if (n > 0) return n;
    if (!short_of_room) break;
  }
  return 1;
}

static void *pass_gate(void *gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
  return NULL;
}

/* Creates up to `n` threads with stacks as OpenMP's threads have, all alive at once, then ends them. Returns
 * how many could be created; if fewer than n, *reason is the errno value. */
static int try_threads(int n, int *reason, Error *err) {
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  pthread_attr_t attributes;
  pthread_t *threads = mem_alloc((size_t)n, sizeof *threads, "threads", err);
  int made = 0;
  *reason = threads ? pthread_attr_init(&attributes) : ENOMEM;
  if (!*reason && has_our_stacks()) *reason = pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_mutex_lock(&gate);
  while (!*reason && made < n)
    if (!(*reason = pthread_create(&threads[made], &attributes, pass_gate, &gate))) made++;
  pthread_mutex_unlock(&gate);
  for (int i = 0; i < made; i++) pthread_join(threads[i], NULL);
  if (threads) pthread_attr_destroy(&attributes);
  free(threads);
  return made;
}

/* Creates OpenMP's threads with signals blocked (block_signals()). OpenMP keeps them for later regions. */
static void make_team(int n) {
  sigset_t before;
  block_signals(&before);
  int n_there = 0;
#pragma omp parallel num_threads(n) reduction(+ : n_there)
  n_there++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

Status threads_choose(int asked, int *n_threads, Error *err) {
  const int wanted = asked ? asked : cores_available();
  int reason = 0, made = wanted > 1 ? try_threads(wanted - 1, &reason, err) : 0;
  *n_threads = made + 1;
  if (reason && asked)
    return error_set(err, STATUS_FAILED, "-t %d: only %d thread%s can be made: %s", asked, *n_threads,
                     *n_threads == 1 ? "" : "s", strerror(reason));
  if (reason)
    print_note("%d thread%s in place of %d: %s", *n_threads, *n_threads == 1 ? "" : "s", wanted,
               strerror(reason));
  make_team(*n_threads);
  return STATUS_OK;
}
