/* cluster.cuh - the emulator's form of cuda/kernels/ptx/cluster.cuh; the work is in cluster.cpp. */
#pragma once

#include "cuda/kernels/ptx/ptx.cuh"

struct SharedBarrier {
  void *at;
  SharedBarrier(uint32_t address) : at(emulator::shared_pointer(address)) {}
  SharedBarrier(uint64_t *barrier) : at(barrier) {}
};

inline void barrier_init(SharedBarrier barrier, int arrivals) {
  emulator::barrier_init(barrier.at, arrivals);
}

inline void barrier_init_fence() {}

inline void barrier_arrive(SharedBarrier barrier) {
  emulator::barrier_arrive(barrier.at, 0);
}

inline void barrier_arrive_after_reads(SharedBarrier barrier, bool arrives, uint32_t) {
  if (arrives) barrier_arrive(barrier);
}

inline void barrier_arrive_at_peer(uint32_t barrier) {
  emulator::arrive_at_peer(barrier);
}

inline void barrier_expect(SharedBarrier barrier, int bytes) {
  emulator::barrier_arrive(barrier.at, bytes);
}

inline void barrier_arrive_after_copies(SharedBarrier barrier) {
  emulator::barrier_arrive_after_copies(barrier.at);
}

inline bool barrier_test(SharedBarrier barrier, int parity) {
  return emulator::barrier_test(barrier.at, parity);
}

inline void barrier_wait(SharedBarrier barrier, int parity) {
  emulator::barrier_wait(barrier.at, parity);
}

inline uint64_t stream_policy() {
  return 0;
}

inline void copy_bulk(void *to, const void *from, int bytes, uint64_t *barrier) {
  emulator::copy_bulk(to, from, bytes, barrier);
}

inline void copy_box(uint32_t to, const void *map, uint32_t barrier, int column, int row, int plane,
                     uint64_t) {
  emulator::copy_box(emulator::shared_pointer(to), map, emulator::shared_pointer(barrier), column, row,
                     plane);
}

inline void copy_bulk(uint32_t to, const void *from, int bytes, uint32_t barrier, uint64_t) {
  emulator::copy_bulk(emulator::shared_pointer(to), from, bytes, emulator::shared_pointer(barrier));
}

inline void prefetch_bulk(const void *, int) {}

inline uint32_t peer_address(const void *p, int rank) {
  return emulator::peer_address(p, rank);
}

inline void send_4(uint32_t to, uint32_t v, uint32_t barrier) {
  emulator::send(to, &v, 4, barrier);
}

inline void send_8(uint32_t to, uint2 v, uint32_t barrier) {
  emulator::send(to, &v, 8, barrier);
}

inline void send_16(uint32_t to, uint4 v, uint32_t barrier) {
  emulator::send(to, &v, 16, barrier);
}

inline int cluster_rank() {
  return emulator::cluster_rank();
}

inline void cluster_arrive() {
  emulator::cluster_arrive();
}
inline void cluster_arrive_relaxed() {
  emulator::cluster_arrive();
}
inline void cluster_wait() {
  emulator::cluster_wait();
}
inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

template <int id, int threads> void named_barrier_sync() {
  emulator::named_barrier_sync(id, threads);
}

template <int id, int threads> void named_barrier_arrive() {
  emulator::named_barrier_arrive(id, threads);
}

template <int threads> void named_barrier_sync(int id) {
  emulator::named_barrier_sync(id, threads);
}

template <int threads> void named_barrier_arrive(int id) {
  emulator::named_barrier_arrive(id, threads);
}

inline ulonglong2 load_relaxed_16(const void *p) {
  ulonglong2 v;
  emulator::poll(p, &v, sizeof v);
  return v;
}

inline uint64_t load_relaxed_8(const void *p) {
  uint64_t v;
  emulator::poll(p, &v, sizeof v);
  return v;
}

inline void store_relaxed_8(void *p, uint64_t v) {
  __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELAXED);
  emulator::stored();
}

inline void store_relaxed_16(void *p, ulonglong2 v) {
  memcpy(p, &v, sizeof v);
  emulator::stored();
}

inline void add_relaxed_8(uint64_t *p, uint64_t v) {
  __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
  emulator::stored();
}

inline void backoff() {
  __nanosleep(20);
}

template <int n> void registers_up_to() {
  static_assert(n >= 24 && n <= 256 && n % 8 == 0, "9.7.18 setmaxnreg");
  emulator::registers_up_to(n);
}

template <int n> void registers_down_to() {
  static_assert(n >= 24 && n <= 256 && n % 8 == 0, "9.7.18 setmaxnreg");
  emulator::registers_down_to(n);
}
