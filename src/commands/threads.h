/* threads.h - compute threads: their number, stack size and spin time; and the stack of the main thread. */
#pragma once

#include "base/status.h"

/* Runs `program`; main() consists of this call. libgomp reads the environment before main(). So auk executes
 * itself again with a better environment (this takes a millisecond) in three cases: the environment does not
 * set how threads wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT); it sets their stack size to another value than
 * auk's (OMP_STACKSIZE and the like); or `ulimit -s` would make their stacks too small or too large. If the
 * stack is too small for `program` and may not grow (ulimit -s), `program` runs in a thread with a larger
 * one. */
int threads_run(int (*program)(int argc, char **argv), int argc, char **argv);

/* Chooses the number of compute threads: `asked`, or 0 for one per core that this process may use. Creates
 * OpenMP's threads here, because libgomp ends the program if it cannot create them later. If the system
 * allows fewer, a given number is refused (STATUS_FAILED), and the default is lowered with a note on standard
 * error. */
Status threads_choose(int asked, int *n_threads, Error *err);
