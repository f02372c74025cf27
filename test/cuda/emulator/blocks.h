/* blocks.h - the emulator's state of threads, blocks and resident blocks.
 *
 * For emulator.cpp (fibers and their turns), cluster.cpp (barriers, delayed copies, peers) and resident.cpp.
 * Always true: only the resident block that has the turn runs, on a host thread of its own (so its __shared__
 * variables are that thread's); no other host thread touches this state. */
#pragma once

#include <deque>
#include <map>
#include <semaphore.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "emulator.h"

/* Saves the callee-saved registers on the present stack, stores its pointer in *from, and continues on
 * another stack. */
extern "C" void emulator_switch(void **from, void *to);

namespace emulator {

constexpr size_t kStack = 256 << 10, kShared = 256 << 10, kPage = 4096;
constexpr int kMostMeetings = 16, kBarriers = 16, kMostWarps = 32;

struct Copy {
  void *to;
  const void *from;
  int bytes, total, group;
};

/* A value that a thread read from memory that others write. */
struct Poll {
  const void *at;
  int bytes;
  unsigned char value[16];
};

/* Operands a and b of a wgmma. */
enum class Operands { kHalves, kBytes, kSignedBytes /* b is signed in both */ };

/* This thread's part of a wgmma in flight. */
struct Product {
  void *sums;        /* 32 bits each */
  const uint32_t *a; /* NULL: in shared memory */
  uint64_t a_rows, b;
  bool b_by_columns;
  int columns;
  bool add;
  Operands of;
  int group;
};

/* The sums of wgmma in flight, as they will be. */
struct Sums {
  void *at;
  int under_way; /* wgmma */
  std::vector<uint32_t> values;
};

/* The threads of a block that wait for the same event: bit l of lanes[w] is that of fiber 32 w + l. */
struct Waiters {
  unsigned warps; /* that have such lanes */
  unsigned lanes[kMostWarps];
};

/* The members that every switch touches come first, in one line of the caches. */
struct alignas(64) Fiber {
  void *stack_pointer; /* NULL: it has not begun, or has ended, and has no stack */
  int warp;
  Place place;
  const char *what;     /* the instruction it waits in, for the report of a hang */
  const void *about;    /* the barrier in shared memory, if it waits for one */
  unsigned char *stack; /* [kStack], while it runs */
  void *fake_stack;     /* ASan's */
  std::vector<Poll> polls;
  bool at_cluster_barrier; /* arrived, did not wait yet */
  unsigned cluster_generation;
  std::vector<Copy> copies;
  int groups; /* committed */
  std::vector<Product> products;
  std::vector<Sums> sums;
  int product_groups; /* committed */
  size_t n_due;       /* wgmma that it waits for */
  bool fenced;
  int registers;
};

struct Meeting {
  unsigned mask;
  unsigned fibers; /* of the lanes in it, as in Warp::ready */
  int arrived, expected;
  unsigned generation;
  alignas(64) unsigned char values[2][32][64];
};

struct Warp {
  unsigned lanes; /* mask of the lanes that exist */
  unsigned ready; /* bit l: fiber l of the warp can go on */
  int n_meetings;
  Meeting meetings[kMostMeetings];
};

struct Barrier {
  int arrived, expected;
  unsigned generation;
  Waiters waiters;
};

/* A barrier in shared memory, whose 8 bytes hold its index here. */
struct CountingBarrier {
  void *at;
  int expected, pending;
  long bytes; /* announced minus arrived */
  unsigned phase;
  Waiters waiters;
};

/* A delayed effect of an instruction. */
struct Later {
  const char *what;
  struct Worker *to; /* whose shared memory it writes */
  std::function<void()> land;
};

struct ClusterBarrier {
  int arrived, live;
  unsigned generation;
};

/* Resident blocks (on the chip at the same time), and the delayed effects among them. */
struct Residents {
  std::vector<struct Worker *> blocks; /* clusters one after another */
  int cluster_size;
  std::vector<ClusterBarrier> clusters;
  std::multimap<uint64_t, Later> later; /* by the time it lands */
  uint64_t clock, random;
  uint64_t stores;   /* of what others poll */
  uint64_t surprise; /* when the turn goes elsewhere for no reason */
  uint64_t stop;  /* when more is to be done than to pass the turn on: no later than `surprise` and `later` */
  long stuck;     /* times that no thread could go on and all were asked again */
  bool elsewhere; /* some thread has waited for another device */
  int n_left;
  sem_t over;
};

/* A block, and the thread of the host that runs it. Its warps, and the 32 fibers of each, lie in the order of
 * their turns; Fiber::warp and its place's lane are their numbers. */
struct Worker {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<unsigned char *> stacks; /* that no fiber has */
  int warp_order[kMostWarps], lane_order[32];
  unsigned ready;  /* bit w: a fiber of warps[w] can go on */
  uint64_t looked; /* Residents::stores when its polls were last looked at, 0: they are new */
  Waiters polls, at_cluster, for_registers;
  Barrier barriers[kBarriers];
  std::deque<CountingBarrier> counting;
  unsigned char *shared; /* [kShared], and an inaccessible page after it */
  unsigned char *dynamic;
  unsigned char *anchor; /* of this thread's variables */
  int n_warps, n_threads, n_live, current, next;
  bool runs_ahead; /* a warp goes on until all its lanes wait */
  bool jumps;      /* now and then the turn goes to a random thread */
  uint64_t chance;
  int registers, free_registers; /* of a thread at first; given back by all */
  unsigned registers_freed;      /* times */
  long idle;                     /* turns without progress */
  const std::function<void()> *thread;
  const char *name;
  void *scheduler, *scheduler_fake;
  const void *scheduler_stack;
  size_t scheduler_size;
  const Launch *launch;
  uint3 block;
  Residents *home, alone;
  ClusterBarrier *cluster;
  int index; /* in home */
  bool ended;
  sem_t turn;
};

extern __thread Worker *worker;

Worker *this_worker();
Fiber &this_fiber();

/* Makes the block ready, and runs it to its end. */
void prepare_block(Worker *w, const Launch &launch, const char *name, const std::function<void()> &thread,
                   uint3 block);
void run_prepared_block(Worker *w);

inline void switch_to(void **from, void *to, void **fake, const void *stack, size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake, stack, size);
  emulator_switch(from, to);
  __sanitizer_finish_switch_fiber(fake ? *fake : nullptr, nullptr, nullptr);
#else
  (void)fake, (void)stack, (void)size;
  emulator_switch(from, to);
#endif
}

/* Gives the fiber a stack, at whose top it begins. */
void start_fiber(Worker *w, int which);

inline void go_to(Worker *w, int next) {
  Fiber &from = w->fibers[w->current], &to = w->fibers[next];
  if (!to.stack_pointer) start_fiber(w, next);
  w->current = next;
  place = &to.place;
  switch_to(&from.stack_pointer, to.stack_pointer, &from.fake_stack, to.stack, kStack);
}

/* The fiber of this block that has the next turn, after turns of other resident blocks. yielded: this one can
 * go on, but waits for others. */
int choose_turn(Worker *w, bool yielded);

/* The next fiber after `from` that can go on, -1 if none can. stays: of the same warp if there is one. */
inline int next_fiber(const Worker *w, int from, bool stays) {
  const int warp = from / 32;
  const unsigned lanes = w->warps[warp].ready, after = lanes & ~((2u << from % 32) - 1);
  if (after) return warp * 32 + __builtin_ctz(after);
  if (stays && lanes) return warp * 32 + __builtin_ctz(lanes);
  if (!w->ready) return -1;
  const unsigned warps = w->ready & ~((2u << warp) - 1);
  const int next = __builtin_ctz(warps ? warps : w->ready);
  return next * 32 + __builtin_ctz(w->warps[next].ready);
}

/* choose_turn(), but for the usual case, another thread of this block. */
inline int next_turn(Worker *w) {
  if (++w->home->clock < w->home->stop) {
    const int next = next_fiber(w, w->current, w->runs_ahead);
    if (next >= 0) return next;
  }
  return choose_turn(w, false);
}

inline void take_turns() {
  Worker *w = worker;
  const int next = next_turn(w);
  if (next != w->current) go_to(w, next);
}

/* Lets other fibers run while (*watched & mask) == old: who changes it wakes the waiters. */
void wait_while(Waiters &waiters, const unsigned *watched, unsigned mask, unsigned old, const char *what,
                const void *about = nullptr);
void wake(Worker *w, Waiters &waiters);
void finish_copy(const Copy &copy);
/* Notes progress: no hang. */
void progress(Worker *w);
/* Ends the program. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void tell_hang(Residents &home);

/* --- resident.cpp */
uint64_t random_number(Residents &home);
/* Sets Residents::stop. */
void set_stop(Residents &home);
/* Called where a barrier lets a thread go on: now and then it goes on much later than its warp's others. */
void may_fall_behind();
void run_residents(const Launch &launch, const char *name, const std::function<void()> &thread);

/* --- cluster.cpp */
Worker *peer(int rank);
/* The address in that block of p in this one. */
void *same_place(Worker *w, const void *p);
void bytes_came(Worker *w, void *barrier, int bytes, const char *what);
void do_later(Worker *to, const char *what, std::function<void()> land);
void land_due(Residents &home);
/* A thread of the block ends. */
void leave_cluster(Worker *w, Fiber &fiber);

} // namespace emulator
