/* failure.c - see failure.h. Called by: lang.c, formula.c, machine.c, grammar.c. */
#include "constrain/store/failure.h"

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
