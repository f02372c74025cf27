/* test_choose.c - scores of given answers, ranked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "commands/answer/choose.h"

static void assert_near(double got, double want) {
  assert_true(fabs(got - want) < 1e-12);
}

static Choice scored(const char *text, double sum, int n_tokens) {
  return (Choice){
      .text = text, .size = strlen(text), .n_tokens = n_tokens, .sum = sum, .mean = sum / n_tokens};
}

static void the_likeliest_is_the_best(void **state) {
  (void)state;
  Choice items[] = {scored("a", -2, 1), scored("b", -1, 1), scored("c", -1.5, 3)};
  Choices choices = {.items = items, .n = 3};
  choices_rank(&choices);
  assert_int_equal(choices.best, 1);
  assert_near(items[0].probability + items[1].probability + items[2].probability, 1);
  assert_near(items[1].probability / items[0].probability, exp(1));
  choices.by = CHOOSE_BY_MEAN;
  choices_rank(&choices);
  assert_int_equal(choices.best, 2);
}

/* A token whose logit is minus infinity is impossible: no number of it may be NaN, which JSON has not. */
static void answers_that_are_impossible_are_all_alike(void **state) {
  (void)state;
  Choice items[] = {scored("a", -INFINITY, 1), scored("b", -INFINITY, 2)};
  Choices choices = {.items = items, .n = 2};
  choices_rank(&choices);
  assert_int_equal(choices.best, 0);
  assert_near(items[0].probability, 0.5);
  assert_near(items[1].probability, 0.5);
  Buffer json = {0};
  assert_int_equal(choices_json(&choices, "a model", &json, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&json, "", 1, NULL), STATUS_OK);
  assert_null(strstr(json.data, "nan"));
  assert_null(strstr(json.data, "inf"));
  assert_non_null(strstr(json.data, "null"));
  buffer_release(&json);
}

static void one_that_is_possible_has_it_all(void **state) {
  (void)state;
  Choice items[] = {scored("a", -INFINITY, 1), scored("b", -700, 2)};
  Choices choices = {.items = items, .n = 2};
  choices_rank(&choices);
  assert_int_equal(choices.best, 1);
  assert_near(items[0].probability, 0);
  assert_near(items[1].probability, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_likeliest_is_the_best),
      cmocka_unit_test(answers_that_are_impossible_are_all_alike),
      cmocka_unit_test(one_that_is_possible_has_it_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
