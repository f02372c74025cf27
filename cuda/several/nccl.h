/* nccl.h - NVIDIA's NCCL, for GPUs that share a model (several.h) and cannot reach each other's memory.
 * Loaded when it is first needed, as cuBLAS is.
 *
 * Every GPU that shares the model is a rank, 0 to n - 1, and has a Reduce. Always true: after nccl_abort()
 * every call fails, and what waits for other ranks ends. */
#pragma once

#include "cuda/one/reduce.h"

C_BEGIN

/* ncclUniqueId: rank 0 makes it, and every rank needs it to join. */
typedef struct {
  char bytes[128];
} NcclId;

/* STATUS_FAILED says what to install where there is no NCCL. */
Status nccl_check(Error *err);
Status nccl_make_id(NcclId *id, Error *err);

/* Joins n GPUs of this process: ranks[i] is the rank of gpus[i]. */
Status nccl_join_all(const int *gpus, int n, Reduce **ranks, Error *err);
/* Joins the current GPU with those of other processes, and waits for them. */
Status nccl_join(const NcclId *id, int rank, int n, Reduce **joined, Error *err);
/* Makes the connections for sums of up to `most` numbers and for the other collectives. All ranks call it at
 * the same time, after all have joined. NCCL itself makes each connection only when it is first needed. For
 * GPUs of one process that would fail while a graph is captured. */
Status nccl_connect(Reduce *rank, size_t most, cudaStream_t stream, Error *err);
/* PRECOND the rank's work is done, or aborted; graphs with its calls are destroyed. NULL is fine. */
void nccl_leave(Reduce *rank);

/* Ends what waits for other ranks, and makes every later call fail. Returns at once, but NCCL keeps its
 * memory until the graphs with this rank's calls are destroyed. Any thread may call this, more than once. */
void nccl_abort(Reduce *rank);

C_END
