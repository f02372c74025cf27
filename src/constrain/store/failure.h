/* failure.h - the first failure of a store. Functions of the store return a plain number even after a
 * failure; their caller asks for the failure at the end. Too much work and an interruption are failures, too:
 * compiling what users write, and making masks, takes bounded time. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Limit on the work between two calls of failure_begin_work(), in units of about 5 ns. */
#define MAX_WORK (UINT64_C(1) << 28)

/* Zero-initialise it. */
typedef struct {
  Status status; /* STATUS_OK: none so far */
  Error error;
  bool too_hard;    /* the failure is a limit on states, steps or work */
  uint64_t work;    /* units done */
  uint64_t look_at; /* units at which the next look at the limits is due */
} Failure;

/* From now on the work of all stores fails (STATUS_INTERRUPTED) when *interrupted is not 0. NULL: never
 * interrupted. */
void failure_heed(const volatile int *interrupted);
/* Part of failure_work(): looks at the limit and at *interrupted; false if the store has failed. */
bool failure_look(Failure *failure);
/* Counts work in proportion to its time. False if the store has failed, so that recursions end. */
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
/* Keeps the failure, unless there is an earlier one. */
void failure_set(Failure *failure, Status status, const char *message);
/* The failure as a status, with its message in err. */
Status failure_check(const Failure *failure, Error *err);
/* mem_grow() for a store: keeps a failure in `failure`, and then returns false. */
bool failure_grow(Failure *failure, void *items, size_t *capacity, size_t need, size_t size);
