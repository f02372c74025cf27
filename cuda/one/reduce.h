/* reduce.h - a sum and a gather over GPUs that share a model, for one of them that cannot reach the memory of
 * the others. Its owner has made it (NCCL). GPUs that reach each other's memory need none (ops/add_norm.h).
 *
 * All GPUs have to call the same functions in the same order, each from a thread that has its GPU as the
 * current one. sum, take_from_first and gather only enqueue, also into a graph. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A wait for a stream, zeros at first. */
typedef struct {
  double begin_ms, looked_ms;
} ReduceWait;

typedef struct Reduce Reduce;
struct Reduce {
  /* x[0 .. n) = the sum of all GPUs' x, in fp32. */
  Status (*sum)(Reduce *own, float *x, size_t n, cudaStream_t stream, Error *err);
  /* to[0 .. n) = the first GPU's to[0 .. n). */
  Status (*take_from_first)(Reduce *own, int32_t *to, size_t n, cudaStream_t stream, Error *err);
  /* GPU r has made columns first[r] .. first[r + 1] - 1 of n_rows rows, which are first[n] numbers apart, n
   * the number of GPUs; the first GPU gets the columns of all. */
  Status (*gather)(Reduce *own, float *rows, const int *first, int n_rows, cudaStream_t stream, Error *err);
  /* Called while the host waits for the stream: fails if another GPU failed, or did not answer for too
   * long. */
  Status (*look)(Reduce *own, ReduceWait *wait, Error *err);
  /* Waits for the stream. */
  Status (*wait)(Reduce *own, cudaStream_t stream, Error *err);
};
