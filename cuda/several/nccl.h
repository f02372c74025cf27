/* nccl.h - NVIDIA's NCCL, for GPUs that share a model (several.h) and cannot reach each other's memory.
 * Loaded when it is first needed, as cuBLAS is.
 *
 * Called by: split.c and ranks.c, which join and abort; residual.c, for sums; state.c and tokens.c, which
 * wait. Every GPU that shares the model is a rank, 0 to n - 1. The collective functions only enqueue, also
 * into a graph; all ranks have to call the same functions in the same order, each from a thread that has its
 * GPU as the current one. Always true: after nccl_abort() every call fails, and what waits for other ranks
 * ends. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct NcclRank NcclRank;

/* ncclUniqueId: rank 0 makes it, and every rank needs it to join. */
typedef struct {
  char bytes[128];
} NcclId;

/* STATUS_FAILED says what to install where there is no NCCL. */
Status nccl_check(Error *err);
Status nccl_make_id(NcclId *id, Error *err);

/* Joins n GPUs of this process: ranks[i] is the rank of gpus[i]. */
Status nccl_join_all(const int *gpus, int n, NcclRank **ranks, Error *err);
/* Joins the current GPU with those of other processes, and waits for them. */
Status nccl_join(const NcclId *id, int rank, int n, NcclRank **joined, Error *err);
/* Makes the connections for sums of up to `most` numbers and for all else, once all ranks have joined. NCCL
 * alone would make each connection when it is first needed, which fails for GPUs of one process while a graph
 * is captured. */
Status nccl_connect(NcclRank *rank, size_t most, cudaStream_t stream, Error *err);
/* PRECOND the rank's work is done, or aborted; graphs with its calls are destroyed. NULL is fine. */
void nccl_leave(NcclRank *rank);

/* Ends what waits for other ranks, and lets every later call fail. Returns at once, but NCCL keeps its memory
 * until the graphs with this rank's calls are destroyed. Any thread may call this, more than once. */
void nccl_abort(NcclRank *rank);

/* x[0 .. n) = the sum of all ranks' x, in fp32. */
Status nccl_add(NcclRank *rank, float *x, size_t n, cudaStream_t stream, Error *err);
/* to[0 .. n) = rank 0's to[0 .. n). */
Status nccl_take_from_first(NcclRank *rank, int32_t *to, size_t n, cudaStream_t stream, Error *err);
/* Rank r has made columns first[r] .. first[r + 1] - 1 of n_rows rows, which are first[n] numbers apart, n
 * the number of ranks; rank 0 gets the columns of all ranks. */
Status nccl_gather_columns(NcclRank *rank, float *rows, const int *first, int n_rows, cudaStream_t stream,
                           Error *err);

/* A wait for a stream, zeros at first. nccl_look() fails, and aborts, after a failure of NCCL's own threads
 * and when the other ranks did not answer for too long. */
typedef struct {
  double begin_ms, looked_ms;
} NcclWait;
Status nccl_look(NcclRank *rank, NcclWait *wait, Error *err);
/* Waits for the stream. */
Status nccl_wait(NcclRank *rank, cudaStream_t stream, Error *err);

#ifdef __cplusplus
}
#endif
