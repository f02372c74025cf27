/* team.h - a pool of threads that wait busily for some milliseconds between jobs.
 *
 * Called by: products.c, linear.c, one/upload.c. OpenMP's threads fall asleep soon (commands/threads.c says
 * why). A CPU may multiply by some matrices of each layer and a GPU by the rest. Waking sixteen threads for a
 * layer then takes about as long as reading the layer's experts. The GPU's part between two layers takes less
 * than a millisecond: these threads wait for it awake. */
#pragma once

#include "base/status.h"

typedef struct Team Team;

/* A thread's part of a job: 0 <= me < n. */
typedef void TeamWork(void *context, int me, int n);

/* How many threads a team should have if the program computes with n_threads: one less if n_threads is at
 * least 8 and takes every core. The free core runs the program's other threads and those of a GPU's library;
 * a team always waits for its slowest thread. */
int team_size(int n_threads);

/* A team of n >= 1 threads: n - 1 of its own, and the one that calls team_run(). The team has fewer if
 * threads cannot be made. Errors: there is no memory. */
Status team_open(int n, Team **out, Error *err);
void team_close(Team *team); /* NULL is fine */

/* Calls work(context, me, n) in all threads of the team; the caller is thread 0. Returns when every thread
 * has finished. One caller at a time. */
void team_run(Team *team, TeamWork *work, void *context);

/* A barrier within a job: waits until all threads of the team have come here. */
void team_wait(Team *team);
