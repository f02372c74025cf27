/* tests.h - TEST(name) { ... } is a test of its program; the main() here runs all of them in their order. A
 * program with other needs includes unit.h alone, and calls cmocka itself. */
#pragma once

#include "test/unit.h"

static struct CMUnitTest tests[100];

/* Called before the first test and after the last one, if the program gives them a value. */
static CMFixtureFunction before_all, after_all;

#define TEST_OF(name, argument, set_up, tear_down)                                                           \
  static void name(void **argument);                                                                         \
  __attribute__((constructor)) static void add_##name(void) {                                                \
    tests[__COUNTER__] = (struct CMUnitTest){#name, name, set_up, tear_down, NULL};                          \
  }                                                                                                          \
  static void name(void **argument)
#define TEST(name) TEST_OF(name, no_state, NULL, NULL)
/* A test with cmocka's `state`, and with a setup and a teardown of its own or NULL. */
#define TEST_WITH(set_up, tear_down, name) TEST_OF(name, state, set_up, tear_down)

/* A number from 0 to n - 1; the same ones follow the same *from. */
static inline uint32_t random_below(uint64_t *from, uint32_t n) {
  *from = *from * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*from >> 33) % n;
}

int main(void) {
  return cmocka_run_group_tests(tests, before_all, after_all); /* which passes over the rest of the array */
}
