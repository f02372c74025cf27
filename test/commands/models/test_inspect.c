/* test_inspect.c - the sizes that `auk inspect` reports, where no checkpoint of a test is large enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "commands/models/inspect.h"

static void a_cache_beyond_all_memory_is_the_largest_size(void **state) {
  (void)state;
  Inspection inspection = {.kv_numbers = 1000};
  assert_int_equal(inspect_kv_bytes(&inspection, 2, 1), 2000);
  assert_int_equal(inspect_kv_bytes(&inspection, 4, 1 << 20), 4194304000);
  inspection.kv_numbers = 2 * (size_t)MAX_LAYERS * MAX_HEADS * MAX_HEAD_DIM;
  assert_int_equal(inspect_kv_bytes(&inspection, 4, 1), (size_t)1 << 38);
  assert_int_equal(inspect_kv_bytes(&inspection, 4, ((size_t)1 << 26) - 1), (size_t)0 - ((size_t)1 << 38));
  assert_int_equal(inspect_kv_bytes(&inspection, 4, (size_t)1 << 26), SIZE_MAX);
  assert_int_equal(inspect_kv_bytes(&inspection, 4, MAX_POSITION), SIZE_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cache_beyond_all_memory_is_the_largest_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
