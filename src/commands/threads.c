/* threads.c - see threads.h.   Called by: main.c.
 *
 * A step of a model is some hundred short parallel regions. Threads that sleep between them wake too late, so
 * libgomp lets them spin: 300,000 times by default, which is ten milliseconds and more where a spin is x86's
 * pause. As long as each thread has a core that much is never needed; where it has not, what spins keeps what
 * it waits for from running, and a machine that is busy with other things makes a tenth of the tokens that it
 * could. So it is as long as regions are apart, some ten microseconds, and not much longer. Measured on two
 * cores (AMD EPYC Zen 5, SmolLM2-135M, gcc 12, 2026-11-20), tokens a second: alone 348 with 300,000 spins and
 * 346 with 1,000; beside ten other processes 3 and 24. */
#include "commands/threads.h"

#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#ifdef __clang__ /* its OpenMP library yields the core while it spins, and does not know the variable */

void threads_begin(char **argv) {
  (void)argv;
}

#else

#ifdef __x86_64__
static const char spins[] = "1000"; /* of 10 to 50 ns */
#else
static const char spins[] = "50000"; /* of a nanosecond: a spin is a barrier to the compiler, no more */
#endif

void threads_begin(char **argv) {
  const char *program = (const char *)getauxval(AT_EXECFN); /* what was executed: argv[0] need not say */
  if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || !program || !argv[0]) return;
  if (setenv("GOMP_SPINCOUNT", spins, 1) == 0) execv(program, argv);
}

#endif
