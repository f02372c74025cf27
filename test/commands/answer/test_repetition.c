/* test_repetition.c - passages that come back, against a search of the whole text for a period. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "commands/answer/repetition.h"

enum { PASSAGE = REPETITION_PASSAGE, ROUNDS = REPETITION_ROUNDS, LONGEST = 4000 };

/* How many of n tokens a repetition has taken when it says so; -1: it never does. */
static int told_at(const int32_t *ids, int n) {
  Repetition repetition = {0};
  for (int i = 0; i < n; i++)
    if (repetition_push(&repetition, ids[i])) return i + 1;
  return -1;
}

/* The same by the definition: the first length whose last ROUNDS tokens are those p before them. */
static int expected_at(const int32_t *ids, int n) {
  for (int length = ROUNDS; length <= n; length++)
    for (int p = 1; p <= PASSAGE && length - ROUNDS - p >= 0; p++)
      if (memcmp(ids + length - ROUNDS, ids + length - ROUNDS - p, ROUNDS * sizeof *ids) == 0) return length;
  return -1;
}

static void passages_of_any_length_are_seen(void **state) {
  (void)state;
  static const int passages[] = {1, 2, 3, 7, 100, 255, 256};
  for (size_t c = 0; c < sizeof passages / sizeof *passages; c++) {
    int32_t ids[LONGEST];
    int begin = 50 + (int)c * 300; /* also behind more tokens than are looked back at */
    for (int i = 0; i < LONGEST; i++) ids[i] = i < begin ? -i : (i - begin) % passages[c];
    assert_int_equal(told_at(ids, LONGEST), begin + passages[c] + ROUNDS);
    assert_int_equal(expected_at(ids, LONGEST), begin + passages[c] + ROUNDS);
  }
}

static void a_difference_begins_it_anew(void **state) {
  (void)state;
  int32_t ids[LONGEST];
  for (int i = 0; i < LONGEST; i++) ids[i] = i % 5;
  assert_int_equal(told_at(ids, 5 + ROUNDS), 5 + ROUNDS);
  assert_int_equal(told_at(ids, 5 + ROUNDS - 1), -1);
  ids[5 + ROUNDS - 1] = 99; /* the last one that was missing */
  assert_int_equal(told_at(ids, LONGEST), expected_at(ids, LONGEST));
  assert_int_equal(told_at(ids, LONGEST), 5 + ROUNDS + 5 + ROUNDS);
  for (int i = 0; i < LONGEST; i += 1000) ids[i] = 1000 + i; /* never for long enough */
  assert_int_equal(told_at(ids, LONGEST), -1);
}

static void longer_passages_and_texts_that_go_on_are_none(void **state) {
  (void)state;
  int32_t ids[LONGEST];
  for (int i = 0; i < LONGEST; i++) ids[i] = i % (PASSAGE + 1);
  assert_int_equal(told_at(ids, LONGEST), -1);
  uint64_t random = 1;
  for (int i = 0; i < LONGEST; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    ids[i] = (int32_t)(random >> 63); /* of two words */
  }
  assert_int_equal(told_at(ids, LONGEST), expected_at(ids, LONGEST));
  assert_int_equal(told_at(ids, LONGEST), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(passages_of_any_length_are_seen),
      cmocka_unit_test(a_difference_begins_it_anew),
      cmocka_unit_test(longer_passages_and_texts_that_go_on_are_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
