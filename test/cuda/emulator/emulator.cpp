/* emulator.cpp - fibers, blocks and grids: see emulator.h.
 *
 * Called by: the kernels (through the headers here) and runtime.cpp.
 * Always true: a thread of the host runs one block at a time; its fibers take turns in a fixed order, so the
 * same launch
 *              goes the same way every time but for the order of its blocks. */
#include "emulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

namespace {

constexpr size_t kStack = 256 << 10, kShared = 256 << 10, kPage = 4096;
constexpr int kMostThreads = 1024, kMostMeetings = 16, kBarriers = 16;
constexpr long kPatience = 20'000'000; /* turns in which nobody got anywhere */

struct Copy {
  void *to;
  const void *from;
  int bytes, total, group;
};

struct Fiber {
  void *stack_pointer;
  unsigned char *stack; /* [kStack] */
  void *fake_stack;     /* ASan's */
  Place place;
  int lane, warp;
  bool done;
  std::vector<Copy> copies;
  int groups; /* committed */
};

struct Meeting {
  unsigned mask;
  int arrived;
  unsigned generation;
  alignas(64) unsigned char values[2][32][64];
};

struct Warp {
  unsigned lanes; /* that exist */
  int n_meetings;
  Meeting meetings[kMostMeetings];
};

struct Barrier {
  int arrived;
  unsigned generation;
};

/* One thread of the host. */
struct Worker {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  unsigned char *shared; /* [kShared], and a page behind it that nobody may touch */
  unsigned char *dynamic;
  int n_threads, n_live, current;
  long idle;
  const std::function<void()> *thread;
  const char *name;
  void *scheduler, *scheduler_fake;
  const void *scheduler_stack;
  size_t scheduler_size;
};

thread_local Worker *worker;

} // namespace

/* Saves what a called function must preserve on the present stack, notes where, and goes on on another. */
extern "C" void emulator_switch(void **from, void *to);
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

void switch_to(void **from, void *to, void **fake, const void *stack, size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake, stack, size);
  emulator_switch(from, to);
  __sanitizer_finish_switch_fiber(fake ? *fake : nullptr, nullptr, nullptr);
#else
  (void)fake, (void)stack, (void)size;
  emulator_switch(from, to);
#endif
}

/* The next fiber that has not ended, in turn. */
void take_turns() {
  Worker *w = worker;
  Fiber &from = w->fibers[w->current];
  int next = w->current;
  do next = next + 1 < w->n_threads ? next + 1 : 0;
  while (w->fibers[next].done);
  if (next == w->current) return;
  w->current = next;
  Fiber &to = w->fibers[next];
  switch_to(&from.stack_pointer, to.stack_pointer, from.done ? nullptr : &from.fake_stack, to.stack, kStack);
}

/* Lets those go who wait for all threads, if all that are left wait. */
void release(Barrier &barrier, int expected) {
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  barrier.arrived = 0;
  barrier.generation++;
  worker->idle = 0;
}

[[noreturn]] void end_fiber() {
  Worker *w = worker;
  Fiber &fiber = w->fibers[w->current];
  fiber.done = true;
  w->idle = 0;
  w->n_live--;
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

void *map_guarded(size_t bytes) {
  unsigned char *memory = (unsigned char *)mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + bytes, kPage, PROT_NONE) != 0) {
    fprintf(stderr, "emulator: no memory\n");
    abort();
  }
  return memory;
}

Worker *this_worker() {
  if (worker) return worker;
  worker = new Worker();
  worker->shared = (unsigned char *)map_guarded(kShared);
  return worker;
}

void prepare_fiber(Worker *w, int i, const Launch &launch, uint3 block) {
  Fiber &f = w->fibers[i];
  if (!f.stack) f.stack = (unsigned char *)map_guarded(kStack);
  unsigned x = launch.block.x, y = launch.block.y, n = (unsigned)i;
  f.place = {{n % x, n / x % y, n / x / y}, block, launch.block, launch.grid};
  f.lane = i % 32;
  f.warp = i / 32;
  f.done = false;
  f.copies.clear();
  f.groups = 0;
  f.fake_stack = nullptr;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(f.stack, kStack); /* the last fiber on it ended without returning */
#endif
  void **top = (void **)(f.stack + kStack);
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

void run_block(const Launch &launch, const char *name, const std::function<void()> &thread, uint3 block) {
  Worker *w = this_worker();
  w->n_threads = w->n_live = (int)(launch.block.x * launch.block.y * launch.block.z);
  if ((int)w->fibers.size() < w->n_threads) w->fibers.resize((size_t)w->n_threads);
  size_t n_warps = ((size_t)w->n_threads + 31) / 32;
  if (w->warps.size() < n_warps) w->warps.resize(n_warps);
  for (size_t i = 0; i < n_warps; i++) {
    int lanes = w->n_threads - (int)i * 32;
    w->warps[i].lanes = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    w->warps[i].n_meetings = 0;
  }
  memset(w->barriers, 0, sizeof w->barriers);
  w->dynamic = w->shared + (kShared - launch.shared) / 128 * 128;
  memset(w->dynamic, 0xff, (size_t)(w->shared + kShared - w->dynamic));
  w->thread = &thread;
  w->name = name;
  w->idle = 0;
  for (int i = 0; i < w->n_threads; i++) prepare_fiber(w, i, launch, block);
  w->current = 0;
  w->scheduler_stack = nullptr;
  switch_to(&w->scheduler, w->fibers[0].stack_pointer, &w->scheduler_fake, w->fibers[0].stack, kStack);
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
  m.arrived = 0;
  m.generation = 0;
  return m;
}

} // namespace

void run_grid(const Launch &launch, const char *name, const std::function<void()> &thread) {
  long n = (long)launch.grid.x * launch.grid.y * launch.grid.z;
#pragma omp parallel for schedule(dynamic, 1) if (n > 1)
  for (long i = 0; i < n; i++) {
    unsigned x = launch.grid.x, y = launch.grid.y, b = (unsigned)i;
    run_block(launch, name, thread, {b % x, b / x % y, b / x / y});
  }
}

const Place &here() {
  return worker->fibers[worker->current].place;
}

unsigned char *dynamic_shared() {
  return worker->dynamic;
}

void *shared_pointer(uint32_t address) {
  unsigned char *base = worker->shared;
  return base + (int32_t)(address - (uint32_t)(uintptr_t)base);
}

void yield(const char *what) {
  Worker *w = worker;
  if (++w->idle > kPatience) {
    const Place &p = here();
    fprintf(stderr, "emulator: %s: block (%u, %u, %u) hangs: thread (%u, %u, %u) waits in %s\n", w->name,
            p.block.x, p.block.y, p.block.z, p.thread.x, p.thread.y, p.thread.z, what);
    abort();
  }
  take_turns();
}

void sync_block() {
  Barrier &barrier = worker->barriers[0];
  unsigned generation = barrier.generation;
  barrier.arrived++;
  release(barrier, worker->n_live);
  while (barrier.generation == generation) yield("__syncthreads");
}

void sync_some(int id, int threads) {
  Barrier &barrier = worker->barriers[id];
  unsigned generation = barrier.generation;
  barrier.arrived++;
  release(barrier, threads);
  while (barrier.generation == generation) yield("bar.sync");
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
  if (size) memcpy(values[fiber.lane], value, size);
  if (++m.arrived == __builtin_popcount(mask & warp.lanes)) {
    m.arrived = 0;
    if (work) work(values);
    m.generation++;
    w->idle = 0;
  }
  while (m.generation == generation) yield(what);
  return values;
}

void copy_later(void *to, const void *from, int bytes, int total) {
  Fiber &fiber = worker->fibers[worker->current];
  fiber.copies.push_back({to, from, bytes, total, fiber.groups});
}

void copies_commit() {
  worker->fibers[worker->current].groups++;
}

void copies_wait(int newest) {
  Fiber &fiber = worker->fibers[worker->current];
  size_t kept = 0;
  for (const Copy &c : fiber.copies) {
    if (c.group >= fiber.groups - newest) {
      fiber.copies[kept++] = c;
      continue;
    }
    if (c.bytes) memcpy(c.to, c.from, (size_t)c.bytes);
    memset((unsigned char *)c.to + c.bytes, 0, (size_t)(c.total - c.bytes));
  }
  fiber.copies.resize(kept);
}

} // namespace emulator
