/* test_merge.c - `auk merge`: the parts of a run become what one run writes, for each form of results and
 * each number of records, copies and parts; parts that are missing, damaged or of other runs are named. */
#include <sys/stat.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/map/map_blocks.h"
#include "commands/map/map_shard.h"
#include "commands/merge/merge_parts.h"
#include "test/directory.h"
#include "test/standard_streams.h"
#include "test/tests.h"

/* The tests write many small files, which need not outlive them. */
int fsync(int descriptor) {
  (void)descriptor;
  return 0;
}

/* A run, or a part of it. */
typedef struct {
  ResultsFormat format;
  size_t n_records, n_copies;
  size_t n_parts;    /* shards */
  size_t block;      /* records of a block of --claim; 0: shards */
  const char *n;     /* the setting -n */
  uint64_t input;    /* hash of the records */
  size_t error_from; /* results from this one on are errors */
} Job;

static Job job_of(ResultsFormat format, size_t n_records, size_t n_copies, size_t n_parts) {
  return (Job){format, n_records, n_copies, n_parts, 0, "4", 7, SIZE_MAX};
}

static void make_result(const Job *job, uint64_t settings, size_t index, Buffer *out) {
  char text[40];
  out->size = 0;
  snprintf(text, sizeof text, "result\n%zu", index);
  if (job->format == RESULTS_JSON) {
    assert_int_equal(result_object(index, index / job->n_copies, settings, out, NULL), STATUS_OK);
    assert_int_equal(
        buffer_printf(out, NULL, ", \"%s\": %zu}\n", index >= job->error_from ? "error" : "text", index),
        STATUS_OK);
  } else if (index >= job->error_from) {
    assert_int_equal(result_error(job->format, text, out, NULL), STATUS_OK);
  } else {
    assert_int_equal(result_text(job->format, text, strlen(text), out, NULL), STATUS_OK);
  }
}

/* The settings of shard `number`; 0: those of blocks. */
static void make_settings(const Job *job, size_t number, MapSettings *settings) {
  const Survey survey = {.n_records = job->n_records, .hash = job->input, .block = job->block};
  char what[40];
  *settings = (MapSettings){0};
  assert_int_equal(map_settings_add(settings, "-n", job->n, strlen(job->n), NULL, NULL), STATUS_OK);
  snprintf(what, sizeof what, "%zu", job->n_copies);
  if (job->n_copies > 1)
    assert_int_equal(map_settings_add(settings, "--n-best", what, strlen(what), NULL, NULL), STATUS_OK);
  assert_int_equal(survey_settings(&survey, 9, NULL, settings, NULL), STATUS_OK);
  snprintf(what, sizeof what, "%zu of %zu", number, job->n_parts);
  if (number)
    assert_int_equal(map_settings_add(settings, "shard", what, strlen(what), NULL, NULL), STATUS_OK);
  else
    assert_int_equal(blocks_settings(&survey, settings, NULL), STATUS_OK);
  assert_int_equal(map_settings_seal(settings, NULL), STATUS_OK);
}

/* Appends results first, first + 1, ... of a share of the records to `out`. */
static void make_results(const Job *job, const RecordShare *share, size_t n, Buffer *out) {
  MapSettings settings;
  Buffer result = {0};
  make_settings(job, 1, &settings);
  for (size_t i = 0; i < n; i++) {
    make_result(job, settings.hash, record_index(share, (int)job->n_copies, i), &result);
    assert_int_equal(buffer_append(out, result.data, result.size, NULL), STATUS_OK);
  }
  map_settings_release(&settings);
  buffer_release(&result);
}

static const char *part_path(const Job *job, size_t number) {
  char name[40];
  snprintf(name, sizeof name, "out.%zu-of-%zu", number, job->n_parts);
  return in_directory(own_directory, name);
}

/* Writes n results of a shard, as `auk --map --shard` does. */
static void write_shard(const Job *job, size_t number, size_t n) {
  const Shard shard = {number, job->n_parts};
  MapSettings settings;
  Results results;
  Buffer result = {0};
  bool found;
  EarlierResult earlier;
  Error err;
  make_settings(job, number, &settings);
  const ResultsOptions options = {.path = part_path(job, number),
                                  .format = job->format,
                                  .resume = true,
                                  .settings = &settings,
                                  .share = shard_share(&shard),
                                  .n_copies = (int)job->n_copies};
  if (results_open(&options, &results, &err) || results_earlier(&results, &earlier, &found, &err))
    fail_msg("%s", err.text);
  assert_false(found);
  for (size_t i = 0; i < n; i++) {
    const size_t index = record_index(&options.share, options.n_copies, i);
    make_result(job, settings.hash, index, &result);
    assert_int_equal(results_add(&results, index / job->n_copies, &result, NULL), STATUS_OK);
  }
  assert_int_equal(results_close(&results, NULL), STATUS_OK);
  map_settings_release(&settings);
  buffer_release(&result);
}

static size_t size_of_shard(const Job *job, size_t number) {
  size_t n = 0;
  for (size_t record = number - 1; record < job->n_records; record += job->n_parts) n += job->n_copies;
  return n;
}

static void write_shards(const Job *job) {
  for (size_t i = 1; i <= job->n_parts; i++) write_shard(job, i, size_of_shard(job, i));
}

static const char *told;

/* Runs `auk merge PATHS... -o all` (output NULL: that), and keeps what it says; its exit status. */
static int merge(const char *const *paths, size_t n, const char *output) {
  char *argv[40] = {"auk", "merge"};
  for (size_t i = 0; i < n; i++) argv[2 + i] = (char *)paths[i];
  argv[2 + n] = "-o";
  char all[400];
  snprintf(all, sizeof all, "%s/all", own_directory);
  argv[3 + n] = output ? (char *)output : all;
  tell_begin();
  const int status = command_call(&merge_interface, (int)n + 3, argv + 1);
  told = note_end();
  return status;
}

/* Merges the shards for which `with` has a bit. */
static int merge_shards(const Job *job, unsigned with, const char *output) {
  static char names[20][400];
  const char *paths[20];
  size_t n = 0;
  for (size_t i = 1; i <= job->n_parts; i++) {
    if (!(with >> (i - 1) & 1)) continue;
    snprintf(names[n], sizeof names[n], "%s", part_path(job, i));
    paths[n] = names[n];
    n++;
  }
  return merge(paths, n, output);
}

static void assert_merged(const Job *job) {
  const RecordShare whole = {0, 1};
  Buffer want = {0}, got = {0};
  make_results(job, &whole, job->n_records * job->n_copies, &want);
  assert_int_equal(file_read(in_directory(own_directory, "all"), 1 << 20, &got, NULL), STATUS_OK);
  if (got.size != want.size || (got.size && memcmp(got.data, want.data, got.size) != 0))
    fail_msg("merged to \"%.*s\", expected \"%.*s\"", (int)got.size, got.data, (int)want.size, want.data);
  assert_int_equal(unlink(in_directory(own_directory, "all")), 0);
  buffer_release(&want);
  buffer_release(&got);
}

static void assert_refused(int status, int expected, const char *words) {
  if (status != expected || !strstr(told, words))
    fail_msg("status %d: \"%s\", expected %d: \"%s\"", status, told, expected, words);
  assert_int_not_equal(access(in_directory(own_directory, "all"), F_OK), 0);
}

TEST(shards_become_what_one_run_writes) {
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++)
    for (size_t n_records = 0; n_records <= 5; n_records++)
      for (size_t n_copies = 1; n_copies <= 3; n_copies += 2)
        for (size_t n_parts = 1; n_parts <= 4; n_parts++) {
          const Job job = job_of(format, n_records, n_copies, n_parts);
          empty_own_directory();
          write_shards(&job);
          if (merge_shards(&job, ~0u, NULL) != 0) fail_msg("%s");
          assert_string_equal(told, "");
          assert_merged(&job);
        }
}

/* Without a shard, or with one result less in it, all the others are counted and it is named; a shard has to
 * be there though it has no records. */
TEST(what_is_missing_is_named) {
  enum { PARTS = 4 };
  char words[200];
  for (size_t n_records = 0; n_records <= 5; n_records++)
    for (size_t n_copies = 1; n_copies <= 2; n_copies++)
      for (size_t lost = 1; lost <= PARTS; lost++) {
        const Job job = job_of(RESULTS_LINES, n_records, n_copies, PARTS);
        const size_t all = n_records * n_copies, of_lost = size_of_shard(&job, lost);
        empty_own_directory();
        write_shards(&job);
        int status = merge_shards(&job, ~(1u << (lost - 1)), NULL);
        snprintf(words, sizeof words, "shard %zu of %d is missing: run the command with --shard %zu/%d", lost,
                 PARTS, lost, PARTS);
        assert_refused(status, 1, words);
        snprintf(words, sizeof words, "%zu of %zu results are there", all - of_lost, all);
        assert_refused(status, 1, words);
        if (of_lost == 0) continue;
        unlink(part_path(&job, lost));
        write_shard(&job, lost, of_lost - 1);
        status = merge_shards(&job, ~0u, NULL);
        snprintf(words, sizeof words, "has %zu of %zu results: run the command again with --shard %zu/%d",
                 of_lost - 1, of_lost, lost, PARTS);
        assert_refused(status, 1, words);
        assert_true(!strstr(told, "is missing"));
        unlink(part_path(&job, lost));
        write_shard(&job, lost, of_lost);
        assert_int_equal(merge_shards(&job, ~0u, NULL), 0);
        assert_merged(&job);
      }
}

/* One result more than the shard has records; the hashes in its OUT.resume are right. */
TEST(a_part_with_too_much_is_refused) {
  for (size_t n_copies = 1; n_copies <= 2; n_copies++)
    for (size_t more = 1; more <= 2; more++) {
      const Job job = job_of(RESULTS_LINES, 5, n_copies, 2);
      char words[100];
      empty_own_directory();
      write_shard(&job, 1, size_of_shard(&job, 1));
      write_shard(&job, 2, size_of_shard(&job, 2) + more);
      snprintf(words, sizeof words, "out.2-of-2 has %zu results, expected %zu", 2 * n_copies + more,
               2 * n_copies);
      assert_refused(merge_shards(&job, ~0u, NULL), 2, words);
    }
}

/* Errors are results, and the status says how many there are. */
TEST(errors_are_counted) {
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++)
    for (size_t n_errors = 0; n_errors <= 6; n_errors++) {
      Job job = job_of(format, 3, 2, 2);
      char words[60];
      job.error_from = 6 - n_errors;
      empty_own_directory();
      write_shards(&job);
      assert_int_equal(merge_shards(&job, ~0u, NULL), n_errors > 0);
      snprintf(words, sizeof words, "%zu of 6 records are errors", n_errors);
      assert_true((n_errors > 0) == (strstr(told, words) != NULL));
      assert_merged(&job);
    }
}

TEST(parts_of_other_runs_are_refused) {
  const Job first = job_of(RESULTS_LINES, 5, 1, 2);
  struct {
    Job job;
    const char *words;
  } cases[] = {{first, "-n 5, those of"},
               {first, "another input than"},
               {first, "input 4 records, those of"},
               {first, "results of different forms"},
               {first, "results of different forms"},
               {first, "is shard 2 of 3, "},
               {first, "--n-best"}};
  cases[0].job.n = "5";
  cases[1].job.input++;
  cases[2].job.n_records = 4, cases[2].job.input++;
  cases[3].job.format = RESULTS_NUL;
  cases[4].job.format = RESULTS_JSON;
  cases[5].job.n_parts = 3;
  cases[6].job.n_copies = 2;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Job *other = &cases[i].job;
    char paths[2][400];
    empty_own_directory();
    write_shard(&first, 1, size_of_shard(&first, 1));
    write_shard(other, 2, size_of_shard(other, 2));
    snprintf(paths[0], sizeof paths[0], "%s", part_path(&first, 1));
    snprintf(paths[1], sizeof paths[1], "%s", part_path(other, 2));
    for (int turn = 0; turn < 2; turn++) {
      const char *const order[] = {paths[turn], paths[1 - turn]};
      const int status = merge(order, 2, NULL);
      assert_refused(status, 2, i != 0 && i != 2 && i != 5 ? cases[i].words : "");
      if (turn == 0) assert_refused(status, 2, cases[i].words);
    }
  }
}

TEST(a_shard_comes_once) {
  const Job job = job_of(RESULTS_LINES, 5, 1, 2);
  char first[400], copy[420], command[2000];
  empty_own_directory();
  write_shards(&job);
  snprintf(first, sizeof first, "%s", part_path(&job, 1));
  snprintf(copy, sizeof copy, "%s.copy", first);
  snprintf(command, sizeof command, "cp %s %s && cp %s.resume %s.resume", first, copy, first, copy);
  assert_int_equal(system(command), 0);
  const char *const both[] = {first, copy}, *const twice[] = {first, first};
  assert_refused(merge(both, 2, NULL), 2, "are both shard 1 of 2");
  assert_refused(merge(twice, 2, NULL), 2, "are both shard 1 of 2");
}

/* The output is none of the parts, by whichever name, and they stay as they are. */
TEST(no_part_is_written_over) {
  for (size_t i = 1; i <= 3; i++) {
    const Job job = job_of(RESULTS_LINES, 5, 1, 3);
    Buffer before = {0}, after = {0};
    char link_path[400], own[400];
    empty_own_directory();
    write_shards(&job);
    snprintf(own, sizeof own, "%s", part_path(&job, i));
    snprintf(link_path, sizeof link_path, "%s/link", own_directory);
    assert_int_equal(symlink(own, link_path), 0);
    assert_int_equal(file_read(own, 1 << 20, &before, NULL), STATUS_OK);
    assert_refused(merge_shards(&job, ~0u, own), 2, "which would be lost");
    assert_refused(merge_shards(&job, ~0u, link_path), 2, "which would be lost");
    assert_int_equal(file_read(own, 1 << 20, &after, NULL), STATUS_OK);
    assert_true(before.size == after.size && memcmp(before.data, after.data, after.size) == 0);
    buffer_release(&before);
    buffer_release(&after);
  }
}

/* --- the directory of --claim */

/* Writes the blocks for which `with` has a bit, block `odd` with n more (or fewer) results. */
static void write_blocks(const Job *job, unsigned with, size_t odd, int n_more) {
  static const volatile int interrupted = 0;
  MapSettings settings;
  Claims *claims;
  Error err;
  const size_t n_blocks = (job->n_records + job->block - 1) / job->block;
  make_settings(job, 0, &settings);
  const ClaimOptions options = {
      in_directory(own_directory, "claims"), 60, job->format, &settings, n_blocks, &interrupted};
  if (claims_open(&options, &claims, &err)) fail_msg("%s", err.text);
  for (size_t i = 0; i < n_blocks; i++) {
    const RecordShare share = {i * job->block, 1};
    size_t block, left = job->n_records - i * job->block;
    bool found, at_end, given;
    Buffer results = {0};
    const size_t n = (left < job->block ? left : job->block) * job->n_copies;
    assert_int_equal(claims_next(claims, false, &block, &found, &at_end, NULL), STATUS_OK);
    assert_true(found && block == i);
    if (!(with >> i & 1)) continue;
    make_results(job, &share, n + (size_t)(i == odd ? n_more : 0), &results);
    assert_int_equal(claims_give(claims, i, results.data ? results.data : "", results.size, &given, NULL),
                     STATUS_OK);
    assert_true(given);
    buffer_release(&results);
  }
  claims_close(claims);
  map_settings_release(&settings);
}

static int merge_blocks(void) {
  char path[400];
  snprintf(path, sizeof path, "%s/claims", own_directory);
  const char *const paths[] = {path};
  return merge(paths, 1, NULL);
}

TEST(blocks_become_what_one_run_writes) {
  char words[100];
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++)
    for (size_t n_records = 1; n_records <= 5; n_records++)
      for (size_t n_copies = 1; n_copies <= 2; n_copies++)
        for (size_t block = 1; block <= 3; block++) {
          Job job = job_of(format, n_records, n_copies, 1);
          job.block = block;
          empty_own_directory();
          write_blocks(&job, ~0u, 0, 0);
          if (merge_blocks() != 0) fail_msg("%s");
          assert_merged(&job);
          const size_t n_blocks = (n_records + block - 1) / block;
          for (size_t lost = 0; lost < n_blocks; lost++) {
            const size_t end = (lost + 1) * block < n_records ? (lost + 1) * block : n_records;
            empty_own_directory();
            write_blocks(&job, ~(1u << lost), 0, 0);
            const int status = merge_blocks();
            snprintf(words, sizeof words, "records %zu to %zu are missing: run the command again",
                     lost * block + 1, end);
            assert_refused(status, 1, words);
            snprintf(words, sizeof words, "%zu of %zu results are there",
                     (n_records - (end - lost * block)) * n_copies, n_records * n_copies);
            assert_refused(status, 1, words);
          }
        }
}

TEST(a_block_has_exactly_its_results) {
  for (int n_more = -1; n_more <= 1; n_more += 2)
    for (size_t odd = 0; odd < 3; odd++) {
      Job job = job_of(RESULTS_LINES, 5, 2, 1);
      char words[100];
      const int n = odd == 2 ? 2 : 4;
      job.block = 2;
      empty_own_directory();
      write_blocks(&job, ~0u, odd, n_more);
      snprintf(words, sizeof words, "done/%08zu has %d results, expected %d", odd, n + n_more, n);
      assert_refused(merge_blocks(), 2, words);
    }
}

/* Results of a block that the job does not have; other names are passed over. */
TEST(results_of_no_block_are_refused) {
  static const struct {
    const char *name;
    bool refused;
  } cases[] = {{"00000003", true}, {"3", true},   {"99999999", true}, {"00000002", false},
               {"note", false},    {"3x", false}, {".3", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Job job = job_of(RESULTS_LINES, 5, 1, 1);
    char name[60];
    job.block = 2;
    empty_own_directory();
    write_blocks(&job, ~0u, 0, 0);
    snprintf(name, sizeof name, "claims/done/%s", cases[i].name);
    FILE *file = fopen(in_directory(own_directory, name), "a");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    const int status = merge_blocks();
    if (cases[i].refused) assert_refused(status, 2, "the job has 3 blocks: these results are not its own");
    if (!cases[i].refused && status) fail_msg("%s: %s", name);
  }
}

TEST(what_is_no_part_is_refused) {
  const Job job = job_of(RESULTS_LINES, 3, 1, 1);
  char path[400], resume[420], none[400];
  empty_own_directory();
  write_shards(&job);
  snprintf(path, sizeof path, "%s", part_path(&job, 1));
  snprintf(resume, sizeof resume, "%s.resume", path);
  snprintf(none, sizeof none, "%s/none", own_directory);
  const char *const beside[] = {resume}, *const all[] = {path, resume}, *const missing[] = {path, none},
                    *const directory[] = {path, own_directory}, *const own[] = {own_directory};
  assert_refused(merge(beside, 1, NULL), 2, "there are no results beside it");
  assert_int_equal(merge(all, 2, NULL), 0);
  assert_merged(&job);
  assert_refused(merge(missing, 2, NULL), 1, "there is no such file");
  assert_refused(merge(directory, 2, NULL), 2, "is a directory");
  assert_refused(merge(own, 1, NULL), 2, "no directory of --claim");
  assert_int_equal(unlink(resume), 0);
  assert_refused(merge(all, 1, NULL), 2, "this is not what --shard writes: there is no");
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
