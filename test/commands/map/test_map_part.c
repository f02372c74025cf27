/* test_map_part.c - the blocks of records that processes share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "commands/map/map_part.h"
#include "test/directory.h"

/* Up to 256 blocks, whose size doubles as records come, until blocks have 64 records. */
static void blocks_grow_to_a_limit(void **state) {
  (void)state;
  static const struct {
    size_t n_records, block;
  } cases[] = {{1, 1}, {256, 1}, {257, 2}, {511, 2}, {4000, 16}, {16384, 64}, {20000, 64}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const RecordRules rules = {.end = '\n', .limit = 100, .hash = RECORD_HASH_START};
    const size_t n = cases[i].n_records, block = cases[i].block;
    const char *path = in_directory(own_directory, "in");
    uint64_t offset = 0;
    Survey survey = {.n_records = 0};
    Error err = {{0}};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t k = 0; k < n; k++) fprintf(file, "%zu\n", k);
    assert_int_equal(fclose(file), 0);
    if (survey_records(path, &rules, "--claim", NULL, &survey, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(survey.n_records, n);
    assert_int_equal(survey.block, block);
    assert_int_equal(survey.n_blocks, (n + block - 1) / block);
    for (size_t k = 0; k < n; k++) {
      const RecordPlace *place = &survey.places[k / block];
      if (k % block == 0) assert_true(place->number == k && place->line == k && place->offset == offset);
      offset += (uint64_t)snprintf(NULL, 0, "%zu\n", k);
    }
    survey_release(&survey);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_grow_to_a_limit)};
  return cmocka_run_group_tests(tests, make_own_directory, remove_own_directory);
}
