/* test_buffers.c - buffers that are in use at once lie apart, others share memory; sizes that overflow. */
#include "model/buffers.h"
#include "test/tests.h"

enum { MOST = 40 };

/* A buffer that is wanted, and where it lies. */
typedef struct {
  size_t bytes;
  OpKind first, last;
  char *at;
} Wanted;

/* Places the wanted buffers in `memory`; returns their bytes. */
static size_t take_all(char *memory, Wanted *wanted, int n) {
  static Buffers buffers;
  buffers = (Buffers){.n = 0};
  for (int i = 0; i < n; i++) {
    buffers_live(&buffers, wanted[i].first, wanted[i].last);
    buffers_add(&buffers, &wanted[i].at, wanted[i].bytes, 1, 1);
  }
  const size_t bytes = buffers_fit(&buffers, 64);
  if (bytes != SIZE_MAX) buffers_point(&buffers, memory);
  return bytes;
}

static uint32_t below(uint32_t *seed, uint32_t n) {
  *seed = *seed * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)(*seed >> 8) * n >> 24);
}

static bool meet(const Wanted *a, const Wanted *b) {
  return a->first <= b->last && b->first <= a->last;
}

static size_t lines(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

TEST(buffers_in_use_at_once_lie_apart) {
  static char memory[MOST * 1024];
  uint32_t seed = 1;
  for (int turn = 0; turn < 2000; turn++) {
    Wanted wanted[MOST];
    size_t all = 0, most_at_once = 0;
    const int n = 1 + (int)below(&seed, MOST);
    for (int i = 0; i < n; i++) {
      const OpKind first = below(&seed, N_OPERATIONS);
      const OpKind last = first + below(&seed, (uint32_t)(N_OPERATIONS - first));
      wanted[i] = (Wanted){below(&seed, 4) ? below(&seed, 960) : 0, first, last, NULL};
      all += lines(wanted[i].bytes);
    }
    for (OpKind kind = 0; kind < N_OPERATIONS; kind++) {
      size_t at_once = 0;
      for (int i = 0; i < n; i++)
        if (wanted[i].first <= kind && kind <= wanted[i].last) at_once += lines(wanted[i].bytes);
      if (at_once > most_at_once) most_at_once = at_once;
    }
    const size_t bytes = take_all(memory, wanted, n);
    assert_true(bytes >= most_at_once && bytes <= all);
    for (int i = 0; i < n; i++) {
      const char *own = wanted[i].at;
      assert_true((own != NULL) == (wanted[i].bytes > 0));
      if (!own) continue;
      assert_true(own >= memory && own + wanted[i].bytes <= memory + bytes && (own - memory) % 64 == 0);
      for (int k = 0; k < i; k++) {
        const char *other = wanted[k].at;
        if (other && meet(&wanted[i], &wanted[k]))
          assert_true(own + wanted[i].bytes <= other || other + wanted[k].bytes <= own);
      }
    }
  }
}

TEST(two_that_never_meet_need_the_memory_of_the_larger) {
  static char memory[256];
  Wanted wanted[] = {{100, OP_QKV, OP_OUT_PROJ, NULL}, {200, OP_GATE_UP, OP_DOWN, NULL}};
  assert_int_equal(take_all(memory, wanted, 2), 256);
  assert_ptr_equal(wanted[0].at, memory);
  assert_ptr_equal(wanted[1].at, memory);
}

TEST(sizes_that_overflow_are_known) {
  Wanted wanted[] = {{SIZE_MAX, OP_QKV, OP_QKV, NULL}, {64, OP_EMBED, OP_LOGITS, NULL}};
  assert_true(buffers_product(SIZE_MAX / 2, 3) == SIZE_MAX && buffers_product(7, 3) == 21);
  assert_true(take_all(NULL, wanted, 2) == SIZE_MAX);
  wanted[0].bytes = SIZE_MAX / 2 - 100;
  assert_true(take_all(NULL, wanted, 2) == SIZE_MAX);
}
