/* test_map_blocks.c - the records of a job in blocks: processes, here in one, read those that they have taken
 * and count their own results and those of others. */
#include "commands/map/map_blocks.h"
#include "test/directory.h"
#include "test/tests.h"

enum { RECORDS = 10, BLOCK = 4, PROCESSES = 2 }; /* the last block has two records */

static int interrupted;
static MapSettings settings;
static Survey survey;

/* A process of the job: what it reads and gives. */
typedef struct {
  RecordReader reader;
  Blocks *blocks;
  size_t n_counted; /* its own results that count */
} Process;

static Process begin_process(const char *input, int n_copies) {
  static const RecordRules rules = {.end = '\n', .limit = 100, .hash = RECORD_HASH_START};
  Process p = {.n_counted = 0};
  Error err = {{0}};
  RecordRules own = rules;
  own.n_copies = n_copies;
  if (record_reader_open(input, own, &interrupted, &p.reader, &err)) fail_msg("%s", err.text);
  return p;
}

static void open_blocks(Process *p, const char *claims, int n_copies) {
  const BlocksOptions options = {
      .claim = {claims, 60, RESULTS_LINES, &settings, survey.n_blocks, &interrupted},
      .survey = &survey,
      .n_copies = n_copies,
      .reader = &p->reader};
  Error err = {{0}};
  if (blocks_open(&options, &p->blocks, &err)) fail_msg("%s", err.text);
}

/* Reads a record and gives its result; false: there is none. */
static bool answer_one(Process *p, size_t copies, bool seen[RECORDS * 2]) {
  Record record;
  bool found, at_end, lost;
  size_t block;
  Buffer result = {0};
  Error err = {{0}};
  if (blocks_read(p->blocks, false, &record, &found, &at_end, &err)) fail_msg("%s", err.text);
  if (!found) return false;
  char text[20];
  snprintf(text, sizeof text, "record %zu", record.index / copies);
  assert_true(record.size == strlen(text) && memcmp(record.text, text, record.size) == 0);
  assert_false(seen[record.index]);
  seen[record.index] = true;
  assert_int_equal(buffer_append(&result, "x\n", 2, &err), STATUS_OK);
  if (blocks_add(p->blocks, &result, &block, &lost, &err)) fail_msg("%s", err.text);
  assert_false(lost);
  buffer_release(&result);
  return true;
}

/* Processes answer by turns. None counts more results elsewhere than there are; at the end each counts all
 * that are not its own. */
TEST(results_are_ones_own_or_elsewhere) {
  for (int n_copies = 0; n_copies <= 2; n_copies++) {
    const size_t copies = n_copies > 1 ? (size_t)n_copies : 1, all = RECORDS * copies;
    char input[200], claims[200];
    bool seen[RECORDS * 2] = {false};
    Error err = {{0}};
    empty_own_directory();
    snprintf(input, sizeof input, "%s", in_directory(own_directory, "input"));
    snprintf(claims, sizeof claims, "%s", in_directory(own_directory, "claims"));
    FILE *file = fopen(input, "w");
    assert_non_null(file);
    for (int i = 0; i < RECORDS; i++) fprintf(file, "record %d\n", i);
    fclose(file);
    settings = (MapSettings){0};
    survey = (Survey){0};
    const RecordRules rules = {.end = '\n', .limit = 100, .hash = RECORD_HASH_START};
    if (survey_records(input, &rules, "--claim", &interrupted, &survey, &err)) fail_msg("%s", err.text);
    assert_true(survey.n_records == RECORDS && survey.n_blocks == RECORDS);
    /* Blocks of BLOCK records, as where there are many. */
    survey.block = BLOCK;
    survey.n_blocks = (RECORDS + BLOCK - 1) / BLOCK;
    for (size_t i = 0; i < survey.n_blocks; i++) survey.places[i] = survey.places[i * BLOCK];
    if (survey_settings(&survey, 1, NULL, &settings, &err) || blocks_settings(&survey, &settings, &err) ||
        map_settings_seal(&settings, &err))
      fail_msg("%s", err.text);
    Process processes[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
      processes[i] = begin_process(input, n_copies);
      open_blocks(&processes[i], claims, n_copies);
      assert_int_equal(blocks_elsewhere(processes[i].blocks), 0);
    }
    size_t n = 0;
    for (bool more = true; more;) {
      more = false;
      for (int i = 0; i < PROCESSES; i++) {
        Process *p = &processes[i];
        const bool found = answer_one(p, copies, seen);
        n += found;
        p->n_counted += found;
        more |= found;
        assert_true(blocks_elsewhere(p->blocks) <= n - p->n_counted);
      }
    }
    assert_int_equal(n, all);
    for (int i = 0; i < PROCESSES; i++) {
      Record record;
      bool found, at_end;
      assert_int_equal(blocks_read(processes[i].blocks, true, &record, &found, &at_end, &err), STATUS_OK);
      assert_true(at_end && !found);
      assert_int_equal(blocks_elsewhere(processes[i].blocks), all - processes[i].n_counted);
      assert_true(processes[i].n_counted > 0);
      assert_int_equal(blocks_check_end(processes[i].blocks, &err), STATUS_OK);
      blocks_close(processes[i].blocks);
      record_reader_close(&processes[i].reader);
    }
    survey_release(&survey);
    map_settings_release(&settings);
  }
}

/* Writes the input, with another text in record `changed` (-1: none). */
static void write_input(const char *path, int changed, int n_records) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int i = 0; i < n_records; i++) fprintf(file, "%s %d\n", i == changed ? "Record" : "record", i);
  assert_int_equal(fclose(file), 0);
}

/* Reads one record after another; how many were read before a failure, which says that the input has
 * changed. */
static int read_until_failure(Process *p) {
  for (int n = 0;; n++) {
    Record record;
    bool found, at_end;
    Error err = {{0}};
    const Status status = blocks_read(p->blocks, false, &record, &found, &at_end, &err);
    if (status == STATUS_OK && !found) return -1;
    if (status == STATUS_OK) continue;
    assert_int_equal(status, STATUS_FAILED);
    if (!strstr(err.text, "has changed since this run began")) fail_msg("%s", err.text);
    return n;
  }
}

/* A record that has become another is noticed with the last record of its block, whichever block it is, and
 * one that is missing where it should come. */
TEST(an_input_that_changes_is_noticed) {
  for (int changed = -1; changed < 2 * RECORDS; changed++) {
    char input[200], claims[200];
    Error err = {{0}};
    empty_own_directory();
    snprintf(input, sizeof input, "%s", in_directory(own_directory, "input"));
    snprintf(claims, sizeof claims, "%s", in_directory(own_directory, "claims"));
    write_input(input, -1, RECORDS);
    settings = (MapSettings){0};
    survey = (Survey){0};
    const RecordRules rules = {.end = '\n', .limit = 100, .hash = RECORD_HASH_START};
    if (survey_records(input, &rules, "--claim", &interrupted, &survey, &err)) fail_msg("%s", err.text);
    survey.block = BLOCK;
    survey.n_blocks = (RECORDS + BLOCK - 1) / BLOCK;
    for (size_t i = 0; i < survey.n_blocks; i++) survey.places[i] = survey.places[i * BLOCK];
    if (survey_settings(&survey, 1, NULL, &settings, &err) || blocks_settings(&survey, &settings, &err) ||
        map_settings_seal(&settings, &err))
      fail_msg("%s", err.text);
    const bool is_cut = changed >= RECORDS;
    write_input(input, changed, is_cut ? changed - RECORDS : RECORDS);
    Process p = begin_process(input, 0);
    open_blocks(&p, claims, 0);
    int last = -1; /* the record whose reading fails */
    if (is_cut) last = changed - RECORDS;
    if (!is_cut && changed >= 0)
      last = (changed / BLOCK + 1) * BLOCK - 1 < RECORDS ? (changed / BLOCK + 1) * BLOCK - 1 : RECORDS - 1;
    assert_int_equal(read_until_failure(&p), last);
    blocks_close(p.blocks);
    record_reader_close(&p.reader);
    survey_release(&survey);
    map_settings_release(&settings);
  }
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
