/* failure.h - the first failure of a store, for functions that return a plain number even then. The caller
 * asks for it at the end. */
#pragma once

#include "base/status.h"

#include <stdbool.h>

/* Zero-initialise it. */
typedef struct {
  Status status; /* STATUS_OK: none so far */
  Error error;
} Failure;

static inline bool has_failed(const Failure *failure) {
  return failure->status != STATUS_OK;
}
/* Keeps the failure, unless there was one before. */
void failure_set(Failure *failure, Status status, const char *message);
/* The failure as a status, with its message in err. */
Status failure_check(const Failure *failure, Error *err);
/* mem_grow() that keeps its failure; false then. */
bool failure_grow(Failure *failure, void *items, size_t *capacity, size_t need, size_t size);
