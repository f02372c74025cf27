/* nccl.cpp - a stand-in for NVIDIA's NCCL, for the emulated GPU: ranks may be threads or processes of this machine.
 * Called by: cuda/several/nccl.c, which opens it as libnccl.so.2.
 *
 * An id names shared memory with a mailbox for each pair of ranks. What a rank sends to another goes through it in
 * order, a piece at a time. A sum goes from all ranks to rank 0, which adds in the order of ranks, and back; so each run
 * has the same bits. Work goes to the stream as a host function of the program's own emulated CUDA, which captures it
 * like any other. Always true: a wait ends when the communicator is aborted. As with NCCL a communicator does not end
 * while a graph is left; and ranks of one process connect when they first send, which they cannot while they capture. */
#include <atomic>
#include <fcntl.h>
#include <list>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

typedef struct CUstream_st *cudaStream_t;
extern "C" int cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *user);
extern "C" int cudaStreamIsCapturing(cudaStream_t stream, int *status);
extern "C" std::atomic<int> emulated_graphs;

namespace {

enum { kSuccess = 0, kSystemError = 2, kInternalError = 3, kInvalidArgument = 4, kMostRanks = 8 };
constexpr size_t kPiece = 1 << 14;

struct Mailbox {
  std::atomic<uint32_t> full; /* a piece lies here */
  uint32_t bytes;
  char piece[kPiece];
};

struct Shared {
  std::atomic<int> joined;
  Mailbox mail[kMostRanks][kMostRanks]; /* [from][to] */
};

} // namespace

struct ncclUniqueId {
  char name[128];
};

struct Call;
struct ncclComm {
  Shared *shared;
  const int rank, n;
  std::atomic<bool> aborted;
  std::mutex books;
  std::list<Call *> calls; /* which graphs may run again */
  bool of_one_process;
  unsigned connected; /* which kinds of calls */
};

struct Call {
  enum { kAllReduce, kBroadcast, kSend, kReceive } kind;
  ncclComm *comm;
  const void *from;
  void *to;
  size_t bytes;
  int peer;
};

namespace {

/* False if the wait was aborted. */
template <typename Condition> bool wait_for(ncclComm *comm, Condition condition) {
  for (long spin = 0; !condition(); spin++) {
    if (comm->aborted) return false;
    const struct timespec pause = {0, spin < 100 ? 1000 : 100000};
    if (spin > 50) nanosleep(&pause, nullptr);
  }
  return true;
}

void send_piece(ncclComm *comm, int to, const void *from, size_t bytes) {
  Mailbox *mail = &comm->shared->mail[comm->rank][to];
  if (!wait_for(comm, [=] { return mail->full == 0; })) return;
  memcpy(mail->piece, from, bytes);
  mail->bytes = (uint32_t)bytes;
  mail->full = 1;
}

void take_piece(ncclComm *comm, int from, void *to, size_t bytes) {
  Mailbox *mail = &comm->shared->mail[from][comm->rank];
  if (!wait_for(comm, [=] { return mail->full == 1; })) return;
  if (mail->bytes != bytes) {
    fprintf(stderr, "emulator: NCCL: rank %d gets %u bytes of rank %d in place of %zu\n", comm->rank, mail->bytes, from,
            bytes);
    abort();
  }
  memcpy(to, mail->piece, bytes);
  mail->full = 0;
}

void add_up(ncclComm *comm, const char *from, char *to, size_t bytes) {
  float sum[kPiece / 4], part[kPiece / 4];
  memcpy(sum, from, bytes);
  if (comm->rank > 0) {
    send_piece(comm, 0, sum, bytes);
    take_piece(comm, 0, sum, bytes);
  } else {
    for (int rank = 1; rank < comm->n; rank++) {
      take_piece(comm, rank, part, bytes);
      for (size_t i = 0; i < bytes / 4; i++) sum[i] += part[i];
    }
    for (int rank = 1; rank < comm->n; rank++) send_piece(comm, rank, sum, bytes);
  }
  if (!comm->aborted) memcpy(to, sum, bytes);
}

void run(void *user) {
  const Call *call = (const Call *)user;
  ncclComm *comm = call->comm;
  for (size_t at = 0; at < call->bytes; at += kPiece) {
    const size_t bytes = call->bytes - at < kPiece ? call->bytes - at : kPiece;
    const char *from = (const char *)call->from + at;
    char *to = (char *)call->to + at;
    switch (call->kind) {
    case Call::kAllReduce: add_up(comm, from, to, bytes); break;
    case Call::kSend: send_piece(comm, call->peer, from, bytes); break;
    case Call::kReceive: take_piece(comm, call->peer, to, bytes); break;
    case Call::kBroadcast:
      if (comm->rank != call->peer) take_piece(comm, call->peer, to, bytes);
      for (int rank = 0; comm->rank == call->peer && rank < comm->n; rank++)
        if (rank != comm->rank) send_piece(comm, rank, from, bytes);
      break;
    }
  }
}

thread_local int group_depth;
thread_local std::vector<std::pair<Call *, cudaStream_t>> group;

int enqueue(const Call &call, cudaStream_t stream) {
  int capturing = 0;
  if (call.comm->aborted) return kInvalidArgument;
  cudaStreamIsCapturing(stream, &capturing);
  if (capturing && call.comm->of_one_process && !(call.comm->connected >> call.kind & 1)) return kInternalError;
  call.comm->connected |= 1u << call.kind;
  Call *kept = new Call(call);
  {
    std::lock_guard<std::mutex> in_books(call.comm->books);
    call.comm->calls.push_back(kept);
  }
  if (group_depth > 0) {
    group.push_back({kept, stream});
    return kSuccess;
  }
  return cudaLaunchHostFunc(stream, run, kept) == 0 ? kSuccess : 1;
}

void wait_for_graphs() {
  const struct timespec pause = {0, 1000000};
  while (emulated_graphs > 0) nanosleep(&pause, nullptr);
}

int join(const char *name, int n, int rank, ncclComm **comm) {
  if (n < 1 || n > kMostRanks || rank < 0 || rank >= n) return kInvalidArgument;
  const int file = shm_open(name, O_RDWR, 0600);
  if (file < 0) return kSystemError;
  void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return kSystemError;
  *comm = new ncclComm{(Shared *)memory, rank, n, {}, {}, {}, false, 0};
  return kSuccess;
}

} // namespace

extern "C" {

int ncclGetVersion(int *version) {
  *version = 22000;
  return kSuccess;
}

const char *ncclGetErrorString(int result) {
  return result == kSystemError ? "system error" : result == kInvalidArgument ? "invalid argument" : "some error";
}

int ncclGetUniqueId(ncclUniqueId *id) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  memset(id, 0, sizeof *id);
  snprintf(id->name, sizeof id->name, "/emulated-nccl-%d-%ld", (int)getpid(), now.tv_nsec + now.tv_sec * 1000000000);
  const int file = shm_open(id->name, O_RDWR | O_CREAT | O_EXCL, 0600);
  const bool made = file >= 0 && ftruncate(file, sizeof(Shared)) == 0;
  if (file >= 0) close(file);
  return made ? kSuccess : kSystemError;
}

/* All ranks wait for each other; the memory's name goes when all are here. */
int ncclCommInitRank(ncclComm **comm, int n, ncclUniqueId id, int rank) {
  const int result = join(id.name, n, rank, comm);
  if (result != kSuccess) return result;
  Shared *shared = (*comm)->shared;
  shared->joined++;
  wait_for(*comm, [=] { return shared->joined >= n; });
  if (rank == 0) shm_unlink(id.name);
  return kSuccess;
}

int ncclCommInitAll(ncclComm **comms, int n, const int *) {
  ncclUniqueId id;
  int result = ncclGetUniqueId(&id);
  for (int i = 0; i < n && result == kSuccess; i++) {
    result = join(id.name, n, i, &comms[i]);
    if (result == kSuccess) comms[i]->of_one_process = true;
  }
  shm_unlink(id.name);
  return result;
}

int ncclCommDestroy(ncclComm *comm) {
  wait_for_graphs();
  for (Call *call : comm->calls) delete call;
  munmap(comm->shared, sizeof(Shared));
  delete comm;
  return kSuccess;
}

/* The memory stays, since a thread may still be on its way out. */
int ncclCommAbort(ncclComm *comm) {
  comm->aborted = true;
  wait_for_graphs();
  return kSuccess;
}

int ncclCommGetAsyncError(ncclComm *, int *error) {
  *error = kSuccess;
  return kSuccess;
}

int ncclAllReduce(const void *from, void *to, size_t n, int type, int, ncclComm *comm, cudaStream_t stream) {
  if (type != 7) return kInvalidArgument;
  return enqueue({Call::kAllReduce, comm, from, to, n * 4, 0}, stream);
}

int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, ncclComm *comm, cudaStream_t stream) {
  if (type != 2) return kInvalidArgument;
  return enqueue({Call::kBroadcast, comm, from, to, n * 4, root}, stream);
}

int ncclSend(const void *from, size_t n, int, int peer, ncclComm *comm, cudaStream_t stream) {
  return enqueue({Call::kSend, comm, from, nullptr, n * 4, peer}, stream);
}

int ncclRecv(void *to, size_t n, int, int peer, ncclComm *comm, cudaStream_t stream) {
  return enqueue({Call::kReceive, comm, nullptr, to, n * 4, peer}, stream);
}

int ncclGroupStart(void) {
  group_depth++;
  return kSuccess;
}

int ncclGroupEnd(void) {
  if (--group_depth > 0) return kSuccess;
  int result = kSuccess;
  for (const auto &call : group)
    if (result == kSuccess && cudaLaunchHostFunc(call.second, run, call.first) != 0) result = 1;
  group.clear();
  return result;
}

} /* extern "C" */
