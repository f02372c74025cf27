/* emulator.h - CUDA kernels as ordinary C++, run by the processor: for testing them where there is no GPU.
 *
 * The headers in this folder stand in for CUDA's (cuda_runtime.h, cuda_fp16.h, ...) and for the project's own
 * headers of PTX (cuda/ptx/ptx.cuh, ...), so that every .cu file compiles with g++ as it is, but for two
 * spellings that scripts/emulate.sed rewrites. What a kernel then does:
 *
 *   thread   a fiber with a stack of its own
 *   warp     32 fibers that meet where the instruction says so (shuffles, ldmatrix, mma); the last to come
 *            does the work
 *   block    its fibers take turns on one thread of the host; __shared__ variables are that thread's own.
 *            Each block of each launch without clusters has an order of its own, by chance: of warps, of
 *            lanes, and whether a warp goes on until it must wait (far ahead of the others) or all warps go
 *            on alike
 *   grid     its blocks run in any order on several threads of the host, so a kernel whose blocks wait for
 *            each other hangs here (and is told: see `yield`)
 *   cluster  a grid launched with clusters has as many of its blocks there at once as the chip has room for,
 *            whole clusters, so they may wait for each other. One of them runs at a time, each on a thread of
 *            the host: until all its threads wait, then another, by chance, that can go on
 *   stream   everything is done when the call returns; while a graph is captured it is only written down
 *
 * All chance is the same in every run; EMULATED_SEED=N is another one.
 *
 * Strict where a GPU is lenient: shared memory begins as NaN and ends before a page that may not be touched.
 * Device memory begins as NaN, and what one cudaMalloc gives has guards before and after it (runtime.cpp): a
 * write there ends the program by name, and a read finds NaN. Between the pieces that a caller cuts such
 * memory into there are none. cp.async copies when it is waited for and not before; a warp that
 * does not meet ends the program by name. Bulk copies, stores and arrivals at a peer land later, in any
 * order. Where a copy will land is NaN from the moment it is asked for; a barrier in shared memory that is
 * not initialised, or counts below nothing, ends the program by name. wgmma reads and adds when it is waited
 * for; its sums are NaN until then. Not here: timing, memory order between blocks other than through
 * atomics. */
#ifndef EMULATOR_H
#define EMULATOR_H

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

/* What a fiber knows of its place. */
struct Place {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
extern __thread const Place *place; /* of the fiber that runs on this thread of the host */
inline const Place &here() {
  return *place;
}

/* The dynamic shared memory of the block that runs on this thread of the host. */
unsigned char *dynamic_shared();
/* A 32-bit address of shared memory, of this block's as of a peer's in the cluster, and back to what it
 * points at. */
uint32_t shared_address(const void *p);
uint32_t peer_address(const void *p, int rank);
void *shared_pointer(uint32_t address);

/* Lets the other threads of the block go on; a fiber that waits calls it until what it waits for is there.
 * Ends the program, naming `what`, once nobody in the block has gone anywhere for a long time. */
void yield(const char *what);
/* Reads `bytes` bytes (at most 16) that others may write meanwhile. A thread that reads the same there again
 * waits until something it read so, since it last waited, is another. */
void poll(const void *at, void *to, int bytes);

/* Waits for all threads of the block that have not ended. */
void sync_block();
/* Waits for `threads` threads at barrier `id` of the block (bar.sync). */
void sync_some(int id, int threads);
void arrive_some(int id, int threads);

/* Waits for all lanes of `mask`, each of which brings a value of `size` bytes (at most 64); the values of all
 * lanes, 64 bytes each, are there until the caller meets with the same mask again. The last to arrive runs
 * `work`, if any, before anybody goes on. */
typedef void (*WarpWork)(unsigned char (*values)[64]);
unsigned char (*meet(unsigned mask, const void *value, size_t size, WarpWork work, const char *what))[64];

/* A copy that is made when this thread waits for it. */
void copy_later(void *to, const void *from, int bytes, int total);
void copies_commit();
void copies_wait(int newest);

/* --- clusters, and barriers in shared memory: cuda/ptx/cluster.cuh */
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

/* --- tensor maps, and products of a warpgroup: cuda/ptx/wgmma.cuh */
void copy_box(void *to, const void *map, void *barrier, int column, int row);
void wgmma_fence();
void wgmma(float *sums, int columns, const uint32_t *a, uint64_t b, bool add);
void wgmma_commit();
void wgmma_wait(int newest);
void registers_up_to(int n);
void registers_down_to(int n);

struct Launch {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  int cluster = 0;     /* blocks of one, 0: a grid without */
  int at_once = 0;     /* blocks that are there at once, then */
  uint64_t chance = 0; /* that its orders come from: another one for each launch */
};
/* A number that depends on `chance` and on `which` alone, and looks like chance. */
uint64_t scrambled(uint64_t chance, uint64_t which);
/* What is known of a kernel beside its code. */
void allow_large_clusters(const void *kernel);
int most_clusters(const Launch &launch);
/* Runs, or writes down, one kernel: `thread` is what each of its threads does, `kernel` its address if it is
 * known. */
cudaError_t run(const Launch &launch, const char *name, std::function<void()> thread,
                const void *kernel = nullptr);

/* kernel<<<grid, block, shared, stream>>>(arguments), as scripts/emulate.sed has it: `kernel` calls it. */
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

#endif
