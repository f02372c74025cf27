/* test_choose.c - scores of given answers, ranked. */
#include "commands/answer/choose.h"
#include "test/tests.h"

static void assert_near(double got, double want) {
  assert_true(fabs(got - want) < 1e-12);
}

static Choice scored(const char *text, double sum, int n_tokens) {
  return (Choice){
      .text = text, .size = strlen(text), .n_tokens = n_tokens, .sum = sum, .mean = sum / n_tokens};
}

TEST(the_likeliest_is_the_best) {
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
TEST(answers_that_are_impossible_are_all_alike) {
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

TEST(one_that_is_possible_has_it_all) {
  Choice items[] = {scored("a", -INFINITY, 1), scored("b", -700, 2)};
  Choices choices = {.items = items, .n = 2};
  choices_rank(&choices);
  assert_int_equal(choices.best, 1);
  assert_near(items[0].probability, 0);
  assert_near(items[1].probability, 1);
}

/* exp() of each of them is 0: only their differences count. */
TEST(answers_of_many_tokens_have_probabilities_too) {
  Choice items[] = {scored("a", -2001, 1000), scored("b", -2000, 1000), scored("c", -2000, 1000)};
  Choices choices = {.items = items, .n = 3};
  for (int by = CHOOSE_BY_SUM; by <= CHOOSE_BY_MEAN; by++) {
    choices.by = (ChooseBy)by;
    choices.best = 2; /* of the record before */
    choices_rank(&choices);
    assert_int_equal(choices.best, 1); /* of equal ones the first */
    assert_near(items[1].probability, 1 / (2 + exp(-1)));
    assert_near(items[2].probability, items[1].probability);
    assert_near(items[0].probability / items[1].probability, exp(-1));
  }
}

TEST(the_object_has_every_score) {
  Choice items[] = {scored("a\"", -0.5, 1), scored("b", -3, 2)};
  Choices choices = {.items = items, .n = 2, .n_prompt = 9, .n_reused = 4, .prefill_ms = 1.25, .score_ms = 2};
  choices_rank(&choices);
  items[0].probability = 0.875;
  items[1].probability = 0.125;
  Buffer json = {0};
  assert_int_equal(choices_json(&choices, "m", &json, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&json, "", 1, NULL), STATUS_OK);
  assert_string_equal(
      json.data,
      "\"choice\": \"a\\\"\", \"choice_index\": 0, \"scores\": [{\"text\": \"a\\\"\", \"tokens\": 1, "
      "\"sum\": -0.5, \"mean\": -0.5, \"probability\": 0.875}, {\"text\": \"b\", \"tokens\": 2, \"sum\": -3, "
      "\"mean\": -1.5, \"probability\": 0.125}], \"usage\": {\"prompt_tokens\": 9, \"reused_tokens\": 4, "
      "\"scored_tokens\": 3}, \"timings\": {\"prompt_ms\": 1.250, \"score_ms\": 2.000}, \"model\": \"m\"");
  buffer_release(&json);
}

/* --- the answers of flags */

static Status open_choices(const char *list, const char *answer, bool exit_choice, Choices *choices,
                           Error *err) {
  ChooseFlags flags = {.by = CHOOSE_BY_MEAN, .exit_choice = exit_choice};
  if (list) assert_int_equal(string_list_add(&flags.lists, list, NULL), STATUS_OK);
  if (answer) assert_int_equal(string_list_add(&flags.answers, answer, NULL), STATUS_OK);
  assert_int_equal(choose_is_given(&flags), list || answer);
  Status status = choices_open(&flags, choices, err);
  string_list_release(&flags.lists);
  string_list_release(&flags.answers);
  return status;
}

TEST(lists_are_split_at_commas) {
  static const struct {
    const char *list, *answer;
    const char *texts[5]; /* none: refused */
  } cases[] = {
      {"a,b", NULL, {"a", "b"}},
      {" a b ,\tc\t", NULL, {"a b", "c"}},
      {"a", " b, ", {"a", " b, "}},
      {NULL, "a,b", {"a,b"}},
      {"ab,a,b", "abc", {"ab", "a", "b", "abc"}},
      {"a,", NULL, {NULL}},
      {",a", NULL, {NULL}},
      {"a, ,b", NULL, {NULL}},
      {"", NULL, {NULL}},
      {NULL, "", {NULL}},
      {"a,b,a", NULL, {NULL}},
      {"a,b", "b", {NULL}},
      {"a, a", NULL, {NULL}},
      {"a", "\xff", {NULL}},
      {"\xff", NULL, {NULL}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Choices choices = {0};
    Error err = {{0}};
    Status status = open_choices(cases[i].list, cases[i].answer, false, &choices, &err);
    assert_int_equal(status, cases[i].texts[0] ? STATUS_OK : STATUS_USAGE);
    if (status == STATUS_OK) {
      size_t n = 0;
      for (; cases[i].texts[n]; n++) {
        assert_int_equal(choices.items[n].size, strlen(cases[i].texts[n]));
        assert_memory_equal(choices.items[n].text, cases[i].texts[n], choices.items[n].size);
      }
      assert_int_equal(choices.n, n);
      assert_int_equal(choices.by, CHOOSE_BY_MEAN);
    }
    choices_release(&choices);
  }
}

TEST(a_hundred_answers_have_an_exit_status) {
  for (int n = 99; n <= 101; n++) {
    char list[400] = "0";
    for (int i = 1; i < n; i++) snprintf(list + strlen(list), 5, ",%d", i);
    for (int exit_choice = 0; exit_choice < 2; exit_choice++) {
      Choices choices = {0};
      Error err = {{0}};
      bool refused = exit_choice && n > 100;
      assert_int_equal(open_choices(list, NULL, exit_choice, &choices, &err),
                       refused ? STATUS_USAGE : STATUS_OK);
      assert_int_equal(choices.n, n);
      if (refused) assert_string_equal(err.text, "--exit-choice has room for 100 answers, not for 101");
      choices_release(&choices);
    }
  }
}
