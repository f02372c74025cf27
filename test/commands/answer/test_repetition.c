/* test_repetition.c - passages that come back, against a search of the whole text for a period. */
#include "commands/answer/filters/repetition.h"
#include "test/tests.h"

enum { PASSAGE = REPETITION_PASSAGE, LONGEST = 4000 };

/* The bounds as the manual page states them: 16 times and 256 tokens; passages of more than 64 tokens:
 * 1,024 tokens. */
static int enough(int passage) {
  return passage <= 16 ? 256 : passage <= 64 ? 16 * passage : 1024;
}

/* How many of n tokens a repetition has taken when it says so; -1: it never does. */
static int told_at(const int32_t *ids, int n) {
  Repetition repetition = {0};
  for (int i = 0; i < n; i++)
    if (repetition_push(&repetition, ids[i])) return i + 1;
  return -1;
}

/* The same by the definition: the first length whose last enough(p) tokens are those p before them. */
static int expected_at(const int32_t *ids, int n) {
  for (int length = 1; length <= n; length++)
    for (int p = 1; p <= PASSAGE; p++) {
      int back = enough(p);
      if (length - back - p >= 0 &&
          memcmp(ids + length - back, ids + length - back - p, (size_t)back * sizeof *ids) == 0)
        return length;
    }
  return -1;
}

TEST(passages_of_any_length_are_seen_when_they_have_come_back_often_enough) {
  static const int passages[] = {1, 2, 3, 7, 15, 16, 17, 34, 63, 64, 65, 100, 255, 256};
  for (size_t c = 0; c < sizeof passages / sizeof *passages; c++) {
    int32_t ids[LONGEST];
    int p = passages[c], begin = 50 + (int)c * 150; /* also after more tokens than are looked back at */
    for (int i = 0; i < LONGEST; i++) ids[i] = i < begin ? -i - 1 : (i - begin) % p;
    assert_int_equal(told_at(ids, LONGEST), begin + p + enough(p));
    assert_int_equal(told_at(ids, begin + p + enough(p) - 1), -1);
    assert_int_equal(expected_at(ids, LONGEST), begin + p + enough(p));
  }
}

TEST(a_difference_begins_it_anew) {
  int32_t ids[LONGEST];
  for (int i = 0; i < LONGEST; i++) ids[i] = i % 5;
  ids[5 + 256 - 1] = 99; /* the last one that was missing */
  assert_int_equal(told_at(ids, LONGEST), expected_at(ids, LONGEST));
  assert_int_equal(told_at(ids, LONGEST), 5 + 256 + 5 + 256);
  for (int i = 0; i < LONGEST; i += 250) ids[i] = 1000 + i; /* never for long enough */
  assert_int_equal(told_at(ids, LONGEST), -1);
}

TEST(longer_passages_and_texts_that_go_on_are_none) {
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

/* Texts in which equal passages follow each other because people want them: none is cut. Each character is a
 * token, the most tokens that a text can have. */
TEST(texts_that_people_want_are_not_cut) {
  static const struct {
    const char *what, *passage;
    int times;
  } texts[] = {
      {"a rule across a wide page", "-", 200},
      {"indentation", " ", 120},
      {"a list of zeros", "0,", 100},
      {"a matrix of 16 rows", "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,\n", 16},
      {"a table's equal rows", "| open | none | 0 |\n", 12},
      {"code that does the same", "    blink(LED, 500); sleep(1);\n", 12},
      {"an array of equal objects", "{\"name\": null, \"value\": 0},\n", 16},
      {"a chorus",
       "Row, row, row your boat, gently down the stream. Merrily, merrily, life is but a dream.\n", 5},
  };
  for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
    int32_t ids[LONGEST];
    int n = 0;
    for (const char *at = "Here it is:\n"; *at; at++) ids[n++] = *at;
    for (int i = 0; i < texts[c].times; i++)
      for (const char *at = texts[c].passage; *at; at++) ids[n++] = *at;
    for (const char *at = "That was it.\n"; *at; at++) ids[n++] = *at;
    if (told_at(ids, n) != -1) fail_msg("%s is cut after %d of %d tokens", texts[c].what, told_at(ids, n), n);
  }
}
