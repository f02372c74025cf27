/* failure.c - see failure.h. */
#include "constrain/store/failure.h"

enum { LOOK_EVERY = 1 << 18 }; /* units */

static const volatile int *heeded;

void failure_heed(const volatile int *interrupted) {
  heeded = interrupted;
}

bool failure_look(Failure *failure) {
  failure->look_at = failure->work + LOOK_EVERY;
  if (heeded && *heeded) failure_set(failure, STATUS_INTERRUPTED, "interrupted");
  if (failure->work > MAX_WORK && !has_failed(failure)) {
    failure->too_hard = true;
    failure_set(
        failure, STATUS_USAGE,
        "it takes too long (fewer or shorter alternatives, patterns, counts and parts that hold at once "
        "are easier)");
  }
  return !has_failed(failure);
}

void failure_set(Failure *failure, Status status, const char *message) {
  if (!has_failed(failure)) failure->status = error_set(&failure->error, status, "%s", message);
}

Status failure_check(const Failure *failure, Error *err) {
  return has_failed(failure) ? error_set(err, failure->status, "%s", failure->error.text) : STATUS_OK;
}

bool failure_grow(Failure *failure, void *items, size_t *capacity, size_t need, size_t size) {
  Error err;
  const Status status = mem_grow(items, capacity, need, size, "a constraint", &err);
  if (status != STATUS_OK) failure_set(failure, status, err.text);
  return status == STATUS_OK;
}
