/* threads.h - the threads that compute: how many, how large their stacks are, how long they spin before they
 * sleep; and the stack of the thread that runs the program. */
#ifndef AUK_COMMANDS_THREADS_H
#define AUK_COMMANDS_THREADS_H

#include "base/status.h"

/* main() is nothing but this. Where the environment does not say how OpenMP's threads wait (OMP_WAIT_POLICY,
 * GOMP_SPINCOUNT), or would give them stacks that are too small or too large (OMP_STACKSIZE, ulimit -s), the
 * program begins again with an environment that does: libgomp reads it before main(), and it takes a
 * millisecond. Where the stack is too small for `program` and may not grow (ulimit -s), it runs in a thread
 * that has its own. */
int threads_run(int (*program)(int argc, char **argv), int argc, char **argv);

/* How many threads compute: `asked`, or with 0 as many as there are cores that this process may use. OpenMP's
 * threads are made here, as libgomp ends the program where it cannot make one. Where the system does not let
 * us, those that were asked for are refused (STATUS_FAILED), and in place of the cores' number there are
 * fewer, which a line on standard error tells. */
Status threads_choose(int asked, int *n_threads, Error *err);

#endif
