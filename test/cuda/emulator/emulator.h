/* emulator.h - CUDA kernels as ordinary C++, run by the processor: for testing them without a GPU.
 *
 * The headers in this folder stand in for CUDA's (cuda_runtime.h, cuda_fp16.h, ...) and for the project's own
 * headers of PTX (kernels/ptx/ptx.cuh, ...), so that every .cu file compiles with g++ as it is, but for two
 * spellings that scripts/emulate.sed rewrites. A kernel then runs as follows:
 *
 *   thread   a fiber; from its first turn to its end it has a stack, which threads that never wait share
 *   warp     32 fibers that meet where the instruction requires it (shuffles, ldmatrix, mma); the last to
 *            arrive does the work
 *   block    its fibers take turns on one host thread; __shared__ variables are thread-local there. Each
 *            block of a launch without clusters has its own random order of warps and of lanes, and at
 *            random either lets a warp run until it must wait (far ahead of the others) or advances all
 *            warps alike
 *   grid     its blocks run in any order on several host threads, so a kernel whose blocks wait for each
 *            other hangs here (and is reported: see `yield`)
 *   cluster  of a grid launched with clusters as many blocks are resident as the chip has room for, in
 *            whole clusters, so they may wait for each other. One of them runs at a time, each on a host
 *            thread of its own: until all its threads wait, then a random one that can go on.
 *            EMULATED_BEHIND=1: now and then a thread that a barrier lets go on lags the others of
 *            its warp, which only __syncwarp() and the like hold together (steps take twice the time)
 *   stream   everything is done when the call returns; during a graph capture it is only recorded
 *
 * All random choices are the same in every run; EMULATED_SEED=N makes others.
 *
 * It is stricter than a GPU: shared memory begins as NaN and ends before an inaccessible page. Device memory
 * begins as NaN, and each cudaMalloc has guards before and after it (runtime.cpp): a write there aborts with
 * the kernel's name, and a read finds NaN. Parts that a caller cuts such memory into have no guards. cp.async
 * copies when it is waited for and not before; a warp that does not meet aborts with the kernel's name. Bulk
 * copies, stores and arrivals at a peer land later, in any order. The destination of a copy is NaN from the
 * request on; a barrier in shared memory that is not initialised, or counts below zero, aborts. wgmma reads
 * and adds when it is waited for; its sums are NaN until then. Not emulated: timing, and memory order between
 * blocks other than through atomics. */
#pragma once

#include <functional>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda_runtime_api.h"

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace emulator {

/* Indices of a thread, which its fiber carries. */
struct Place {
  uint3 thread, block;
  dim3 block_size, grid_size;
  unsigned lane; /* of its warp */
};
extern __thread const Place *place; /* of the fiber that runs on this host thread */
inline const Place &here() {
  return *place;
}

/* The dynamic shared memory of the block that runs on this host thread. */
unsigned char *dynamic_shared();
/* A 32-bit address of shared memory, of this block or of a peer in the cluster, and back to a pointer. */
uint32_t shared_address(const void *p);
uint32_t peer_address(const void *p, int rank);
void *shared_pointer(uint32_t address);

/* Lets the other threads of the block run; a fiber that waits calls it until its condition holds. Aborts,
 * naming `what`, once the block has made no progress for a long time. */
void yield(const char *what);
/* Reads `bytes` bytes (at most 16) that others may write meanwhile. A thread that reads the same value there
 * again waits until one of the values it read since its last wait has changed. */
void poll(const void *at, void *to, int bytes);
/* Called where a thread stores what others of its device poll. */
void stored();
/* The same as poll() of what another device writes, which may take long. */
void poll_elsewhere(const void *at, void *to, int bytes);

/* Waits for all threads of the block that have not ended. */
void sync_block();
/* Waits for `threads` threads at barrier `id` of the block (bar.sync). */
void named_barrier_sync(int id, int threads);
void named_barrier_arrive(int id, int threads);

/* Waits for all lanes of `mask`. Each brings a value of `size` bytes (at most 64). The values of all
 * lanes, 64 bytes each, stay valid until the caller meets with the same mask again. The last to arrive runs
 * `work`, if any, before the others go on. */
typedef void (*WarpWork)(unsigned char (*values)[64]);
unsigned char (*meet(unsigned mask, const void *value, size_t size, WarpWork work, const char *what))[64];

/* A copy that is made when this thread waits for it. */
void copy_later(void *to, const void *from, int bytes, int total);
void copies_commit();
void copies_wait(int newest);

/* --- clusters, and barriers in shared memory: cuda/kernels/ptx/cluster.cuh */
int cluster_rank();
void cluster_arrive();
void cluster_wait();
void barrier_init(void *barrier, int arrivals);
void barrier_arrive(void *barrier, int bytes_to_come);
void barrier_arrive_after_copies(void *barrier);
void arrive_at_peer(uint32_t barrier);
bool barrier_test(void *barrier, int parity);
void barrier_wait(void *barrier, int parity);
void copy_bulk(void *to, const void *from, int bytes, void *barrier);
void send(uint32_t to, const void *value, int bytes, uint32_t barrier);

/* --- tensor maps, and matmuls of a warpgroup: cuda/kernels/ptx/wgmma.cuh */
void copy_box(void *to, const void *map, void *barrier, int column, int row, int plane);
void copy_box_to_pair(void *to, const void *map, void *barrier, int column, int row);
long copies_to_pairs(); /* how many so far */
void wgmma_fence();
/* Operand a is in registers, or NULL and described by a_rows. */
void wgmma(float *sums, int columns, const uint32_t *a, uint64_t a_rows, uint64_t b, bool b_by_columns,
           bool add);
void wgmma(int *sums, int columns, const uint32_t *a, uint64_t b, bool add); /* of bytes, a unsigned */
void wgmma(int *sums, int columns, uint64_t a_rows, uint64_t b, bool add);   /* signed ones */
void wgmma_commit();
void wgmma_wait(int newest);
void registers_up_to(int n);
void registers_down_to(int n);

struct Launch {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  int cluster = 0;     /* blocks of a cluster, 0: a grid without clusters */
  int at_once = 0;     /* resident blocks of a grid with clusters */
  uint64_t chance = 0; /* seed of its orders, another one for each launch */
};
/* A pseudo-random number, a function of `chance` and `which`. */
uint64_t scrambled(uint64_t chance, uint64_t which);
/* Properties of a kernel apart from its code. */
void allow_large_clusters(const void *kernel);
int most_clusters(const Launch &launch);
/* Runs, or records, one kernel: `thread` is the body of each thread, `kernel` its address if known. */
cudaError_t run(const Launch &launch, const char *name, std::function<void()> thread,
                const void *kernel = nullptr);

/* kernel<<<grid, block, shared, stream>>>(arguments), as scripts/emulate.sed rewrites it: calls `kernel`. */
struct Launcher {
  Launch launch;
  template <class Kernel, class... Arguments>
  void operator()(const char *name, Kernel kernel, Arguments... arguments) {
    run(launch, name, [=]() { kernel(arguments...); });
  }
};
inline Launcher launcher(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr) {
  return Launcher{{grid, block, shared, stream}};
}

} // namespace emulator
