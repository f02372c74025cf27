/* resident.cpp - resident blocks, which may wait for each other: see emulator.h, "cluster".
 *
 * Called by: emulator.cpp.
 * Always true: the host thread whose block has the turn runs, all others wait for theirs. */
#include "blocks.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <thread>
#include <unistd.h>

namespace emulator {

static Worker *choose_block(Residents &home, Worker *w, bool yielded);

namespace {

/* How often all threads that wait for memory are asked again before it is a hang: if all blocks are resident
 * only they can change it, else another host thread may. */
constexpr long kAsked = 10'000, kAskedAlone = 5'000'000;
/* The same while they wait for another device, with a pause before each. */
constexpr long kAskedElsewhere = 3'000'000;
constexpr int kPauseMicroseconds = 20;
constexpr long kTurns = 4096;         /* of threads that poll, before another block has its turn */
constexpr unsigned kSlow = 2048;      /* one in so many threads falls behind when a barrier lets it go on, */
constexpr uint64_t kBehind = 1 << 20; /* by up to so many turns, or until all others wait */
/* One in half so many turns goes to another block for no reason, or to a random thread if the block jumps. */
constexpr unsigned kSurprise = 4096, kJump = 128;

void take(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0 && errno == EINTR) {
  }
}

bool polls_in_vain(const Fiber &f) {
  for (const Poll &poll : f.polls)
    if (memcmp(poll.at, poll.value, (size_t)poll.bytes) != 0) return false;
  return true;
}

/* Wakes the threads whose memory has changed. Blocks that take turns count what they store there; others may
 * run beside this one. */
void look_at_polls(Worker *w) {
  const Residents &home = *w->home;
  if (home.blocks.size() > 1 && !home.elsewhere && w->looked == home.stores) return;
  w->looked = home.stores;
  for (unsigned warps = w->polls.warps; warps; warps &= warps - 1) {
    const int warp = __builtin_ctz(warps);
    for (unsigned lanes = w->polls.lanes[warp]; lanes; lanes &= lanes - 1) {
      const int lane = __builtin_ctz(lanes);
      if (polls_in_vain(w->fibers[warp * 32 + lane])) continue;
      w->polls.lanes[warp] &= ~(1u << lane);
      w->warps[warp].ready |= 1u << lane;
      w->ready |= 1u << warp;
    }
    if (!w->polls.lanes[warp]) w->polls.warps &= ~(1u << warp);
  }
}

bool can_go(Worker *w) {
  if (w->ended) return false;
  if (!w->ready) look_at_polls(w);
  return w->ready;
}

/* Lets all threads that wait for memory look again; false if there are none. */
bool ask_again(Residents &home) {
  bool any = false;
  for (Worker *w : home.blocks) {
    any |= w->polls.warps != 0;
    wake(w, w->polls);
  }
  return any;
}

Worker *another_that_can_go(Residents &home, Worker *w) {
  size_t n = home.blocks.size(), first = random_number(home) % n;
  for (size_t i = 0; i < n; i++) {
    Worker *other = home.blocks[(first + i) % n];
    if (other == w || !can_go(other)) continue;
    other->next = next_fiber(other, other->current, false);
    return other;
  }
  return nullptr;
}

void tell_barrier(const CountingBarrier &b) {
  fprintf(stderr, " at %p: phase %u, %d of %d arrivals and %ld bytes to come", b.at, b.phase, b.pending,
          b.expected, b.bytes);
}

void tell_block(Worker *w) {
  const int n = w->n_warps * 32;
  std::vector<bool> told((size_t)n);
  for (int i = 0; i < n; i++) {
    const Fiber &f = w->fibers[i];
    if (!f.stack_pointer || told[i]) continue;
    int alike = 0;
    for (int j = i; j < n; j++) {
      const Fiber &g = w->fibers[j];
      if (!g.stack_pointer || told[j] || strcmp(g.what, f.what) != 0 || g.about != f.about) continue;
      told[j] = true;
      alike++;
    }
    uint3 t = f.place.thread;
    fprintf(stderr, "emulator:   block %u: thread (%u, %u, %u)", f.place.block.x, t.x, t.y, t.z);
    if (alike > 1) fprintf(stderr, " and %d more wait in %s", alike - 1, f.what);
    if (alike == 1) fprintf(stderr, " waits in %s", f.what);
    if (f.about) tell_barrier(*(const CountingBarrier *)f.about);
    fprintf(stderr, "\n");
  }
}

/* A host thread that runs resident blocks, one after another. */
struct Host {
  Worker *worker;
  const Launch *launch;
  const char *name;
  const std::function<void()> *thread;
  Residents *home;
  uint3 block;
  int index;
  sem_t work, ready;
};

void run_host(Host *host) {
  host->worker = this_worker();
  for (;;) {
    take(&host->work);
    Worker *w = host->worker;
    prepare_block(w, *host->launch, host->name, *host->thread, host->block);
    w->home = host->home;
    w->index = host->index;
    w->looked = 0;
    w->cluster = &w->home->clusters[w->index / w->home->cluster_size];
    sem_post(&host->ready);
    take(&w->turn);
    run_prepared_block(w);
    if (--w->home->n_left == 0)
      sem_post(&w->home->over);
    else
      sem_post(&choose_block(*w->home, nullptr, false)->turn);
  }
}

Host *host_of(int index) {
  thread_local std::vector<Host *> hosts; /* of the thread that launches: devices run at the same time */
  while ((int)hosts.size() <= index) {
    Host *host = new Host();
    sem_init(&host->work, 0, 0);
    sem_init(&host->ready, 0, 0);
    hosts.push_back(host);
    std::thread(run_host, host).detach();
  }
  return hosts[index];
}

/* Runs blocks first .. first + n - 1 of the grid to their end. */
void run_together(const Launch &launch, const char *name, const std::function<void()> &thread, int first,
                  int n) {
  Residents home = {};
  home.stores = 1;
  home.cluster_size = launch.cluster;
  home.random = scrambled(launch.chance, ~(uint64_t)first) | 1;
  home.n_left = n;
  home.clusters.assign((size_t)(n / launch.cluster),
                       {0, (int)(launch.block.x * launch.block.y * launch.block.z) * launch.cluster, 0});
  sem_init(&home.over, 0, 0);
  for (int i = 0; i < n; i++) {
    Host *host = host_of(i);
    host->launch = &launch;
    host->name = name;
    host->thread = &thread;
    host->home = &home;
    host->block = {(unsigned)(first + i), 0, 0};
    host->index = i;
    sem_post(&host->work);
  }
  for (int i = 0; i < n; i++) {
    take(&host_of(i)->ready);
    home.blocks.push_back(host_of(i)->worker);
  }
  sem_post(&home.blocks[random_number(home) % (unsigned)n]->turn);
  take(&home.over);
  home.clock = ~(uint64_t)0;
  land_due(home);
  sem_destroy(&home.over);
}

} // namespace

uint64_t random_number(Residents &home) {
  uint64_t &r = home.random;
  r ^= r << 13, r ^= r >> 7, r ^= r << 17;
  return r >> 16;
}

void may_fall_behind() {
  Worker *w = worker;
  Residents &home = *w->home;
  static const bool wanted = getenv("EMULATED_BEHIND") != nullptr;
  if (!wanted || home.blocks.size() < 2 || random_number(home) % kSlow) return;
  unsigned caught_up = 0;
  Waiters waiters = {};
  home.later.emplace(home.clock + random_number(home) % kBehind,
                     Later{"a thread that has fallen behind", w, [&]() {
                             caught_up = 1;
                             wake(w, waiters);
                           }});
  set_stop(home);
  wait_while(waiters, &caught_up, ~0u, 0, "nothing: it has fallen behind");
}

void set_stop(Residents &home) {
  home.stop = home.surprise;
  if (!home.later.empty() && home.later.begin()->first < home.stop) home.stop = home.later.begin()->first;
}

/* All threads wait, for the n-th time without progress. */
static void note_standstill(Residents &home, long most) {
  if (++home.stuck > (home.elsewhere ? kAskedElsewhere : most)) tell_hang(home);
  if (home.elsewhere) usleep(kPauseMicroseconds);
}

/* The block whose turn is next, and its thread (Worker::next): `w` (may be NULL) if it can go on. Lands what
 * is due. */
static Worker *choose_block(Residents &home, Worker *w, bool yielded) {
  const bool several = home.blocks.size() > 1, jumps = w && w->jumps;
  bool surprised = home.clock >= home.surprise;
  if (surprised && w) look_at_polls(w);
  if (surprised) home.surprise = home.clock + 1 + random_number(home) % (jumps ? kJump : kSurprise);
  for (;;) {
    land_due(home);
    if (w && several && (w->idle > kTurns || surprised)) {
      if (w->idle > kTurns) note_standstill(home, kAsked);
      w->idle = 0;
      surprised = false;
      Worker *other = another_that_can_go(home, w);
      if (other) return other;
    }
    if (w && can_go(w)) {
      const int from =
          surprised && jumps ? (int)(random_number(home) % (unsigned)(w->n_warps * 32)) : w->current;
      w->next = next_fiber(w, from, w->runs_ahead && !yielded);
      return w;
    }
    Worker *other = several ? another_that_can_go(home, w) : nullptr;
    if (other) return other;
    if (!home.later.empty()) {
      home.clock = home.later.begin()->first;
      continue;
    }
    note_standstill(home, several ? kAsked : kAskedAlone);
    if (!ask_again(home)) tell_hang(home);
    if (!several) sched_yield();
  }
}

int choose_turn(Worker *w, bool yielded) {
  Worker *next = choose_block(*w->home, w, yielded);
  set_stop(*w->home);
  if (next != w) {
    sem_post(&next->turn);
    take(&w->turn);
  }
  return w->next;
}

void tell_hang(Residents &home) {
  fprintf(stderr, "emulator: %s: nobody can go on\n", home.blocks[0]->name);
  for (Worker *w : home.blocks)
    if (!w->ended) tell_block(w);
  abort();
}

void run_residents(const Launch &launch, const char *name, const std::function<void()> &thread) {
  int n = (int)launch.grid.x, at_once = launch.at_once;
  for (int first = 0; first < n; first += at_once)
    run_together(launch, name, thread, first, n - first < at_once ? n - first : at_once);
}

} // namespace emulator
