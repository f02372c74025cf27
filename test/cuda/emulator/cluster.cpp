/* cluster.cpp - barriers in shared memory, delayed copies and stores, and the blocks of a cluster:
 * cuda/kernels/ptx/cluster.cuh, as its comments and the PTX ISA 9.0 define it.
 *
 * Called by: cuda/kernels/ptx/cluster.cuh of the emulator, and emulator.cpp. */
#include "blocks.h"

namespace emulator {

namespace {

constexpr uint32_t kMark = 0xba221e20;       /* upper half of a barrier's 8 bytes */
constexpr int kMostArrivals = (1 << 20) - 1; /* the limit of bytes too: 9.7.13 "mbarrier" */
/* A shared address is an offset into the dynamic memory's slab, or, from kVariables on, the distance of a
 * variable from the thread's anchor; with a peer's rank from bit 24 on. */
constexpr uint32_t kPeer = 0x80000000, kVariables = 0x800000, kWindow = 0x1000000;

void *pointer_in(Worker *w, uint32_t offset) {
  return offset < kShared ? w->shared + offset : w->anchor + (int32_t)(offset - kVariables);
}

uint32_t offset_in(Worker *w, const void *p) {
  const unsigned char *byte = (const unsigned char *)p;
  if (byte >= w->shared && byte < w->shared + kShared) return (uint32_t)(byte - w->shared);
  ptrdiff_t from_anchor = byte - w->anchor;
  ptrdiff_t most = kVariables - kShared;
  if (from_anchor < -most || from_anchor >= most) fail("%p is not shared memory", p);
  return kVariables + (uint32_t)(int32_t)from_anchor;
}

/* The block that an address refers to. */
Worker *owner_of(uint32_t address) {
  return address & kPeer ? peer((int)((address & ~kPeer) / kWindow)) : worker;
}

CountingBarrier &barrier_of(Worker *w, void *at, const char *what) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  uint32_t index = (uint32_t)word;
  if (word >> 32 != kMark || index >= w->counting.size() || w->counting[index].at != at)
    fail("%s at barrier %p (block %d of its cluster), which is not initialised or was written over", what, at,
         w->index % w->home->cluster_size);
  return w->counting[index];
}

void complete_if_all_came(Worker *w, CountingBarrier &b) {
  if (b.pending || b.bytes) return;
  b.phase++;
  b.pending = b.expected;
  progress(w);
  wake(w, b.waiters);
}

void arrive(Worker *w, void *at, long bytes, const char *what) {
  CountingBarrier &b = barrier_of(w, at, what);
  b.bytes += bytes;
  if (b.bytes > kMostArrivals) fail("%s: barrier %p waits for %ld bytes, too many", what, at, b.bytes);
  if (b.pending == 0) fail("%s: barrier %p had all its %d arrivals already", what, at, b.expected);
  b.pending--;
  if (b.pending == 0 && b.bytes < 0)
    fail("%s: barrier %p had %ld more bytes come than were announced", what, at, -b.bytes);
  complete_if_all_came(w, b);
}

void check_place(const char *what, const void *p, int bytes, const void *barrier) {
  if ((uintptr_t)p % (unsigned)bytes) fail("%s: %p is not aligned to %d", what, p, bytes);
  if ((uintptr_t)barrier % 8) fail("%s: barrier %p is not aligned to 8", what, barrier);
}

} // namespace

Worker *peer(int rank) {
  Worker *w = worker;
  int size = w->home->cluster_size;
  if (rank < 0 || rank >= size) fail("block %d of a cluster of %d", rank, size);
  return w->home->blocks[w->index / size * size + rank];
}

void *same_place(Worker *w, const void *p) {
  return pointer_in(w, offset_in(worker, p));
}

void bytes_came(Worker *w, void *at, int bytes, const char *what) {
  CountingBarrier &b = barrier_of(w, at, what);
  b.bytes -= bytes;
  if (b.bytes < -kMostArrivals || (b.pending == 0 && b.bytes < 0))
    fail("%s: barrier %p had %ld more bytes come than were announced", what, at, -b.bytes);
  complete_if_all_came(w, b);
}

/* A quarter land at once, most within some turns, one in sixteen much later: any order may occur. */
void do_later(Worker *to, const char *what, std::function<void()> land) {
  Residents &home = *worker->home;
  uint64_t chance = random_number(home), delay = chance % 4 == 0 ? 0 : chance / 4 % 256;
  if (chance / 1024 % 16 == 0) delay *= 64;
  home.later.emplace(home.clock + delay, Later{what, to, std::move(land)});
  set_stop(home);
}

static std::multimap<uint64_t, Later>::iterator land(Residents &home,
                                                     std::multimap<uint64_t, Later>::iterator which) {
  Later due = std::move(which->second);
  auto next = home.later.erase(which);
  if (due.to->ended) fail("%s lands in a block that has ended", due.what);
  due.land();
  return next;
}

void land_due(Residents &home) {
  while (!home.later.empty() && home.later.begin()->first <= home.clock) land(home, home.later.begin());
}

uint32_t shared_address(const void *p) {
  return offset_in(worker, p);
}

uint32_t peer_address(const void *p, int rank) {
  peer(rank);
  return kPeer | (uint32_t)rank * kWindow | offset_in(worker, p);
}

void *shared_pointer(uint32_t address) {
  return pointer_in(owner_of(address), address % kWindow);
}

/* --- barriers */

void barrier_init(void *barrier, int arrivals) {
  if (arrivals < 1 || arrivals > kMostArrivals) fail("mbarrier.init with %d arrivals", arrivals);
  check_place("mbarrier.init", barrier, 8, barrier);
  Worker *w = worker;
  offset_in(w, barrier);
  for (const CountingBarrier &b : w->counting)
    if (b.at == barrier) fail("mbarrier.init: barrier %p is one already", barrier);
  uint64_t word = (uint64_t)kMark << 32 | w->counting.size();
  memcpy(barrier, &word, sizeof word);
  w->counting.push_back({barrier, arrivals, arrivals, 0, 0, {}});
}

void barrier_arrive(void *barrier, int bytes_to_come) {
  arrive(worker, barrier, bytes_to_come, "mbarrier.arrive");
}

void barrier_arrive_after_copies(void *barrier) {
  Worker *w = worker;
  std::vector<Copy> copies;
  copies.swap(this_fiber().copies);
  do_later(w, "cp.async.mbarrier.arrive", [=]() {
    for (const Copy &c : copies) finish_copy(c);
    arrive(w, barrier, 0, "cp.async.mbarrier.arrive");
  });
}

void arrive_at_peer(uint32_t barrier) {
  Worker *w = owner_of(barrier);
  void *at = shared_pointer(barrier);
  if (w->ended) fail("mbarrier.arrive at block %d of the cluster, which has ended", cluster_rank());
  do_later(w, "mbarrier.arrive", [=]() { arrive(w, at, 0, "mbarrier.arrive"); });
}

bool barrier_test(void *barrier, int parity) {
  CountingBarrier &b = barrier_of(worker, barrier, "mbarrier.test_wait");
  bool done = (int)(b.phase & 1) != parity;
  if (!done) yield("mbarrier.test_wait");
  return done;
}

void barrier_wait(void *barrier, int parity) {
  if (parity != 0 && parity != 1) fail("mbarrier.try_wait for parity %d", parity);
  CountingBarrier &b = barrier_of(worker, barrier, "mbarrier.try_wait");
  wait_while(b.waiters, &b.phase, 1, (unsigned)parity,
             parity ? "mbarrier.try_wait, parity 1," : "mbarrier.try_wait, parity 0,", &b);
  may_fall_behind();
}

/* --- copies */

void copy_bulk(void *to, const void *from, int bytes, void *barrier) {
  check_place("cp.async.bulk", to, 16, barrier);
  if ((uintptr_t)from % 16 || bytes <= 0 || bytes % 16)
    fail("cp.async.bulk of %d bytes from %p: not in units of 16", bytes, from);
  Worker *w = worker;
  offset_in(w, to);
  offset_in(w, (unsigned char *)to + bytes - 1);
  memset(to, 0xff, (size_t)bytes);
  do_later(w, "cp.async.bulk", [=]() {
    memcpy(to, from, (size_t)bytes);
    bytes_came(w, barrier, bytes, "cp.async.bulk");
  });
}

void send(uint32_t to, const void *value, int bytes, uint32_t barrier) {
  Worker *w = owner_of(to);
  if (owner_of(barrier) != w) fail("st.async to one block that counts in another");
  void *place = shared_pointer(to), *at = shared_pointer(barrier);
  check_place("st.async", place, bytes, at);
  if (w->ended) fail("st.async to block %d of the cluster, which has ended", cluster_rank());
  struct {
    unsigned char bytes[16];
  } kept;
  memcpy(kept.bytes, value, (size_t)bytes);
  memset(place, 0xff, (size_t)bytes);
  do_later(w, "st.async", [=]() {
    memcpy(place, kept.bytes, (size_t)bytes);
    bytes_came(w, at, bytes, "st.async");
  });
}

/* --- clusters */

int cluster_rank() {
  return worker->index % worker->home->cluster_size;
}

static void release_cluster(Worker *w) {
  ClusterBarrier &c = *w->cluster;
  if (c.arrived == 0 || c.arrived < c.live) return;
  c.arrived = 0;
  c.generation++;
  progress(w);
  const int size = w->home->cluster_size, first = w->index / size * size;
  for (int i = first; i < first + size; i++) wake(w->home->blocks[i], w->home->blocks[i]->at_cluster);
}

void cluster_arrive() {
  Fiber &f = this_fiber();
  if (f.at_cluster_barrier) fail("barrier.cluster.arrive twice without a wait between");
  ClusterBarrier &c = *worker->cluster;
  f.at_cluster_barrier = true;
  f.cluster_generation = c.generation;
  c.arrived++;
  release_cluster(worker);
}

void cluster_wait() {
  Fiber &f = this_fiber();
  if (!f.at_cluster_barrier) fail("barrier.cluster.wait without an arrive");
  wait_while(worker->at_cluster, &worker->cluster->generation, ~0u, f.cluster_generation,
             "barrier.cluster.wait");
  f.at_cluster_barrier = false;
}

void leave_cluster(Worker *w, Fiber &fiber) {
  ClusterBarrier &c = *w->cluster;
  c.live--;
  if (fiber.at_cluster_barrier && fiber.cluster_generation == c.generation) c.arrived--;
  release_cluster(w);
}

} // namespace emulator
