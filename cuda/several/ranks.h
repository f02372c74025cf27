/* ranks.h - the processes that share a model (--split auto), one GPU each, on one machine or many.
 *
 * Rank 0 runs the whole program; the other ranks do what rank 0's several.c does (calls.h). A thread of each
 * process watches the connections. Always true: all processes end when one of them ends, fails, or gives no
 * sign of life for timeout_s. Rank 0's next call fails with rank, host and reason of the first such process;
 * if rank 0 waits for ranks to join NCCL, it ends itself. Other ranks end themselves. */
#pragma once

#include "cuda/several/link.h"

typedef struct Reduce Reduce;
typedef struct Ranks Ranks;

typedef struct {
  LinkOptions link;
  /* Ends the process, and does not return. Called by the watching thread and by ranks_report(), with
   * STATUS_OK if nothing failed. reason NULL: rank 0 reports the reason. */
  void (*end)(int said, Status status, const char *reason);
  int said; /* argument of end(): the descriptor for a reason */
} RanksOptions;

/* A process's GPU. */
typedef struct {
  uint64_t free_bytes; /* free memory of the GPU */
  uint8_t gpu[16];     /* the GPU's identity, unique on all machines */
} RankFacts;

/* Connects all ranks. `options` is copied; its job and host have to outlive the Ranks. */
Status ranks_join(const RanksOptions *options, Ranks **ranks, Error *err);
int ranks_rank(const Ranks *ranks);

/* Rank 0: compares all ranks' lines, "name: value" each, with its own, and refuses a GPU that two ranks have.
 * The other ranks send their lines. *least_free: on rank 0, the least free memory of all GPUs in bytes. */
Status ranks_agree(Ranks *ranks, const RankFacts *facts, const char *lines, size_t *least_free, Error *err);

/* Joins the current GPU with the other ranks' GPUs by NCCL, once all ranks have loaded their parts. */
Status ranks_join_nccl(Ranks *ranks, Reduce **nccl, Error *err);
void ranks_forget_nccl(Ranks *ranks); /* call it before nccl_leave() */

/* Rank 0 sends a call to all other ranks; ranks_take_call() waits for the next call, in order. */
Status ranks_tell(Ranks *ranks, const void *a, size_t a_size, const void *b, size_t b_size, Error *err);
Status ranks_take_call(Ranks *ranks, Buffer *call, Error *err);

/* Numbers for the sessions that rank 0 opens, each taken until it is given back; -1: all are taken. */
enum { RANKS_NUMBERS = 16 };
int ranks_take_number(Ranks *ranks);
void ranks_give_number(Ranks *ranks, int number);

/* Fails with the reason if a rank was lost. failed: something failed in this process, probably because a rank
 * was lost; the function then waits up to 3 s for that to be known. */
Status ranks_check(Ranks *ranks, bool failed, Error *err);

/* Another rank: sends rank 0 the reason of a failure, waits to be ended, and after timeout_s ends itself. */
void ranks_report(Ranks *ranks, Status status, const Error *reason);
/* Closes the connections and frees `ranks`, which may be NULL; rank 0 ends all other ranks. PRECOND the NCCL
 * rank is not used any more. */
void ranks_end(Ranks *ranks);
