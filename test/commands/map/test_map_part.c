/* test_map_part.c - the blocks of records that processes share. */
#include <limits.h>
#include <sys/stat.h>

#include "commands/map/map_part.h"
#include "test/directory.h"
#include "test/tests.h"

/* Up to 256 blocks, whose size doubles as records come, until blocks have 64 records. */
TEST(blocks_grow_to_a_limit) {
  static const struct {
    size_t n_records, block;
  } cases[] = {{1, 1}, {256, 1}, {257, 2}, {511, 2}, {4000, 16}, {16384, 64}, {20000, 64}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const RecordRules rules = {.end = '\n', .limit = 100, .hash = RECORD_HASH_START};
    const size_t n = cases[i].n_records, block = cases[i].block;
    const char *path = in_directory(own_directory, "in");
    uint64_t offset = 0;
    Survey survey = {.n_records = 0};
    Error err = {{0}};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t k = 0; k < n; k++) fprintf(file, "%zu\n", k);
    assert_int_equal(fclose(file), 0);
    if (survey_records(path, &rules, "--claim", NULL, &survey, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(survey.n_records, n);
    assert_int_equal(survey.block, block);
    assert_int_equal(survey.n_blocks, (n + block - 1) / block);
    for (size_t k = 0; k < n; k++) {
      const RecordPlace *place = &survey.places[k / block];
      if (k % block == 0) assert_true(place->number == k && place->line == k && place->offset == offset);
      offset += (uint64_t)snprintf(NULL, 0, "%zu\n", k);
    }
    survey_release(&survey);
  }
}

/* A survey is of the records of all processes, each once: copies and shares are of the reading after it. */
TEST(each_record_counts_once) {
  const char *path = in_directory(own_directory, "copied");
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int k = 0; k < 300; k++) fprintf(file, "%d\n", k);
  assert_int_equal(fclose(file), 0);
  RecordRules rules = {.end = '\n', .limit = 100, .hash = RECORD_HASH_START};
  Survey plain = {.n_records = 0};
  assert_int_equal(survey_records(path, &rules, "--claim", NULL, &plain, NULL), STATUS_OK);
  for (int k = 0; k < 3; k++) {
    Survey survey = {.n_records = 0};
    rules.n_copies = k == 1 ? 0 : 3;
    rules.share = k > 0 ? (RecordShare){.first = 1, .step = 2} : (RecordShare){0};
    assert_int_equal(survey_records(path, &rules, "--claim", NULL, &survey, NULL), STATUS_OK);
    assert_true(survey.n_records == 300 && survey.block == plain.block && survey.n_blocks == plain.n_blocks);
    assert_int_equal(survey.hash, plain.hash);
    for (size_t i = 0; i < survey.n_blocks; i++)
      assert_memory_equal(&survey.places[i], &plain.places[i], sizeof *survey.places);
    survey_release(&survey);
  }
  survey_release(&plain);
}

/* A survey reads the file before the job does, which standard input and pipes allow once. */
TEST(what_can_be_read_once_is_refused) {
  const RecordRules rules = {.end = '\n', .limit = 100};
  char pipe[PATH_MAX];
  snprintf(pipe, sizeof pipe, "%s", in_directory(own_directory, "pipe"));
  assert_int_equal(mkfifo(pipe, 0600), 0);
  const char *const paths[] = {"-", pipe, "/", in_directory(own_directory, "none")};
  for (size_t i = 0; i < 4; i++) {
    Survey survey = {.n_records = 0};
    Error err = {{0}};
    const Status status = survey_records(paths[i], &rules, "--claim", NULL, &survey, &err);
    assert_int_equal(status, i < 3 ? STATUS_USAGE : STATUS_FAILED);
    char words[PATH_MAX + 20];
    snprintf(words, sizeof words, ", not %s", i == 0 ? "standard input" : paths[i]);
    if (i < 3)
      assert_non_null(strstr(err.text, words));
    else
      assert_non_null(strstr(err.text, paths[i]));
    survey_release(&survey);
  }
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
