/* test_reply.c - the figures of an answer, as the JSON object and the line of -v tell them. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands/answer/reply.h"

/* Of 100 tokens of the prompt 40 were computed, in half a second: 80 each second. The first token of 11 came
 * after a quarter of a second, the 10 others took two seconds: 5 each second. */
static const AnswerResult result = {.reason = FINISH_EOS,
                                    .n_prompt = 100,
                                    .n_reused = 60,
                                    .n_generated = 11,
                                    .prefill_ms = 500,
                                    .first_token_ms = 250,
                                    .decode_ms = 2000};

static void the_object_counts_only_computed_tokens_in_its_speeds(void **state) {
  (void)state;
  const AnswerText text = {.text = "a", .text_size = 1, .model = "m"};
  Buffer out = {0};
  assert_int_equal(answer_json(&out, &text, &result, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&out, "", 1, NULL), STATUS_OK);
  assert_non_null(strstr(out.data, "\"prompt_tokens\": 100, \"reused_tokens\": 60, "));
  assert_non_null(strstr(out.data,
                         "\"prompt_ms\": 500.000, \"first_token_ms\": 750.000, \"decode_ms\": 2000.000, "
                         "\"prompt_per_second\": 80.00, \"decode_per_second\": 5.00}"));
  buffer_release(&out);
}

/* What answer_print_usage() writes to standard error. */
static void told_usage(char *line, size_t size) {
  FILE *told = tmpfile();
  const int kept = dup(STDERR_FILENO);
  assert_true(told && kept >= 0);
  dup2(fileno(told), STDERR_FILENO);
  answer_print_usage(&result);
  dup2(kept, STDERR_FILENO);
  close(kept);
  rewind(told);
  assert_non_null(fgets(line, (int)size, told));
  fclose(told);
}

static void the_line_of_usage_counts_only_computed_tokens_in_its_speeds(void **state) {
  (void)state;
  char line[256];
  told_usage(line, sizeof line);
  assert_string_equal(line, "auk: prompt 100 tokens (60 known), 500.0 ms (80.0/s); "
                            "answer 11 tokens, 2250.0 ms (5.0/s); end: eos\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_object_counts_only_computed_tokens_in_its_speeds),
      cmocka_unit_test(the_line_of_usage_counts_only_computed_tokens_in_its_speeds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
