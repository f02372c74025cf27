/* watch.h - whether a process that owes an answer still runs. A holder answers between two of its steps, and
 * a step may take long: only a process that neither answers nor computes is silent. One that is stopped,
 * frozen or traced is, and so is one that sleeps without hearing its socket. */
#pragma once

#include "commands/keep/wire.h"

typedef struct {
  pid_t pid; /* 0: another namespace's */
  double begin_ms, since_ms;
  unsigned long long progress; /* ticks of CPU time and page faults at since_ms */
} Watch;

/* The process at the other end, which is this user's, from now on. */
Watch watch_begin(int socket);
/* True if it has shown no sign of life for two seconds. One that computes without an answer is silent after
 * `most_ms` (0: never). Cheap until two seconds have passed. */
bool watch_is_silent(Watch *watch, double most_ms);
/* True if the process is stopped or traced. */
bool process_is_stopped(pid_t pid);

/* Waits for a message that is owed. *came is false, without failure, if the other end closes. The process is
 * silent: *silent and STATUS_FAILED with its number (`silent` may be NULL). */
Status wire_await(Wire *wire, WireKind *kind, const char **body, size_t *size, bool *came, bool *silent,
                  Error *err);
/* The failure of a silent process; its number may be 0. */
Status watch_failure(pid_t pid, Error *err);
