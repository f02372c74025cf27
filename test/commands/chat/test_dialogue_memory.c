/* test_dialogue_memory.c - a chat keeps no memory for answers that are taken back. */
#include <malloc.h>
#include <stddef.h>

#include "dialogue_test.h"
#include "test/tests.h"

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void); /* not every gcc has the header of it */
#endif

/* Bytes that are allocated now. */
static size_t allocated(void) {
#ifdef __SANITIZE_ADDRESS__
  return __sanitizer_get_current_allocated_bytes();
#else
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

/* Asks, asks again and takes both answers back, so many times. */
static void take_back(int cycles) {
  Status status;
  Error err = {{0}};
  for (int i = 0; i < cycles; i++) {
    written.size = 0;
    send("Who is it?", &status, &err);
    assert_int_equal(status, STATUS_OK);
    command("/regen", &status, NULL);
    assert_int_equal(status, STATUS_OK);
    command("/undo", &status, NULL);
    assert_int_equal(status, STATUS_OK);
  }
}

/* A leak in each cycle makes every span of cycles end with more memory than it began with. Memory that is
 * allocated once makes only one span grow: a worker thread's first allocation, say, which can come late. The
 * models with recurrent states keep and drop some of them at each turn. */
TEST(answers_that_are_taken_back_leave_no_memory_behind) {
  static const char *const models[] = {"test/data/stories260K-awq", "test/data/miniatures/qwen3_5-awq",
                                       "test/data/miniatures/lfm2-awq"};
  enum { WARM = 10, SPANS = 3, CYCLES = 40, LEAST = 8 }; /* bytes that a leak in each cycle takes at least */
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    begin_with(models[i], 120, 3, PLAIN);
    take_back(WARM);
    int grown = 0;
    for (int span = 0; span < SPANS; span++) {
      const size_t before = allocated();
      take_back(CYCLES);
      const size_t after = allocated();
      grown += after >= before + CYCLES * LEAST;
      if (grown == SPANS) fail_msg("%s: %zu bytes, and then %zu", models[i], before, after);
    }
    end();
  }
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
