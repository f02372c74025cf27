/* test_stop.c - stop strings against a search of the whole text at once, for random texts, stop strings and
 * cuts. */
#include "commands/answer/filters/stop.h"
#include "test/tests.h"

static bool ends_with(const char *text, size_t size, const char *stop) {
  size_t length = strlen(stop);
  return length <= size && memcmp(text + size - length, stop, length) == 0;
}

/* How much of text[0..size) may be shown: up to the match that is complete first; if several are complete at
 * once, the longest. */
static size_t shown_of_all(const char *text, size_t size, const char *const *stops, size_t n, bool *stopped) {
  for (size_t end = 1; end <= size; end++) {
    size_t longest = 0;
    for (size_t i = 0; i < n; i++)
      if (ends_with(text, end, stops[i]) && strlen(stops[i]) > longest) longest = strlen(stops[i]);
    *stopped = longest > 0;
    if (longest) return end - longest;
  }
  return size;
}

/* The longest end of text[0..size) that begins a stop string and is no whole one. */
static size_t must_be_held(const char *text, size_t size, const char *const *stops, size_t n) {
  size_t longest = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t length = 1; length < strlen(stops[i]) && length <= size; length++)
      if (memcmp(text + size - length, stops[i], length) == 0 && length > longest) longest = length;
  return longest;
}

TEST(any_cuts_give_the_same) {
  uint64_t random = 1;
  for (int c = 0; c < 20000; c++) {
    char text[40], words[3][6];
    const char *stops[3] = {words[0], words[1], words[2]};
    size_t size = random_below(&random, sizeof text), n = random_below(&random, 4), at = 0;
    for (size_t i = 0; i < size; i++) text[i] = (char)('a' + random_below(&random, 2));
    for (size_t i = 0; i < n; i++) {
      size_t length = 1 + random_below(&random, 5);
      for (size_t k = 0; k < length; k++) words[i][k] = (char)('a' + random_below(&random, 2));
      words[i][length] = 0;
    }
    StopFilter filter = {.strings = stops, .n_strings = n};
    Buffer out = {0};
    bool stopped = false, stopped_now = false;
    size_t want = shown_of_all(text, size, stops, n, &stopped);
    while (at < size) {
      size_t piece = 1 + random_below(&random, (uint32_t)(size - at));
      assert_int_equal(stop_filter_push(&filter, text + at, piece, &out, NULL), STATUS_OK);
      at += piece;
      size_t now = shown_of_all(text, at, stops, n, &stopped_now);
      assert_int_equal(filter.stopped, stopped_now);
      assert_int_equal(out.size, stopped_now ? now : at - must_be_held(text, at, stops, n));
    }
    assert_int_equal(stop_filter_end(&filter, &out, NULL), STATUS_OK);
    assert_int_equal(filter.stopped, stopped);
    assert_int_equal(out.size, want);
    if (want) assert_memory_equal(out.data, text, want);
    stop_filter_release(&filter);
    buffer_release(&out);
  }
}

TEST(the_first_complete_match_counts) {
  const char *const stops[] = {"abc", "b", "cab"};
  StopFilter filter = {.strings = stops, .n_strings = 3};
  Buffer out = {0};
  assert_int_equal(stop_filter_push(&filter, "xabcyz", 6, &out, NULL), STATUS_OK);
  assert_true(filter.stopped);
  assert_int_equal(out.size, 2); /* "xa": "b" is complete before "abc" is */
  assert_int_equal(stop_filter_push(&filter, "more", 4, &out, NULL), STATUS_OK);
  assert_int_equal(stop_filter_end(&filter, &out, NULL), STATUS_OK);
  assert_int_equal(out.size, 2);
  stop_filter_release(&filter);
  buffer_release(&out);
}
