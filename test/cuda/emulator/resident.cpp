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
constexpr unsigned kSurprise = 2048;  /* one in so many turns goes to another block for no reason */

void take(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0 && errno == EINTR) {
  }
}

bool polls_in_vain(const Worker *w, int i) {
  for (const Poll &poll : w->fibers[i].polls)
    if (memcmp(poll.at, poll.value, (size_t)poll.bytes) != 0) return false;
  return true;
}

inline bool waits(const Worker *w, int i) {
  const Wait &wait = w->waits[i];
  return wait.watched ? (*wait.watched & wait.mask) == wait.old : polls_in_vain(w, i);
}

/* Lets all threads that wait for memory look again; false if there are none. */
bool ask_again(Residents &home) {
  bool any = false;
  for (Worker *w : home.blocks)
    for (int i = 0; !w->ended && i < w->n_threads; i++)
      if (!w->waits[i].watched) {
        w->waits[i] = kRuns;
        any = true;
      }
  return any;
}

Worker *another_that_can_go(Residents &home, Worker *w) {
  size_t n = home.blocks.size(), first = random_number(home) % n;
  for (size_t i = 0; i < n; i++) {
    Worker *other = home.blocks[(first + i) % n];
    if (other != w && !other->ended && can_go(other)) return other;
  }
  return nullptr;
}

void tell_barrier(const CountingBarrier &b) {
  fprintf(stderr, " at %p: phase %u, %d of %d arrivals and %ld bytes to come", b.at, b.phase, b.pending,
          b.expected, b.bytes);
}

void tell_block(Worker *w) {
  std::vector<bool> told((size_t)w->n_threads);
  for (int i = 0; i < w->n_threads; i++) {
    const Fiber &f = w->fibers[i];
    if (f.done || told[i]) continue;
    int alike = 0;
    for (int j = i; j < w->n_threads; j++) {
      const Fiber &g = w->fibers[j];
      if (g.done || told[j] || strcmp(g.what, f.what) != 0 || g.about != f.about) continue;
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
    sem_post(&host->ready);
    take(&w->turn);
    run_prepared_block(w);
    if (--w->home->n_left == 0)
      sem_post(&w->home->over);
    else
      sem_post(&choose_block(*w->home, nullptr)->turn);
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
  home.later.emplace(home.clock + random_number(home) % kBehind,
                     Later{"a thread that has fallen behind", w, [&]() { caught_up = 1; }});
  wait_while(&caught_up, ~0u, 0, "nothing: it has fallen behind");
}

/* The order 0 .. n - 1, shuffled (Fisher and Yates, inside out) if varied. */
static void set_order(std::vector<int> &order, std::vector<int> &place, int n, bool varied, uint64_t chance) {
  order.resize((size_t)n);
  place.resize((size_t)n);
  for (int i = 0; i < n; i++) {
    const int j = varied ? (int)(scrambled(chance, (uint64_t)i) % (unsigned)(i + 1)) : i;
    order[i] = order[j];
    order[j] = i;
  }
  for (int i = 0; i < n; i++) place[order[i]] = i;
}

void choose_order(Worker *w, bool varied, uint64_t chance) {
  set_order(w->warp_order, w->place_of_warp, (w->n_threads + 31) / 32, varied, chance);
  set_order(w->lane_order, w->place_of_lane, w->n_threads < 32 ? w->n_threads : 32, varied, ~chance);
  w->runs_ahead = varied && chance % 4 != 0;
  w->jumps = varied && (chance >> 8) % 4 == 0;
  w->yielded = false;
  w->chance = chance;
}

/* Finds the first thread at places from .. to - 1 of the warp that can go on. */
static bool warp_can_go(Worker *w, int warp, int from, int to) {
  if (w->warps[warp].at_barrier == w->warps[warp].n_live) return false;
  for (int at = from; at < to; at++) {
    const int i = warp * 32 + w->lane_order[at];
    if (i >= w->n_threads || waits(w, i)) continue;
    w->next = i;
    return true;
  }
  return false;
}

bool can_go(Worker *w) {
  const Fiber &now = w->fibers[w->current];
  const int n = (int)w->warp_order.size(), lanes = (int)w->lane_order.size();
  const bool stays = w->runs_ahead && !w->yielded;
  int place = w->place_of_warp[now.warp], at = w->place_of_lane[now.lane];
  w->yielded = false;
  if (w->jumps && (w->chance = scrambled(w->chance, 0)) % 64 == 0) {
    place = (int)((w->chance >> 8) % (unsigned)n);
    at = (int)((w->chance >> 32) % (unsigned)lanes);
  }
  if (warp_can_go(w, w->warp_order[place], at + 1, lanes)) return true;
  if (stays && warp_can_go(w, w->warp_order[place], 0, at + 1)) return true;
  for (int step = 1; step <= n; step++)
    if (warp_can_go(w, w->warp_order[(place + step) % n], 0, lanes)) return true;
  return false;
}

/* All threads wait, for the n-th time without progress. */
static void note_standstill(Residents &home, long most) {
  if (++home.stuck > (home.elsewhere ? kAskedElsewhere : most)) tell_hang(home);
  if (home.elsewhere) usleep(kPauseMicroseconds);
}

Worker *choose_block(Residents &home, Worker *w) {
  for (;;) {
    land_due(home);
    bool several = home.blocks.size() > 1;
    if (w && several && (w->idle > kTurns || random_number(home) % kSurprise == 0)) {
      if (w->idle > kTurns) note_standstill(home, kAsked);
      w->idle = 0;
      Worker *other = another_that_can_go(home, w);
      if (other) return other;
    }
    if (w && can_go(w)) return w;
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

/* can_go() for the thread that is next most often: the following lane of this warp. */
static inline bool next_lane_can_go(Worker *w) {
  const Fiber &now = w->fibers[w->current];
  const Warp &warp = w->warps[now.warp];
  const size_t at = (size_t)w->place_of_lane[now.lane] + 1;
  if (w->jumps || at == w->lane_order.size() || warp.at_barrier == warp.n_live) return false;
  const int i = now.warp * 32 + w->lane_order[at];
  if (i >= w->n_threads || waits(w, i)) return false;
  w->yielded = false;
  w->next = i;
  return true;
}

void take_turns() {
  Worker *w = worker;
  Residents &home = *w->home;
  home.clock++;
  if (home.blocks.size() > 1 || !home.later.empty() || !next_lane_can_go(w)) {
    Worker *next = choose_block(home, w);
    if (next != w) {
      sem_post(&next->turn);
      take(&w->turn);
    }
  }
  if (w->next == w->current) return;
  Fiber &from = w->fibers[w->current], &to = w->fibers[w->next];
  w->current = w->next;
  place = &to.place;
  switch_to(&from.stack_pointer, to.stack_pointer, from.done ? nullptr : &from.fake_stack, to.stack, kStack);
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
