/* emulator.cpp - fibers, blocks and grids: see emulator.h.
 *
 * Called by: the kernels (through the headers here) and runtime.cpp. Calls: resident.cpp, cluster.cpp.
 * Environment: EMULATED_SEED=N, other orders of threads and of delayed effects. Always true: a host thread
 * runs one block at a time; the order of its fibers' turns depends only on the seed, on the number of
 * launches before and on the block's index. */
#include "blocks.h"

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

namespace {

/* Releases the barrier if all threads that are left have arrived. */
void release(Barrier &barrier, int expected) {
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  barrier.arrived = 0;
  barrier.generation++;
  if (&barrier == worker->barriers)
    for (Warp &warp : worker->warps) warp.at_barrier = 0;
  progress(worker);
}

[[noreturn]] void end_fiber() {
  Worker *w = worker;
  Fiber &fiber = w->fibers[w->current];
  if (!fiber.products.empty()) fail("ends before its wgmma are done");
  fiber.done = true;
  w->waits[w->current] = kEnded;
  w->warps[fiber.warp].n_live--;
  w->n_live--;
  progress(w);
  leave_cluster(w, fiber);
  release(w->barriers[0], w->n_live);
  if (w->n_live > 0) take_turns();
  void *nowhere;
  switch_to(&nowhere, w->scheduler, nullptr, w->scheduler_stack, w->scheduler_size);
  abort();
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
  (*worker->thread)();
  end_fiber();
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

void prepare_fiber(Worker *w, int i, const Launch &launch, uint3 block) {
  Fiber &f = w->fibers[i];
  if (!f.stack) f.stack = new_stack();
  unsigned x = launch.block.x, y = launch.block.y, n = (unsigned)i;
  f.place = {{n % x, n / x % y, n / x / y}, block, launch.block, launch.grid};
  f.lane = i % 32;
  f.warp = i / 32;
  f.done = f.at_cluster_barrier = false;
  w->waits[i] = kRuns;
  f.polls.clear();
  f.copies.clear();
  f.groups = f.product_groups = 0;
  f.products.clear();
  f.sums.clear();
  f.fenced = false;
  f.registers = 65536 / w->n_threads / 8 * 8;
  f.fake_stack = nullptr;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(f.stack, kStack); /* the last fiber on it ended without returning */
#endif
  /* Stacks begin in different lines of the caches, which all tops of pages would share. */
  void **top = (void **)(f.stack + kStack - (size_t)i * 9 % 64 * 64);
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

Meeting &meeting_of(Warp &warp, unsigned mask, const char *what) {
  for (int i = 0; i < warp.n_meetings; i++)
    if (warp.meetings[i].mask == mask) return warp.meetings[i];
  if (warp.n_meetings == kMostMeetings) {
    fprintf(stderr, "emulator: %s: more than %d different masks in a warp\n", what, kMostMeetings);
    abort();
  }
  Meeting &m = warp.meetings[warp.n_meetings++];
  m.mask = mask;
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

void prepare_block(Worker *w, const Launch &launch, const char *name, const std::function<void()> &thread,
                   uint3 block) {
  w->n_threads = w->n_live = (int)(launch.block.x * launch.block.y * launch.block.z);
  if ((int)w->fibers.size() < w->n_threads) w->fibers.resize((size_t)w->n_threads);
  w->waits.resize(w->fibers.size());
  size_t n_warps = ((size_t)w->n_threads + 31) / 32;
  if (w->warps.size() < n_warps) w->warps.resize(n_warps);
  for (size_t i = 0; i < n_warps; i++) {
    int lanes = w->n_threads - (int)i * 32;
    w->warps[i].lanes = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    w->warps[i].n_meetings = w->warps[i].at_barrier = 0;
    w->warps[i].n_live = __builtin_popcount(w->warps[i].lanes);
  }
  /* Blocks that poll for each other take minutes in some orders; these vary from block to block instead. */
  choose_order(w, !launch.cluster, scrambled(launch.chance, block.x + 65537ull * (block.y + 65537ull * block.z)));
  memset(w->barriers, 0, sizeof w->barriers);
  w->counting.clear();
  w->dynamic = w->shared + (kShared - launch.shared) / 128 * 128;
  memset(w->dynamic, 0xff, (size_t)(w->shared + kShared - w->dynamic));
  w->thread = &thread;
  w->name = name;
  w->idle = 0;
  w->free_registers = 0;
  w->ended = false;
  for (int i = 0; i < w->n_threads; i++) prepare_fiber(w, i, launch, block);
  w->current = w->next = 0; /* where the order starts */
  can_go(w);
  w->current = w->next;
  w->scheduler_stack = nullptr;
}

void run_prepared_block(Worker *w) {
  Fiber &first = w->fibers[w->current];
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
  w->alone.clock = 0;
  w->alone.stuck = 0;
  w->alone.elsewhere = false;
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
  worker->yielded = true;
  take_turns();
}

void wait_while(const unsigned *watched, unsigned mask, unsigned old, const char *what, const void *about) {
  Fiber &f = this_fiber();
  f.what = what;
  f.about = about;
  Wait &wait = worker->waits[worker->current];
  wait = {watched, mask, old};
  while ((*watched & mask) == old) take_turns();
  wait = kRuns;
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
    Wait &wait = worker->waits[worker->current];
    wait = kPolls;
    take_turns();
    wait = kRuns;
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

void poll_elsewhere(const void *at, void *to, int bytes) {
  worker->home->elsewhere = true;
  poll(at, to, bytes);
}

void sync_block() {
  Barrier &barrier = worker->barriers[0];
  unsigned generation = barrier.generation;
  barrier.arrived++;
  worker->warps[this_fiber().warp].at_barrier++;
  release(barrier, worker->n_live);
  wait_while(&barrier.generation, ~0u, generation, "__syncthreads");
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
  wait_while(&barrier.generation, ~0u, generation, "bar.sync");
  may_fall_behind();
}

unsigned char (*meet(unsigned mask, const void *value, size_t size, WarpWork work, const char *what))[64] {
  Worker *w = worker;
  Fiber &fiber = w->fibers[w->current];
  Warp &warp = w->warps[fiber.warp];
  if (!(mask >> fiber.lane & 1)) {
    fprintf(stderr, "emulator: %s: %s by lane %d, which is not in its mask %08x\n", w->name, what, fiber.lane,
            mask);
    abort();
  }
  Meeting &m = meeting_of(warp, mask, what);
  unsigned generation = m.generation;
  unsigned char(*values)[64] = m.values[generation & 1];
  if (size == 4) /* the usual size, without a call */
    memcpy(values[fiber.lane], value, 4);
  else if (size)
    memcpy(values[fiber.lane], value, size);
  if (++m.arrived == m.expected) {
    m.arrived = 0;
    if (work) work(values);
    m.generation++;
    progress(w);
  }
  wait_while(&m.generation, ~0u, generation, what);
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
