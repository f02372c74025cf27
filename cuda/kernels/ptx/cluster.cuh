/* cluster.cuh - instructions of compute capability 9.0: mbarriers that count bytes, bulk copies, clusters,
 * stores into a peer's shared memory, relaxed loads and stores between clusters, and register reallocation.
 *
 * For code compiled for sm_90 and later: a kernel keeps its body within `#if __CUDA_ARCH__ >= 900`. A name
 * after PTX is that of an instruction or chapter of the PTX ISA manual. A barrier is 8 bytes of shared
 * memory, 8-byte aligned. Its phase completes when all arrivals of barrier_init and all announced bytes have
 * come; the next phase begins at once. As long as an arrival is missing, bytes are allowed to come before
 * they are announced.
 *
 * A ring of n slots: stage i is in slot i % n, in turn t = i / n of the slot. Phase t of `full` is the fill
 * of turn t, phase t of `empty` its release, and a wait names the parity of a phase:
 *
 *     who fills   wait empty, parity (t + 1) % 2 -> copies, which complete full
 *     who reads   wait full, parity t % 2        -> reads, then arrives at empty
 *
 * A wait for parity 1 of a new barrier ends at once, so turn 0 is filled without a wait. The file that owns a
 * ring draws it: who fills, who waits, who frees, and how many arrive. A wait knows a phase only by its
 * parity, so it must be for the current phase or the one before. */
#pragma once

#include "cuda/kernels/ptx/ptx.cuh"

/* --- barriers in shared memory that count arrivals and bytes: PTX "mbarrier" */

/* The shared_address() of a barrier: functions take either this address or a pointer to the barrier. */
struct SharedBarrier {
  uint32_t address;
  __device__ __forceinline__ SharedBarrier(uint32_t at) : address(at) {}
  __device__ __forceinline__ SharedBarrier(const uint64_t *at) : address(shared_address(at)) {}
};

__device__ __forceinline__ void barrier_init(SharedBarrier barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier.address), "r"(arrivals));
}

/* Makes initialised barriers visible to peers and copies: after barrier_init, before cluster_sync. */
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(SharedBarrier barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier.address) : "memory");
}

/* barrier_arrive() if `arrives`, but not before the thread knows `read`, a value that it computed from
 * numbers in shared memory. The value does not matter; it is a fake dependence. A plain arrival, though a
 * release, does not wait for the thread's loads in flight, and ptxas moves it above their first use. The copy
 * that the arrival permits could then overtake the loads. Without the dependence planes_wgmma scaled products
 * with the scales of a later unit, once in 300 launches; with it never (LOG.md, "Faults that were hard to
 * see"). */
__device__ __forceinline__ void barrier_arrive_after_reads(SharedBarrier barrier, bool arrives,
                                                           uint32_t read) {
  asm volatile("{\n.reg .pred arrives, any, none;\nsetp.ne.u32 arrives, %1, 0;\n"
               "setp.ne.and.u32 any, %2, 0, arrives;\nsetp.eq.and.u32 none, %2, 0, arrives;\n"
               "@any mbarrier.arrive.shared.b64 _, [%0];\n@none mbarrier.arrive.shared.b64 _, [%0];\n}" ::"r"(
                   barrier.address),
               "r"((uint32_t)arrives), "r"(read)
               : "memory");
}

/* Arrives at a barrier of a peer, given by its peer_address(). Relaxed: a release would wait for all memory
 * operations that the thread has in flight (1,000 cycles while weights stream). */
__device__ __forceinline__ void barrier_arrive_at_peer(uint32_t barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives and announces `bytes` more bytes for this phase. */
__device__ __forceinline__ void barrier_expect(SharedBarrier barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier.address), "r"(bytes)
               : "memory");
}

/* One of barrier_init's arrivals. It is made when all copy_async_ of this thread so far have landed. */
__device__ __forceinline__ void barrier_arrive_after_copies(SharedBarrier barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier.address) : "memory");
}

/* True if the phase of this parity is complete. Only the current phase and the one before it can be
 * tested. */
__device__ __forceinline__ bool barrier_test(SharedBarrier barrier, int parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
               "selp.b32 %0, 1, 0, done;\n}"
               : "=r"(done)
               : "r"(barrier.address), "r"(parity)
               : "memory");
  return done != 0;
}

/* Waits until the phase of this parity is complete. */
__device__ __forceinline__ void barrier_wait(SharedBarrier barrier, int parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier.address),
               "r"(parity)
               : "memory");
}

/* L2 policy for data that is read once: evicted first. PTX "createpolicy". */
__device__ __forceinline__ uint64_t stream_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* --- copies that complete on a barrier */

/* Copies contiguous bytes to this block; `bytes` and both addresses are multiples of 16. PTX
 * "cp.async.bulk". */
__device__ __forceinline__ void copy_bulk(void *to, const void *from, int bytes, uint64_t *barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
/* copy_bulk() with `to` and `barrier` as shared_address()es; policy: stream_policy(). */
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, int bytes, uint32_t barrier,
                                          uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
               "%2, [%3], %4;" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}

/* Copies the box at (column, row, plane) of the stack of matrices that a tensor map describes; `to` and
 * `barrier` are shared_address()es. PTX "cp.async.bulk.tensor". */
__device__ __forceinline__ void copy_box(uint32_t to, const void *map, uint32_t barrier, int column, int row,
                                         int plane, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(plane), "l"(policy)
               : "memory");
}

/* Brings `bytes` of device memory, a multiple of 16, into L2. PTX "cp.async.bulk.prefetch". */
__device__ __forceinline__ void prefetch_bulk(const void *from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* Address of p's counterpart in the shared memory of block `rank` of the cluster, for send_ functions and
 * barrier_arrive_at_peer(). PTX "mapa". */
__device__ __forceinline__ uint32_t peer_address(const void *p, int rank) {
  uint32_t r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(shared_address(p)), "r"(rank));
  return r;
}

/* Stores 4, 8 or 16 bytes, aligned to their size, in a peer's shared memory, and counts them on a barrier of
 * that peer; `to` and `barrier` are peer_address()es. Stores arrive in any order. PTX "st.async". */
__device__ __forceinline__ void send_4(uint32_t to, uint32_t v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(v),
               "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void send_8(uint32_t to, uint2 v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void send_16(uint32_t to, uint4 v, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
      : "memory");
}

/* --- clusters: PTX "special registers" and "barrier.cluster" */

/* Rank of this block in its cluster. */
__device__ __forceinline__ int cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return (int)r;
}

/* cluster_wait() returns when all threads of the cluster have arrived. A thread arrives and waits
 * alternately, all lanes of a warp together. */
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/* cluster_arrive() of a thread whose earlier stores need not be visible after the wait. A release would wait
 * for the stores and for loads in flight. For initialised barriers, barrier_init_fence() is enough. */
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

/* --- named barriers of kThreads threads of the block, in whole warps; kId 1 .. 15, as 0 is __syncthreads():
 * PTX "bar" */

template <int kId, int kThreads> __device__ __forceinline__ void named_barrier_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

/* Arrives at a named barrier without waiting. */
template <int kId, int kThreads> __device__ __forceinline__ void named_barrier_arrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

/* The two functions above for an id that is not known at compile time. A branch between ids would make ptxas
 * wait for wgmma in flight. */
template <int kThreads> __device__ __forceinline__ void named_barrier_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

template <int kThreads> __device__ __forceinline__ void named_barrier_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

/* --- device memory that other clusters write while this one reads it: PTX "ld", "memory model"
 *
 * Relaxed: each 8 bytes are read whole, bypassing L1, but the access does not order others. The value itself
 * must show that it has been written. */
__device__ __forceinline__ ulonglong2 load_relaxed_16(const void *p) {
  ulonglong2 v;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ uint64_t load_relaxed_8(const void *p) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed_8(void *p, uint64_t v) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ void store_relaxed_16(void *p, ulonglong2 v) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(v.x), "l"(v.y) : "memory");
}

/* *p += v, atomic against all clusters. PTX "red". */
__device__ __forceinline__ void add_relaxed_8(uint64_t *p, uint64_t v) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/* Backoff between two polls of memory that many threads poll. PTX "nanosleep". */
__device__ __forceinline__ void backoff() {
  __nanosleep(20);
}

/* --- registers moved between the warpgroups of a block: PTX "setmaxnreg", sm_90a only. On other targets
 * every thread keeps the registers it started with. */

template <int kN> __device__ __forceinline__ void registers_up_to() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kN));
#endif
}

template <int kN> __device__ __forceinline__ void registers_down_to() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kN));
#endif
}
