/* threads.h - how long threads that wait for each other spin before they sleep. */
#ifndef AUK_COMMANDS_THREADS_H
#define AUK_COMMANDS_THREADS_H

/* First of all in main(): where the environment does not say how OpenMP's threads wait (OMP_WAIT_POLICY,
 * GOMP_SPINCOUNT), the program begins again with an environment that does, since libgomp reads it before
 * main(). Costs a millisecond. Where that fails it goes on as it is. */
void threads_begin(char **argv);

#endif
