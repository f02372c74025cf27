/* test_dialogue_memory.c - a chat keeps no memory for answers that are taken back. */
#include <malloc.h>
#include <stddef.h>

#include "dialogue_test.h"

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

/* A model with recurrent states keeps and drops some of them at each turn. After 100 answers taken back the
 * chat holds as much memory as after WARM. */
static void answers_that_are_taken_back_leave_no_memory_behind(void **state) {
  (void)state;
  static const char *const models[] = {"test/data/stories260K-awq", "test/data/miniatures/qwen3_5-awq",
                                       "test/data/miniatures/lfm2-awq"};
  enum { WARM = 10, CYCLES = 100, LEAST = 8 }; /* bytes that a leak in each cycle takes at least */
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    size_t before = 0;
    Status status;
    Error err = {{0}};
    begin_with(models[i], 120, 3, PLAIN);
    for (int cycle = 0; cycle < WARM + CYCLES; cycle++) {
      if (cycle == WARM) before = allocated();
      written.size = 0;
      send("Who is it?", &status, &err);
      assert_int_equal(status, STATUS_OK);
      command("/regen", &status, NULL);
      assert_int_equal(status, STATUS_OK);
      command("/undo", &status, NULL);
      assert_int_equal(status, STATUS_OK);
    }
    const size_t after = allocated();
    if (after >= before + CYCLES * LEAST) fail_msg("%s: %zu bytes, and then %zu", models[i], before, after);
    end();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_that_are_taken_back_leave_no_memory_behind),
  };
  return cmocka_run_group_tests(tests, make_own_directory, remove_own_directory);
}
