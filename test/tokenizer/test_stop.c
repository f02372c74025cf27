/* test_stop.c - an interruption ends encoding wherever it is: each text here is work of a second and more
 * in one of its parts, and a signal sets the flag after some hundredths of a second of it. */
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "small.h"

static volatile int interrupted;

static void on_alarm(int number) {
  (void)number;
  interrupted = 1;
}

/* Encodes `unit` again and again, `size` bytes in all, and is interrupted. */
static void check_stops(const char *what, Parts parts, const char *unit, size_t size) {
  char *text = malloc(size), *vocab = byte_vocab(NULL);
  assert_true(text && vocab);
  size_t n = strlen(unit);
  for (size_t i = 0; i < size; i++) text[i] = unit[i % n];
  if (!parts.vocab) parts.vocab = vocab;
  Tokenizer *t = make(parts);
  IdList ids = {0};
  Error err = {{0}};
  struct sigaction action = {.sa_handler = on_alarm}, before;
  struct itimerval soon = {.it_value = {.tv_usec = 50000}}; /* in this process's own time */
  sigaction(SIGVTALRM, &action, &before);
  interrupted = 0;
  tokenizer_heed(t, &interrupted);
  clock_t begin = clock();
  setitimer(ITIMER_VIRTUAL, &soon, NULL);
  Status status = tokenizer_encode(t, text, size, PLAIN, &ids, &err);
  double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
  sigaction(SIGVTALRM, &before, NULL);
  if (status != STATUS_INTERRUPTED) fail_msg("%s: status %d: %s", what, status, err.text);
  assert_string_equal(err.text, "interrupted");
  assert_int_equal(ids.count, 0);
  if (took > 0.5) fail_msg("%s: goes on for %.2f s", what, took);
  id_list_release(&ids);
  tokenizer_close(t);
  free(vocab);
  free(text);
}

enum { MB = 1000000 };

static void the_search_for_added_tokens_stops(void **state) {
  (void)state;
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 8];
  snprintf(added, sizeof added, "[%s]", token_json(token, "aaaaaaaaaaaaaaaaaaaab", ""));
  check_stops("added tokens", (Parts){.added = added, .pre_tokenizer = BYTE_LEVEL}, "a", 40 * MB);
}

static void normalizers_stop(void **state) {
  (void)state;
  char json[4000] = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}";
  for (int i = 0; i < 60; i++) strcat(json, ", {\"type\": \"Lowercase\"}");
  strcat(json, "]}");
  check_stops("Lowercase", (Parts){.normalizer = json, .pre_tokenizer = BYTE_LEVEL}, "aB", 4 * MB);
  /* U+0301: all of the text is one run of marks. */
  check_stops("NFKD", (Parts){.normalizer = "{\"type\": \"NFKD\"}", .pre_tokenizer = BYTE_LEVEL}, "\xcc\x81",
              20 * MB);
}

static void regular_expressions_stop(void **state) {
  (void)state;
  const char *split =
      "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?<=a)a*c\"}, \"behavior\": \"Isolated\", "
      "\"invert\": false}";
  check_stops("many matches", (Parts){.pre_tokenizer = split}, "a", 8 * MB);
  split = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?:a*c|a)+d\"}, \"behavior\": \"Isolated\", "
          "\"invert\": false}";
  check_stops("one match", (Parts){.pre_tokenizer = split}, "a", 8 * MB);
}

static void merging_a_long_word_stops(void **state) {
  (void)state;
  Parts parts = {.vocab = "{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaa\":3}",
                 .merges = "[\"a a\",\"aa aa\",\"aa a\"]"};
  check_stops("merges", parts, "a", 16 * MB);
  parts.options = "\"continuing_subword_prefix\": \"#\", \"unk_token\": \"a\",";
  parts.merges = "[]";
  check_stops("symbols", parts, "ab", 30 * MB);
}

static void many_words_stop(void **state) {
  (void)state;
  Parts parts = {
      .pre_tokenizer =
          "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, " BYTE_LEVEL "]}"};
  check_stops("words", parts, "abc abd abcd ab a", 8 * MB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_search_for_added_tokens_stops),
      cmocka_unit_test(normalizers_stop),
      cmocka_unit_test(regular_expressions_stop),
      cmocka_unit_test(merging_a_long_word_stops),
      cmocka_unit_test(many_words_stop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
