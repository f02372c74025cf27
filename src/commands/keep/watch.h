/* watch.h - whether a process that owes an answer still runs. A holder answers between two of its steps, and
 * a step may take long. A process that does not answer is silent in two cases: it does not compute (it is
 * stopped, frozen or traced, or sleeps without reading its socket), or it computes for too long. */
#pragma once

#include "commands/keep/wire.h"

typedef struct {
  pid_t pid;                   /* 0: the process is of another namespace */
  double begin_ms, since_ms;   /* when watching began; time of the last sign of life */
  unsigned long long progress; /* sum of CPU ticks and page faults at since_ms */
} Watch;

/* Begins to watch the process at the other end of the socket, a process of this user. */
Watch watch_begin(int socket);
/* True if the process has shown no sign of life (CPU time, page faults, being runnable) for two seconds. Also
 * true if `most_ms` (0: no limit) have passed since watch_begin(), noticed up to two seconds late. Cheap
 * until two seconds have passed. */
bool watch_is_silent(Watch *watch, double most_ms);
/* True if the process is stopped or traced. */
bool process_is_stopped(pid_t pid);

/* Waits for a message that the other end owes. *came is false, without failure, if the other end closes. If
 * the process is silent: STATUS_FAILED with its pid in the message, and *silent is true (`silent` may be
 * NULL). */
Status wire_await(Wire *wire, WireKind *kind, const char **body, size_t *size, bool *came, bool *silent,
                  Error *err);
/* Returns the failure for a silent process; pid 0: not known. */
Status watch_failure(pid_t pid, Error *err);
