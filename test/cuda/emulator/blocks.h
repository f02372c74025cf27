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
constexpr int kMostMeetings = 16, kBarriers = 16;

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

/* A thread waits while (*watched & mask) == old, or, if watched is NULL, while none of its `polls` changed.
 * These lie apart from the fibers, since each turn looks at many of them. */
struct Wait {
  const unsigned *watched;
  unsigned mask, old;
};

constexpr unsigned kNothing = 0;
constexpr Wait kRuns = {&kNothing, 0, 1}, kEnded = {&kNothing, 0, 0}, kPolls = {nullptr, 0, 0};

/* The members that every switch touches come first, in one line of the caches. */
struct alignas(64) Fiber {
  void *stack_pointer;
  int lane, warp;
  Place place;
  const char *what;     /* the instruction it waits in, for the report of a hang */
  const void *about;    /* the barrier in shared memory, if it waits for one */
  unsigned char *stack; /* [kStack] */
  void *fake_stack;     /* ASan's */
  bool done;
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
  int arrived, expected;
  unsigned generation;
  alignas(64) unsigned char values[2][32][64];
};

struct Warp {
  unsigned lanes;         /* mask of the lanes that exist */
  int n_live, at_barrier; /* lanes that have not ended, and those of them that wait in __syncthreads */
  int n_meetings;
  Meeting meetings[kMostMeetings];
};

struct Barrier {
  int arrived, expected;
  unsigned generation;
};

/* A barrier in shared memory, whose 8 bytes hold its index here. */
struct CountingBarrier {
  void *at;
  int expected, pending;
  long bytes; /* announced minus arrived */
  unsigned phase;
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
  long stuck;     /* times that no thread could go on and all were asked again */
  bool elsewhere; /* some thread has waited for another device */
  int n_left;
  sem_t over;
};

/* A block, and the thread of the host that runs it. */
struct Worker {
  std::vector<Fiber> fibers;
  std::vector<Wait> waits; /* of each fiber */
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  std::deque<CountingBarrier> counting;
  unsigned char *shared; /* [kShared], and an inaccessible page after it */
  unsigned char *dynamic;
  unsigned char *anchor; /* of this thread's variables */
  int n_threads, n_live, current, next;
  std::vector<int> warp_order, place_of_warp, lane_order, place_of_lane; /* of turns */
  bool runs_ahead; /* a warp goes on until all its lanes wait */
  bool jumps;      /* one in 64 turns goes to a random thread */
  bool yielded;    /* the fiber waits for others without saying for what */
  uint64_t chance;
  int free_registers;
  unsigned registers_freed; /* times */
  long idle;                /* turns without progress */
  const std::function<void()> *thread;
  const char *name;
  void *scheduler, *scheduler_fake;
  const void *scheduler_stack;
  size_t scheduler_size;
  Residents *home, alone;
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
/* The order in which its threads take turns: random if varied, else by number. */
void choose_order(Worker *w, bool varied, uint64_t chance);
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

/* Lets other fibers run while (*watched & mask) == old. */
void wait_while(const unsigned *watched, unsigned mask, unsigned old, const char *what,
                const void *about = nullptr);
void finish_copy(const Copy &copy);
/* Notes progress: no hang. */
void progress(Worker *w);
/* Ends the program. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void tell_hang(Residents &home);

/* --- resident.cpp */
/* Switches to the next thread that can go on, of this block or of another resident one. */
void take_turns();
uint64_t random_number(Residents &home);
/* The block whose turn is next: `w` (may be NULL) if it can go on. Lands what is due meanwhile. */
Worker *choose_block(Residents &home, Worker *w);
/* True if a thread of the block can go on: w->next. */
bool can_go(Worker *w);
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
