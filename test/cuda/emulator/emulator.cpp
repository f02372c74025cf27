/* emulator.cpp - fibers, blocks and grids: see emulator.h.
 *
 * Called by: the kernels (through the headers here) and runtime.cpp. Calls: resident.cpp, cluster.cpp.
 * Environment: EMULATED_SEED=N, other orders of threads and of delayed effects. Always true: a host thread
 * runs one block at a time; the order of its fibers' turns depends only on the seed, on the number of
 * launches before and on the block's index. */
#include "blocks.h"
#include "cuda/kernels/ptx/ptx.cuh"

#include <atomic>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace emulator {

__thread Worker *worker;
__thread const Place *place;

namespace {

constexpr long kPatience = 20'000'000; /* turns without progress */
constexpr long kGuardedStacks = 16384; /* a guard page costs the host two mappings */

} // namespace

extern "C" void emulator_start(void);

#if defined __x86_64__
asm(R"(
.text
.globl emulator_switch
emulator_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.globl emulator_start
emulator_start:
  call emulator_fiber
)");
constexpr int kSaved = 6;
#elif defined __aarch64__
asm(R"(
.text
.globl emulator_switch
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.globl emulator_start
emulator_start:
  bl emulator_fiber
)");
#else
#error "fibers are written for x86-64 and aarch64"
#endif

/* This fiber waits. */
static void stops(Worker *w) {
  Warp &warp = w->warps[w->current / 32];
  warp.ready &= ~(1u << w->current % 32);
  if (!warp.ready) w->ready &= ~(1u << w->current / 32);
}

static void joins(Worker *w, Waiters &waiters) {
  waiters.warps |= 1u << w->current / 32;
  waiters.lanes[w->current / 32] |= 1u << w->current % 32;
  stops(w);
}

void wake(Worker *w, Waiters &waiters) {
  for (unsigned left = waiters.warps; left; left &= left - 1) {
    const int warp = __builtin_ctz(left);
    w->warps[warp].ready |= waiters.lanes[warp];
    waiters.lanes[warp] = 0;
  }
  w->ready |= waiters.warps;
  waiters.warps = 0;
}

namespace {

/* Releases the barrier if all threads that are left have arrived. */
void release(Barrier &barrier, int expected) {
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  barrier.arrived = 0;
  barrier.generation++;
  wake(worker, barrier.waiters);
  progress(worker);
}

/* What a fiber of the block has before it begins, but for a stack. */
void prepare_fiber(Worker *w, int which) {
  Fiber &f = w->fibers[which];
  const Launch &launch = *w->launch;
  f.warp = w->warp_order[which / 32];
  const unsigned lane = (unsigned)w->lane_order[which % 32];
  const unsigned x = launch.block.x, y = launch.block.y, n = (unsigned)f.warp * 32 + lane;
  f.place = {{n, 0, 0}, w->block, launch.block, launch.grid, lane};
  if (y > 1 || launch.block.z > 1) f.place.thread = {n % x, n / x % y, n / x / y};
  f.at_cluster_barrier = false;
  f.polls.clear();
  f.copies.clear();
  f.groups = f.product_groups = 0;
  f.products.clear();
  f.sums.clear();
  f.fenced = false;
  f.registers = w->registers;
  f.fake_stack = nullptr;
}

/* To the fiber `next`, or to where the block was started if it is -1. */
[[noreturn]] void leave_stack(Worker *w, int next) {
  void *nowhere;
  if (next < 0) {
    switch_to(&nowhere, w->scheduler, nullptr, w->scheduler_stack, w->scheduler_size);
  } else {
    const Fiber &to = w->fibers[next];
    w->current = next;
    place = &to.place;
    switch_to(&nowhere, to.stack_pointer, nullptr, to.stack, kStack);
  }
  abort();
}

/* A thread has ended; the next one that can go on, -1 if it was the last. */
int end_thread(Worker *w) {
  Fiber &fiber = w->fibers[w->current];
  if (!fiber.products.empty()) fail("ends before its wgmma are done");
  fiber.stack_pointer = nullptr;
  stops(w);
  w->n_live--;
  progress(w);
  leave_cluster(w, fiber);
  release(w->barriers[0], w->n_live);
  return w->n_live > 0 ? next_turn(w) : -1;
}

} // namespace

extern "C" __attribute__((used, noreturn)) void emulator_fiber(void) {
#ifdef __SANITIZE_ADDRESS__
  Worker *w = worker;
  bool first = w->scheduler_stack == nullptr;
  const void *stack;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &size);
  if (first) w->scheduler_stack = stack, w->scheduler_size = size;
#endif
  for (;;) {
    (*worker->thread)();
    Worker *own = worker;
    const int next = end_thread(own);
    unsigned char *stack = own->fibers[own->current].stack;
    if (next < 0 || own->fibers[next].stack_pointer) {
      own->stacks.push_back(stack);
      leave_stack(own, next);
    }
    /* Threads that wait for no other run one after another on the same stack. */
    prepare_fiber(own, next);
    own->fibers[next].stack_pointer = own->fibers[next].stack = stack;
    own->current = next;
    place = &own->fibers[next].place;
  }
}

namespace {

void *map_memory(size_t bytes, bool guarded) {
  unsigned char *memory =
      (unsigned char *)mmap(nullptr, bytes + (guarded ? kPage : 0), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || (guarded && mprotect(memory + bytes, kPage, PROT_NONE) != 0)) {
    fprintf(stderr, "emulator: no memory\n");
    abort();
  }
  return memory;
}

/* An overflow of this stack hits the guard page of the one below it. */
unsigned char *new_stack() {
  static std::atomic<long> n_stacks;
  return (unsigned char *)map_memory(kStack, n_stacks++ < kGuardedStacks);
}

} // namespace

void start_fiber(Worker *w, int which) {
  prepare_fiber(w, which);
  Fiber &f = w->fibers[which];
  if (w->stacks.empty()) w->stacks.push_back(new_stack());
  f.stack = w->stacks.back();
  w->stacks.pop_back();
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(f.stack, kStack); /* the last fiber on it ended without returning */
#endif
  /* Stacks begin in different lines of the caches, which all tops of pages would share. */
  const uintptr_t number = (uintptr_t)f.stack / kStack * 9 + (uintptr_t)f.stack / kPage * 2;
  void **top = (void **)(f.stack + kStack - number % 64 * 64);
#if defined __x86_64__
  top -= 2; /* emulator_start calls: the stack is then as a function expects it */
  *--top = (void *)emulator_start;
  for (int s = 0; s < kSaved; s++) *--top = nullptr;
#else
  top -= 20;
  memset(top, 0, 160);
  top[11] = (void *)emulator_start; /* x30 */
#endif
  f.stack_pointer = top;
}

namespace {

Meeting &meeting_of(Worker *w, unsigned mask, const char *what) {
  Warp &warp = w->warps[w->current / 32];
  for (int i = 0; i < warp.n_meetings; i++)
    if (warp.meetings[i].mask == mask) return warp.meetings[i];
  if (warp.n_meetings == kMostMeetings) {
    fprintf(stderr, "emulator: %s: more than %d different masks in a warp\n", what, kMostMeetings);
    abort();
  }
  Meeting &m = warp.meetings[warp.n_meetings++];
  m.mask = mask;
  m.fibers = 0;
  for (int i = 0; i < 32; i++)
    if (mask & warp.lanes & 1u << w->lane_order[i]) m.fibers |= 1u << i;
  m.expected = __builtin_popcount(mask & warp.lanes);
  m.arrived = 0;
  m.generation = 0;
  return m;
}

} // namespace

Worker *this_worker() {
  if (worker) return worker;
  alignas(128) static thread_local unsigned char anchor[128];
  worker = new Worker();
  worker->shared = (unsigned char *)map_memory(kShared, true);
  worker->anchor = anchor;
  sem_init(&worker->turn, 0, 0);
  return worker;
}

Fiber &this_fiber() {
  return worker->fibers[worker->current];
}

/* The order 0 .. n - 1, shuffled (Fisher and Yates, inside out) if varied. */
static void set_order(int *order, int n, bool varied, uint64_t chance) {
  for (int i = 0; i < n; i++) {
    const int j = varied ? (int)(scrambled(chance, (uint64_t)i) % (unsigned)(i + 1)) : i;
    order[i] = order[j];
    order[j] = i;
  }
}

void prepare_block(Worker *w, const Launch &launch, const char *name, const std::function<void()> &thread,
                   uint3 block) {
  w->n_threads = w->n_live = (int)(launch.block.x * launch.block.y * launch.block.z);
  w->n_warps = (w->n_threads + 31) / 32;
  if (w->n_warps > kMostWarps) fail("%s: %d threads in a block", name, w->n_threads);
  if ((int)w->warps.size() < w->n_warps)
    w->warps.resize((size_t)w->n_warps), w->fibers.resize((size_t)w->n_warps * 32);
  /* Blocks that poll for each other take minutes in some orders; these vary from block to block instead. */
  const bool varied = !launch.cluster;
  w->chance = scrambled(launch.chance, block.x + 65537ull * (block.y + 65537ull * block.z));
  w->runs_ahead = varied && w->chance % 4 != 0;
  w->jumps = varied && (w->chance >> 8) % 4 == 0;
  set_order(w->warp_order, w->n_warps, varied, w->chance);
  set_order(w->lane_order, 32, varied, ~w->chance);
  for (int i = 0; i < w->n_warps; i++) {
    Warp &warp = w->warps[i];
    const int lanes = w->n_threads - w->warp_order[i] * 32;
    warp.lanes = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    warp.n_meetings = 0;
    warp.ready = 0;
    for (int lane = 0; lane < 32; lane++) warp.ready |= (warp.lanes >> w->lane_order[lane] & 1) << lane;
  }
  w->ready = w->n_warps == 32 ? ~0u : (1u << w->n_warps) - 1;
  w->polls = w->at_cluster = w->for_registers = {};
  memset(w->barriers, 0, sizeof w->barriers);
  w->counting.clear();
  w->dynamic = w->shared + (kShared - launch.shared) / 128 * 128;
  memset(w->dynamic, 0xff, (size_t)(w->shared + kShared - w->dynamic));
  w->thread = &thread;
  w->launch = &launch;
  w->block = block;
  w->name = name;
  w->registers = 65536 / w->n_threads / 8 * 8;
  w->idle = 0;
  w->free_registers = 0;
  w->ended = false;
  w->current = w->next = __builtin_ctz(w->warps[0].ready);
  w->scheduler_stack = nullptr;
}

void run_prepared_block(Worker *w) {
  Fiber &first = w->fibers[w->current];
  start_fiber(w, w->current);
  place = &first.place;
  switch_to(&w->scheduler, first.stack_pointer, &w->scheduler_fake, first.stack, kStack);
  w->ended = true;
}

/* A block without a cluster: a cluster of one. */
static void run_block(const Launch &launch, const char *name, const std::function<void()> &thread,
                      uint3 block) {
  Worker *w = this_worker();
  prepare_block(w, launch, name, thread, block);
  w->home = &w->alone;
  w->index = 0;
  w->alone.blocks.assign(1, w);
  w->alone.cluster_size = 1;
  w->alone.clusters.assign(1, {0, w->n_threads, 0});
  w->alone.random = w->chance | 1;
  w->cluster = &w->alone.clusters[0];
  w->alone.clock = 0;
  w->alone.stuck = 0;
  w->alone.elsewhere = false;
  w->alone.surprise = 0;
  set_stop(w->alone);
  run_prepared_block(w);
  w->alone.clock = ~(uint64_t)0;
  land_due(w->alone);
}

uint64_t scrambled(uint64_t chance, uint64_t which) {
  uint64_t n = chance + (which + 1) * 0x9e3779b97f4a7c15;
  n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
  n = (n ^ n >> 27) * 0x94d049bb133111eb;
  return n ^ n >> 31;
}

static uint64_t chance_of_next_launch() {
  static std::atomic<uint64_t> n_launches;
  static const uint64_t seed = getenv("EMULATED_SEED") ? strtoull(getenv("EMULATED_SEED"), nullptr, 10) : 1;
  return scrambled(seed, n_launches++);
}

void run_grid(const Launch &asked, const char *name, const std::function<void()> &thread) {
  Launch launch = asked;
  launch.chance = chance_of_next_launch();
  if (launch.cluster) return run_residents(launch, name, thread);
  const long n = (long)launch.grid.x * launch.grid.y * launch.grid.z, first = (long)(launch.chance % n);
  const bool backwards = launch.chance >> 40 & 1;
#pragma omp parallel for schedule(dynamic, 1) if (n > 1)
  for (long i = 0; i < n; i++) {
    unsigned x = launch.grid.x, y = launch.grid.y, b = (unsigned)((first + (backwards ? n - i : i)) % n);
    run_block(launch, name, thread, {b % x, b / x % y, b / x / y});
  }
}

unsigned char *dynamic_shared() {
  return worker->dynamic;
}

void fail(const char *format, ...) {
  fprintf(stderr, "emulator: ");
  if (worker && place) {
    const Place &p = here();
    fprintf(stderr, "%s: block (%u, %u, %u), thread (%u, %u, %u): ", worker->name, p.block.x, p.block.y,
            p.block.z, p.thread.x, p.thread.y, p.thread.z);
  }
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fprintf(stderr, "\n");
  abort();
}

void progress(Worker *w) {
  w->idle = 0;
  w->home->stuck = 0;
}

void yield(const char *what) {
  this_fiber().what = what;
  this_fiber().about = nullptr;
  if (++worker->idle > kPatience) tell_hang(*worker->home);
  worker->home->clock++;
  const int next = choose_turn(worker, true);
  if (next != worker->current) go_to(worker, next);
}

void wait_while(Waiters &waiters, const unsigned *watched, unsigned mask, unsigned old, const char *what,
                const void *about) {
  Fiber &f = this_fiber();
  f.what = what;
  f.about = about;
  while ((*watched & mask) == old) {
    joins(worker, waiters);
    take_turns();
  }
}

void poll(const void *at, void *to, int bytes) {
  constexpr size_t kMostPolls = 64;
  Fiber &f = this_fiber();
  memcpy(to, at, (size_t)bytes);
  for (Poll &known : f.polls) {
    if (known.at != at || known.bytes != bytes) continue;
    if (memcmp(known.value, to, (size_t)bytes) != 0) {
      memcpy(known.value, to, (size_t)bytes);
      return progress(worker);
    }
    f.what = "loads of what others store";
    f.about = nullptr;
    joins(worker, worker->polls);
    worker->looked = 0;
    take_turns();
    f.polls.clear();
    break;
  }
  if (f.polls.size() == kMostPolls) {
    f.polls.clear();
    yield("loads of what others store");
  }
  memcpy(to, at, (size_t)bytes);
  Poll now = {at, bytes, {}};
  memcpy(now.value, to, (size_t)bytes);
  f.polls.push_back(now);
}

void stored() {
  worker->home->stores++;
}

void poll_elsewhere(const void *at, void *to, int bytes) {
  worker->home->elsewhere = true;
  poll(at, to, bytes);
}

void sync_block() {
  Barrier &barrier = worker->barriers[0];
  unsigned generation = barrier.generation;
  barrier.arrived++;
  release(barrier, worker->n_live);
  wait_while(barrier.waiters, &barrier.generation, ~0u, generation, "__syncthreads");
}

void named_barrier_arrive(int id, int threads) {
  if (id < 1 || id >= kBarriers || threads % 32) fail("bar.sync %d, %d: no such barrier", id, threads);
  Barrier &barrier = worker->barriers[id];
  if (barrier.arrived && barrier.expected != threads)
    fail("bar.sync %d: %d threads where others said %d", id, threads, barrier.expected);
  barrier.expected = threads;
  barrier.arrived++;
  release(barrier, threads);
}

void named_barrier_sync(int id, int threads) {
  Barrier &barrier = worker->barriers[id];
  unsigned generation = barrier.generation;
  named_barrier_arrive(id, threads);
  wait_while(barrier.waiters, &barrier.generation, ~0u, generation, "bar.sync");
  may_fall_behind();
}

unsigned char (*meet(unsigned mask, const void *value, size_t size, WarpWork work, const char *what))[64] {
  Worker *w = worker;
  Fiber &fiber = w->fibers[w->current];
  if (!(mask >> fiber.place.lane & 1)) {
    fprintf(stderr, "emulator: %s: %s by lane %d, which is not in its mask %08x\n", w->name, what,
            fiber.place.lane, mask);
    abort();
  }
  Meeting &m = meeting_of(w, mask, what);
  unsigned char(*values)[64] = m.values[m.generation & 1];
  if (size == 4) /* the usual sizes, without a call */
    memcpy(values[fiber.place.lane], value, 4);
  else if (size == sizeof(Fragments<float>))
    memcpy(values[fiber.place.lane], value, sizeof(Fragments<float>));
  else if (size)
    memcpy(values[fiber.place.lane], value, size);
  if (++m.arrived == m.expected) {
    m.arrived = 0;
    if (work) work(values);
    m.generation++;
    progress(w);
    w->warps[w->current / 32].ready |= m.fibers;
    w->ready |= 1u << w->current / 32;
    return values;
  }
  fiber.what = what;
  fiber.about = nullptr;
  stops(w);
  take_turns();
  return values;
}

void copy_later(void *to, const void *from, int bytes, int total) {
  Fiber &fiber = worker->fibers[worker->current];
  memset(to, 0xff, (size_t)total); /* NaN until it is waited for, so that an early read shows */
  fiber.copies.push_back({to, from, bytes, total, fiber.groups});
}

void copies_commit() {
  worker->fibers[worker->current].groups++;
}

void finish_copy(const Copy &c) {
  if (c.bytes) memcpy(c.to, c.from, (size_t)c.bytes);
  memset((unsigned char *)c.to + c.bytes, 0, (size_t)(c.total - c.bytes));
}

void copies_wait(int newest) {
  Fiber &fiber = worker->fibers[worker->current];
  size_t kept = 0;
  for (const Copy &c : fiber.copies) {
    if (c.group >= fiber.groups - newest) {
      fiber.copies[kept++] = c;
      continue;
    }
    finish_copy(c);
  }
  fiber.copies.resize(kept);
}

} // namespace emulator
