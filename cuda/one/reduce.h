/* reduce.h - all-reduce, broadcast and gather for GPUs that share a model but do not reach each other's
 * memory: the interface; several/nccl.c implements it. GPUs that reach each other's memory need no Reduce
 * (ops/add_norm.h).
 *
 * All GPUs have to call the same functions in the same order, each from a thread whose current device is that
 * GPU. sum, broadcast and gather only enqueue, and a graph can capture them. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A wait for a stream. Both times are zeros at first, then the clock_ms() at which the wait began, and at
 * which look() last asked NCCL. */
typedef struct {
  double begin_ms, looked_ms;
} ReduceWait;

typedef struct Reduce Reduce;
struct Reduce {
  /* x[0 .. n) = the sum of all GPUs' x, in fp32. */
  Status (*sum)(Reduce *own, float *x, size_t n, cudaStream_t stream, Error *err);
  /* to[0 .. n) = the first GPU's to[0 .. n). */
  Status (*broadcast)(Reduce *own, int32_t *to, size_t n, cudaStream_t stream, Error *err);
  /* rows: [n_rows][first[n]], n being the number of GPUs. GPU r has made columns first[r] to
   * first[r + 1] - 1; afterwards the first GPU has all columns. */
  Status (*gather)(Reduce *own, float *rows, const int *first, int n_rows, cudaStream_t stream, Error *err);
  /* To be called again and again while the host waits for a stream. Fails if another GPU failed, or if the
   * wait takes too long. */
  Status (*look)(Reduce *own, ReduceWait *wait, Error *err);
  /* Waits for the stream, and fails as look() does. */
  Status (*wait)(Reduce *own, cudaStream_t stream, Error *err);
};
