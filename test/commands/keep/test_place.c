/* test_place.c - how long a process stays unused, as --keep says it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "commands/keep/place.h"

static void times_are_whole_seconds_and_at_least_what_was_said(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int seconds; /* -1: refused */
  } cases[] = {{"0", 0},      {"0s", 0},    {"90", 90},   {"90s", 90},  {"10m", 600},  {"2h", 7200},
               {"1d", 86400}, {"0.5", 1},   {"0.01s", 1}, {"1.5m", 90}, {"1e3", 1000}, {"", -1},
               {"s", -1},     {"-1", -1},   {"1x", -1},   {"1ss", -1},  {" 1", -1},    {"inf", -1},
               {"nan", -1},   {"1e9d", -1}, {"1 m", -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err;
    int seconds = -1;
    const Status status = keep_time("--keep", cases[i].text, &seconds, &err);
    assert_int_equal(status, cases[i].seconds < 0 ? STATUS_USAGE : STATUS_OK);
    assert_int_equal(seconds, cases[i].seconds);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_whole_seconds_and_at_least_what_was_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
