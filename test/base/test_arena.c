/* test_arena.c - memory taken piece by piece. */
#include "base/arena.h"
#include "test/tests.h"

/* Pieces of all sizes, larger ones than a block too, keep what is written to them and fit any type. */
TEST(pieces_share_no_memory) {
  static const size_t sizes[] = {1, 16, 17, 4000, 40000, 65536, 65537, 200000, 8};
  enum { PIECES = 400, SIZES = sizeof sizes / sizeof *sizes };
  unsigned char *pieces[PIECES];
  Arena arena = {0};
  size_t all = 0;
  for (int i = 0; i < PIECES; i++) {
    const size_t size = sizes[i % SIZES];
    pieces[i] = arena_alloc(&arena, 1, size, NULL);
    assert_true(pieces[i] && (uintptr_t)pieces[i] % 16 == 0);
    memset(pieces[i], i, size);
    all += size;
    assert_true(arena.total >= all);
  }
  for (int i = 0; i < PIECES; i++)
    for (size_t k = 0; k < sizes[i % SIZES]; k++) assert_int_equal(pieces[i][k], i & 255);
  arena_release(&arena);
  assert_int_equal(arena.total, 0);
  assert_non_null(arena_alloc(&arena, 1, 1, NULL));
  arena_release(&arena);
}
