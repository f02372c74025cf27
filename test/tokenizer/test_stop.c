/* test_stop.c - an interruption ends encoding wherever it is: each text here is work of a second and more
 * in one part of the encoder, and a signal sets the flag in the middle of it. */
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "small.h"
#include "test/tests.h"

static volatile int interrupted;
static volatile double interrupted_at; /* seconds of this process's CPU time, user and system */

/* Seconds of CPU time that an interrupted encoding may continue. Sanitizers make it slower. */
#ifdef __SANITIZE_ADDRESS__
static const double most_s = 4;
#else
static const double most_s = 0.5;
#endif

static double processor_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void on_alarm(int number) {
  (void)number;
  interrupted_at = processor_time();
  interrupted = 1;
}

/* Encodes text[0 .. size); the alarm comes after `delay` seconds of CPU time. */
static Status encode_until_alarm(const Tokenizer *t, const char *text, size_t size, double delay, IdList *ids,
                                 Error *err) {
  struct sigaction action = {.sa_handler = on_alarm}, before;
  struct itimerval soon = {
      .it_value = {.tv_sec = (time_t)delay, .tv_usec = (suseconds_t)((delay - (double)(time_t)delay) * 1e6)}};
  const struct itimerval never = {0};
  sigaction(SIGPROF, &action, &before);
  interrupted = 0;
  setitimer(ITIMER_PROF, &soon, NULL);
  Status status = tokenizer_encode(t, text, size, PLAIN, ids, err);
  setitimer(ITIMER_PROF, &never, NULL);
  sigaction(SIGPROF, &before, NULL);
  return status;
}

static void check_interrupted(const char *what, Status status, const IdList *ids, const Error *err) {
  double goes_on = processor_time() - interrupted_at;
  if (status != STATUS_INTERRUPTED) fail_msg("%s: status %d: %s", what, status, err->text);
  assert_string_equal(err->text, "interrupted");
  assert_int_equal(ids->count, 0);
  if (goes_on > most_s) fail_msg("%s: goes on for %.2f s", what, goes_on);
}

/* Encodes `unit` repeated to `size` bytes, and is interrupted after 0.05 s. */
static void check_stops(const char *what, Parts parts, const char *unit, size_t size) {
  char *text = malloc(size), *vocab = byte_vocab(NULL);
  assert_true(text && vocab);
  size_t n = strlen(unit);
  for (size_t i = 0; i < size; i++) text[i] = unit[i % n];
  if (!parts.vocab) parts.vocab = vocab;
  Tokenizer *t = make(parts);
  IdList ids = {0};
  Error err = {{0}};
  tokenizer_heed(t, &interrupted);
  Status status = encode_until_alarm(t, text, size, 0.05, &ids, &err);
  check_interrupted(what, status, &ids, &err);
  id_list_release(&ids);
  tokenizer_close(t);
  free(vocab);
  free(text);
}

enum { MB = 1000000 };

TEST(the_search_for_added_tokens_stops) {
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 8];
  snprintf(added, sizeof added, "[%s]", token_json(token, "aaaaaaaaaaaaaaaaaaaab", ""));
  check_stops("added tokens", (Parts){.added = added, .pre_tokenizer = BYTE_LEVEL}, "a", 40 * MB);
}

TEST(normalizers_stop) {
  char json[4000] = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}";
  for (int i = 0; i < 60; i++) strcat(json, ", {\"type\": \"Lowercase\"}");
  strcat(json, "]}");
  check_stops("Lowercase", (Parts){.normalizer = json, .pre_tokenizer = BYTE_LEVEL}, "aB", 4 * MB);
  /* U+0301: all of the text is one run of marks. */
  check_stops("NFKD", (Parts){.normalizer = "{\"type\": \"NFKD\"}", .pre_tokenizer = BYTE_LEVEL}, "\xcc\x81",
              20 * MB);
}

TEST(regular_expressions_stop) {
  const char *split =
      "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?<=a)a*c\"}, \"behavior\": \"Isolated\", "
      "\"invert\": false}";
  check_stops("many matches", (Parts){.pre_tokenizer = split}, "a", 8 * MB);
  split = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?:a*c|a)+d\"}, \"behavior\": \"Isolated\", "
          "\"invert\": false}";
  check_stops("one match", (Parts){.pre_tokenizer = split}, "a", 8 * MB);
}

TEST(merging_a_long_word_stops) {
  Parts parts = {.vocab = "{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaa\":3}",
                 .merges = "[\"a a\",\"aa aa\",\"aa a\"]"};
  check_stops("merges", parts, "a", 16 * MB);
  parts.options = "\"continuing_subword_prefix\": \"#\", \"unk_token\": \"a\",";
  parts.merges = "[]";
  check_stops("symbols", parts, "ab", 30 * MB);
}

/* Most of a long word's time goes into its merges, after its symbols were read and its pairs ranked. The
 * alarm comes during the merges, and no other check follows them. */
TEST(merges_stop_after_their_beginning) {
  enum { SIZE = 2 * MB };
  Tokenizer *t = make(
      (Parts){.vocab = "{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaa\":3}", .merges = "[\"a a\",\"aa aa\",\"aa a\"]"});
  char *text = malloc(SIZE);
  assert_non_null(text);
  memset(text, 'a', SIZE);
  IdList ids = {0};
  Error err = {{0}};
  double begin = processor_time();
  assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, &err), STATUS_OK);
  double whole = processor_time() - begin;
  ids.count = 0;
  tokenizer_heed(t, &interrupted);
  Status status = encode_until_alarm(t, text, SIZE, whole / 2, &ids, &err);
  check_interrupted("rounds of merging", status, &ids, &err);
  id_list_release(&ids);
  tokenizer_close(t);
  free(text);
}

TEST(many_words_stop) {
  Parts parts = {
      .pre_tokenizer =
          "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, " BYTE_LEVEL "]}"};
  check_stops("words", parts, "abc abd abcd ab a", 8 * MB);
}
