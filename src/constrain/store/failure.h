/* failure.h - the first failure of a store, for functions that return a plain number even then. The caller
 * asks for it at the end. Too much work and an interruption are failures, too: what users write is compiled,
 * and masks are made, in bounded time. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Units of work, of about 5 ns each, between two calls of failure_begin_work(). */
#define MAX_WORK (UINT64_C(1) << 28)

/* Zero-initialise it. */
typedef struct {
  Status status; /* STATUS_OK: none so far */
  Error error;
  bool too_hard;    /* it is a limit on states, steps or work */
  uint64_t work;    /* units done */
  uint64_t look_at; /* units at which the next look at the limits is due */
} Failure;

/* All work looks at this flag from now on, and fails (STATUS_INTERRUPTED) when it is not 0. NULL: at none. */
void failure_heed(const volatile int *interrupted);
/* Looks at the limit and the interruption; for failure_work(). */
bool failure_look(Failure *failure);
/* Counts work, in proportion to its time; false if the store has failed, so that recursions end. */
static inline bool failure_work(Failure *failure, size_t units) {
  failure->work += units;
  return failure->work < failure->look_at ? failure->status == STATUS_OK : failure_look(failure);
}
static inline void failure_begin_work(Failure *failure) {
  failure->work = failure->look_at = 0;
}

static inline bool has_failed(const Failure *failure) {
  return failure->status != STATUS_OK;
}
/* Keeps the failure, unless there was one before. */
void failure_set(Failure *failure, Status status, const char *message);
/* The failure as a status, with its message in err. */
Status failure_check(const Failure *failure, Error *err);
/* mem_grow() that keeps its failure; false then. */
bool failure_grow(Failure *failure, void *items, size_t *capacity, size_t need, size_t size);
