/* team.h - threads that stay awake between pieces of work that follow one another at once.
 *
 * Called by: products.c, linear.c. OpenMP's threads fall asleep soon (commands/threads.c says why). If a CPU
 * multiplies by matrices of several layers, and a GPU does the rest, waking sixteen threads for each layer
 * takes about as long as the layer's experts take to read. The GPU's part between two layers takes less than
 * a millisecond: these threads wait for it awake. */
#pragma once

#include "base/status.h"

typedef struct Team Team;

/* A thread's part of the work: 0 <= me < n. */
typedef void TeamWork(void *context, int me, int n);

/* A team of n >= 1 threads: n - 1 of its own, and the one that calls team_run(). Errors: a thread cannot be
 * made, or there is no memory. */
Status team_open(int n, Team **out, Error *err);
void team_close(Team *team); /* NULL is fine */

/* Calls work(context, me, n) in all threads of the team, in the caller as thread 0, and returns when each has
 * ended. One caller at a time. */
void team_run(Team *team, TeamWork *work, void *context);

/* Within the work: waits until all threads of the team have come here. */
void team_wait(Team *team);
