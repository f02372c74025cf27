/* signals.h - which threads take signals. */
#pragma once

#include <pthread.h>
#include <signal.h>

/* Blocks asynchronous signals in this thread and in threads that it creates: the thread that reads input then
 * receives them, and its read is interrupted. Faults stay with their thread. pthread_sigmask(SIG_SETMASK,
 * before, NULL) undoes it. */
static inline void block_signals(sigset_t *before) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
  sigset_t others;
  sigfillset(&others);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&others, faults[i]);
  pthread_sigmask(SIG_BLOCK, &others, before);
}
