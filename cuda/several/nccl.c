/* nccl.c - see nccl.h. The types, their values and the functions are those of the header that NVIDIA
 * publishes (nccl.h.in in github.com/NVIDIA/nccl), unchanged since NCCL 2.7. */
#include "cuda/several/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cuda/kernels/ptx/device.h"
#include "model/slice.h"

typedef struct ncclComm *Comm;
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 }; /* ncclResult_t */
enum { NCCL_INT32 = 2, NCCL_FLOAT32 = 7 };       /* ncclDataType_t */
enum { NCCL_SUM = 0 };                           /* ncclRedOp_t */

/* 2.7.0, the first version with ncclSend() and ncclRecv(). Up to 2.8 the number of a version is 1000 major +
 * 100 minor + patch; later versions have larger numbers. */
enum { OLDEST = 2700 };

typedef struct {
  int (*get_version)(int *version);
  const char *(*get_error_string)(int result);
  int (*get_unique_id)(NcclId *id);
  int (*comm_init_all)(Comm *comms, int n, const int *gpus);
  int (*comm_init_rank)(Comm *comm, int n, NcclId id, int rank);
  int (*comm_destroy)(Comm comm);
  int (*comm_abort)(Comm comm);
  int (*comm_get_async_error)(Comm comm, int *error);
  int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, Comm comm, cudaStream_t stream);
  int (*broadcast)(const void *from, void *to, size_t n, int type, int root, Comm comm, cudaStream_t stream);
  int (*send)(const void *from, size_t n, int type, int peer, Comm comm, cudaStream_t stream);
  int (*recv)(void *to, size_t n, int type, int peer, Comm comm, cudaStream_t stream);
  int (*group_start)(void);
  int (*group_end)(void);
} Nccl;

typedef struct {
  Reduce base; /* the first member, so that a Reduce * of nccl.h is an NcclRank * */
  Nccl nccl;
  Comm comm;
  int rank, n;
  bool alone;           /* the only rank of its process: other ranks may have ended when this one leaves */
  double patience_ms;   /* the longest wait for the other ranks */
  pthread_mutex_t call; /* held in calls of NCCL with comm */
  atomic_bool aborted;
  pthread_t aborting; /* the thread that aborts comm, if has_thread */
  bool has_thread;
} NcclRank;

static NcclRank *rank_of(Reduce *own) {
  return (NcclRank *)own;
}

/* The longest that a host waits for a stream. PATIENCE_HERE_S: GPUs of one process. PATIENCE_ELSEWHERE_S:
 * several processes, where a step of many tokens takes long over a slow network; ranks.c notices processes
 * that end or hang. LOOK_MS: the time between two questions of look() to NCCL. */
enum { PATIENCE_HERE_S = 20, PATIENCE_ELSEWHERE_S = 600, LOOK_MS = 50 };
/* ABORT_WAIT_MS: the longest that an abort waits for a thread that is within NCCL. LEAVE_WAIT_MS: the longest
 * that nccl_leave() waits for the abort. */
enum { ABORT_WAIT_MS = 1000, LEAVE_WAIT_MS = 5000 };

/* --- the library */

static Status load(Nccl *nccl, Error *err) {
  const struct {
    const char *name;
    void *function;
  } wanted[] = {
      {"ncclGetVersion", &nccl->get_version},
      {"ncclGetErrorString", &nccl->get_error_string},
      {"ncclGetUniqueId", &nccl->get_unique_id},
      {"ncclCommInitAll", &nccl->comm_init_all},
      {"ncclCommInitRank", &nccl->comm_init_rank},
      {"ncclCommDestroy", &nccl->comm_destroy},
      {"ncclCommAbort", &nccl->comm_abort},
      {"ncclCommGetAsyncError", &nccl->comm_get_async_error},
      {"ncclAllReduce", &nccl->all_reduce},
      {"ncclBroadcast", &nccl->broadcast},
      {"ncclSend", &nccl->send},
      {"ncclRecv", &nccl->recv},
      {"ncclGroupStart", &nccl->group_start},
      {"ncclGroupEnd", &nccl->group_end},
  };
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return error_set(err, STATUS_FAILED,
                     "NCCL cannot be loaded: %s (it is Debian's and NVIDIA's package libnccl2, or pip's "
                     "nvidia-nccl-cu12 and -cu13; LD_LIBRARY_PATH can name its folder)",
                     dlerror());
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *found = dlsym(library, wanted[i].name);
    if (!found) return error_set(err, STATUS_FAILED, "NCCL: %s (2.7 or newer is needed)", dlerror());
    memcpy(wanted[i].function, &found, sizeof found);
  }
  int version = 0;
  nccl->get_version(&version);
  return version >= OLDEST
             ? STATUS_OK
             : error_set(err, STATUS_FAILED, "NCCL is version %d, expected 2.7 or newer", version);
}

static Status check(const Nccl *nccl, int result, const char *what, Error *err) {
  if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "NCCL: %s: %s (NCCL_DEBUG=WARN says more)", what,
                   nccl->get_error_string(result));
}

Status nccl_check(Error *err) {
  Nccl nccl;
  return load(&nccl, err);
}

Status nccl_make_id(NcclId *id, Error *err) {
  Nccl nccl;
  TRY(load(&nccl, err));
  return check(&nccl, nccl.get_unique_id(id), "cannot prepare", err);
}

/* --- the end */

/* First waits for the mutex `call`, at most ABORT_WAIT_MS, so that no thread is within NCCL. A thread that
 * stays there for longer waits for other ranks, and only the abort ends its wait. */
static void *abort_comm(void *user) {
  NcclRank *rank = user;
  const struct timespec end = clock_after(CLOCK_REALTIME, ABORT_WAIT_MS);
  if (pthread_mutex_timedlock(&rank->call, &end) == 0) pthread_mutex_unlock(&rank->call);
  rank->nccl.comm_abort(rank->comm);
  return NULL;
}

/* The abort has a thread of its own. ncclCommAbort() ends at once what waits on the GPU, but returns only
 * after all graphs with calls of NCCL are destroyed (commDestroySync() in NCCL's init.cc). The thread that
 * learns of the failure destroys them. */
void nccl_abort(Reduce *own) {
  NcclRank *rank = rank_of(own);
  if (!rank || atomic_exchange(&rank->aborted, true)) return;
  rank->has_thread = pthread_create(&rank->aborting, NULL, abort_comm, rank) == 0;
  if (!rank->has_thread) abort_comm(rank);
}

void nccl_leave(Reduce *own) {
  NcclRank *rank = rank_of(own);
  if (!rank) return;
  const struct timespec end = clock_after(CLOCK_REALTIME, LEAVE_WAIT_MS);
  /* A thread that has not ended still uses `rank`: `rank` is then never freed. */
  if (rank->has_thread && pthread_timedjoin_np(rank->aborting, NULL, &end) != 0) return;
  if (!rank->aborted && rank->alone) rank->nccl.comm_abort(rank->comm);
  if (!rank->aborted && !rank->alone) rank->nccl.comm_destroy(rank->comm);
  pthread_mutex_destroy(&rank->call);
  free(rank);
}

/* --- collectives */

static Status begin_call(NcclRank *rank, Error *err) {
  pthread_mutex_lock(&rank->call);
  if (!rank->aborted) return STATUS_OK;
  pthread_mutex_unlock(&rank->call);
  return error_set(err, STATUS_FAILED, "another GPU failed");
}

static Status end_call(NcclRank *rank, int result, const char *what, Error *err) {
  pthread_mutex_unlock(&rank->call);
  if (rank->aborted) return error_set(err, STATUS_FAILED, "another GPU failed");
  return check(&rank->nccl, result, what, err);
}

static Status add(Reduce *own, float *x, size_t n, cudaStream_t stream, Error *err) {
  NcclRank *rank = rank_of(own);
  TRY(begin_call(rank, err));
  const int result = rank->nccl.all_reduce(x, x, n, NCCL_FLOAT32, NCCL_SUM, rank->comm, stream);
  return end_call(rank, result, "a sum failed", err);
}

static Status broadcast(Reduce *own, int32_t *to, size_t n, cudaStream_t stream, Error *err) {
  NcclRank *rank = rank_of(own);
  TRY(begin_call(rank, err));
  const int result = rank->nccl.broadcast(to, to, n, NCCL_INT32, 0, rank->comm, stream);
  return end_call(rank, result, "a token was not sent", err);
}

static Status gather(Reduce *own, float *rows, const int *first, int n_rows, cudaStream_t stream,
                     Error *err) {
  NcclRank *rank = rank_of(own);
  const Nccl *nccl = &rank->nccl;
  TRY(begin_call(rank, err));
  int result = nccl->group_start();
  for (int row = 0; row < n_rows && result == NCCL_SUCCESS; row++) {
    float *to = rows + (size_t)row * (size_t)first[rank->n];
    for (int from = 1; from < rank->n && result == NCCL_SUCCESS; from++) {
      const size_t n = (size_t)(first[from + 1] - first[from]);
      if (rank->rank == 0)
        result = nccl->recv(to + first[from], n, NCCL_FLOAT32, from, rank->comm, stream);
      else if (rank->rank == from)
        result = nccl->send(to + first[from], n, NCCL_FLOAT32, 0, rank->comm, stream);
    }
  }
  const int ended = nccl->group_end();
  return end_call(rank, result == NCCL_SUCCESS ? ended : result, "logits were not sent", err);
}

/* --- waiting */

/* Asks NCCL for errors, at most once in LOOK_MS. Aborts the rank after an error or too long a wait. */
static Status look(Reduce *own, ReduceWait *wait, Error *err) {
  NcclRank *rank = rank_of(own);
  const double now = clock_ms();
  if (rank->aborted) return error_set(err, STATUS_FAILED, "another GPU failed");
  if (wait->begin_ms == 0) wait->begin_ms = wait->looked_ms = now;
  if (now - wait->looked_ms < LOOK_MS) return STATUS_OK;
  wait->looked_ms = now;
  TRY(begin_call(rank, err));
  int error = NCCL_SUCCESS;
  int result = rank->nccl.comm_get_async_error(rank->comm, &error);
  Status status = end_call(rank, result != NCCL_SUCCESS ? result : error, "another GPU failed", err);
  if (!status && now - wait->begin_ms > rank->patience_ms)
    status = error_set(err, STATUS_FAILED, "the other GPUs did not answer for %d s",
                       (int)(rank->patience_ms / 1e3));
  if (status) nccl_abort(own);
  return status;
}

static Status wait_for(Reduce *own, cudaStream_t stream, Error *err) {
  static const struct timespec pause = {.tv_nsec = 20000};
  ReduceWait wait = {0};
  for (int spin = 0;; spin++) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error != cudaErrorNotReady) {
      TRY(cuda_status(error, "a step failed", err));
      return rank_of(own)->aborted ? error_set(err, STATUS_FAILED, "another GPU failed") : STATUS_OK;
    }
    TRY(look(own, &wait, err));
    if (spin > 1000) nanosleep(&pause, NULL);
  }
}

/* --- joining */

static NcclRank *new_rank(const Nccl *nccl, Comm comm, int rank, int n, int patience_s, Error *err) {
  NcclRank *new = mem_alloc(1, sizeof *new, "NCCL", err);
  if (!new) return NULL;
  new->base = (Reduce){add, broadcast, gather, look, wait_for};
  new->nccl = *nccl;
  new->comm = comm;
  new->rank = rank;
  new->n = n;
  new->patience_ms = patience_s * 1e3;
  pthread_mutex_init(&new->call, NULL);
  return new;
}

Status nccl_join_all(const int *gpus, int n, Reduce **ranks, Error *err) {
  Nccl nccl;
  Comm comms[MAX_SPLIT];
  TRY(load(&nccl, err));
  TRY(check(&nccl, nccl.comm_init_all(comms, n, gpus), "cannot join the GPUs", err));
  for (int i = 0; i < n; i++) {
    ranks[i] = (Reduce *)new_rank(&nccl, comms[i], i, n, PATIENCE_HERE_S, err);
    if (ranks[i]) continue;
    for (int k = i; k < n; k++) nccl.comm_abort(comms[k]);
    return STATUS_FAILED;
  }
  return STATUS_OK;
}

Status nccl_join(const NcclId *id, int rank, int n, Reduce **joined, Error *err) {
  Nccl nccl;
  Comm comm;
  TRY(load(&nccl, err));
  TRY(check(&nccl, nccl.comm_init_rank(&comm, n, *id, rank), "cannot join the other GPUs", err));
  NcclRank *new = new_rank(&nccl, comm, rank, n, PATIENCE_ELSEWHERE_S, err);
  *joined = (Reduce *)new;
  if (new) new->alone = true;
  if (new) return STATUS_OK;
  nccl.comm_abort(comm);
  return STATUS_FAILED;
}

/* --- connecting */

Status nccl_connect(Reduce *own, size_t most, cudaStream_t stream, Error *err) {
  int first[MAX_SPLIT + 1];
  void *numbers = NULL;
  const size_t bytes = (most > MAX_SPLIT ? most : MAX_SPLIT) * sizeof(float);
  for (int i = 0; i <= rank_of(own)->n; i++) first[i] = i;
  Status status = cuda_status(cudaMalloc(&numbers, bytes), "no memory to try sums in", err);
  if (!status) status = cuda_status(cudaMemsetAsync(numbers, 0, bytes, stream), "cannot clear memory", err);
  for (size_t n = most; n > 0 && !status; n /= 4) status = add(own, numbers, n, stream, err);
  if (!status) status = broadcast(own, numbers, 1, stream, err);
  if (!status) status = gather(own, numbers, first, 1, stream, err);
  if (!status) status = wait_for(own, stream, err);
  if (status) nccl_abort(own);
  cudaFree(numbers);
  return status;
}
