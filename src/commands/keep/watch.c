/* watch.c - see watch.h. Called by: launch.c, remote.c, start.c. */
#include "commands/keep/watch.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "commands/common.h"

/* Returns the state of a process as proc(5) has it, 0 if the process cannot be seen. *progress is a number
 * that grows while the process computes or reads mapped weights. */
static char look(pid_t pid, unsigned long long *progress) {
  char path[64], text[512] = "", state = 0;
  unsigned long long minor = 0, major = 0, user = 0, system = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = pid > 0 ? fopen(path, "re") : NULL;
  if (file && fread(text, 1, sizeof text - 1, file) == 0) text[0] = 0;
  if (file) fclose(file);
  const char *after_name = strrchr(text, ')'); /* a name may hold blanks and parentheses */
  if (after_name)
    sscanf(after_name, ") %c %*d %*d %*d %*d %*d %*u %llu %*u %llu %*u %llu %llu", &state, &minor, &major,
           &user, &system);
  *progress = minor + major + user + system;
  return state;
}

Watch watch_begin(int socket) {
  Watch watch = {.begin_ms = clock_ms()};
  watch.since_ms = watch.begin_ms;
  if (!wire_is_own(socket, &watch.pid)) watch.pid = 0;
  look(watch.pid, &watch.progress);
  return watch;
}

bool process_is_stopped(pid_t pid) {
  unsigned long long unused;
  const char state = look(pid, &unused);
  return state == 'T' || state == 't';
}

bool watch_is_silent(Watch *watch, double most_ms) {
  enum { SILENT_MS = 2000 };
  const double now = clock_ms();
  unsigned long long progress;
  if (now - watch->since_ms < SILENT_MS) return false;
  const char state = look(watch->pid, &progress);
  const bool is_stopped = state == 'T' || state == 't';
  /* 'R' without progress: it is runnable, but other processes have the cores. */
  const bool computes = !is_stopped && (state == 'R' || progress != watch->progress);
  if (!computes || (most_ms > 0 && now - watch->begin_ms >= most_ms)) return true;
  watch->since_ms = now;
  watch->progress = progress;
  return false;
}

Status watch_failure(pid_t pid, Error *err) {
  char number[32] = "";
  if (pid > 0) snprintf(number, sizeof number, " (%d)", (int)pid);
  return error_set(err, STATUS_FAILED,
                   "the process that keeps the model%s does not answer (auk keep --stop ends it)", number);
}

Status wire_await(Wire *wire, WireKind *kind, const char **body, size_t *size, bool *came, bool *silent,
                  Error *err) {
  enum { LONGEST_STEP_MS = 30000 };
  Watch watch = watch_begin(wire->socket);
  *came = false;
  if (silent) *silent = false;
  while (!wire->ended) {
    if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    *came = wire_wait(wire, 100, kind, body, size, err);
    if (*came) return STATUS_OK;
    if (!watch_is_silent(&watch, LONGEST_STEP_MS)) continue;
    if (silent) *silent = true;
    return watch_failure(watch.pid, err);
  }
  return STATUS_OK;
}
