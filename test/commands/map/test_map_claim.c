/* test_map_claim.c - processes that share blocks by a directory, here all in one: whose a block is when one
 * of them ends, is lost, or finds what no process has put there. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands/map/map_blocks.h"
#include "commands/map/map_claim_life.h"
#include "commands/map/map_results.h"
#include "test/directory.h"
#include "test/standard_streams.h"
#include "test/tests.h"

static int interrupted;
static MapSettings settings;

static Claims *open_claims(size_t n_blocks, int lease_s) {
  const ClaimOptions options = {own_directory, lease_s, RESULTS_LINES, &settings, n_blocks, &interrupted};
  Claims *claims;
  Error err = {{0}};
  assert_int_equal(claims_open(&options, &claims, &err), STATUS_OK);
  return claims;
}

/* Takes a block, or finds none (SIZE_MAX). */
static size_t take(Claims *claims, bool *at_end) {
  size_t block;
  bool found;
  assert_int_equal(claims_next(claims, false, &block, &found, at_end, NULL), STATUS_OK);
  return found ? block : SIZE_MAX;
}

static bool give(Claims *claims, size_t block, const char *results) {
  bool given;
  assert_int_equal(claims_give(claims, block, results, strlen(results), &given, NULL), STATUS_OK);
  return given;
}

static const char *owner_of(size_t block) {
  static char owners[2][OWNER_SIZE];
  static int next;
  char *owner = owners[next++ % 2];
  claims_owner(own_directory, block, owner);
  return owner;
}

static char *of_owner(const char *owner) {
  char name[OWNER_SIZE + 8];
  snprintf(name, sizeof name, "alive/%s", owner);
  return in_directory(own_directory, name);
}

static void assert_done(size_t block, const char *want) {
  char name[32], text[200] = {0};
  snprintf(name, sizeof name, "done/%08zu", block);
  FILE *file = fopen(in_directory(own_directory, name), "r");
  assert_non_null(file);
  const size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  assert_int_equal(n, strlen(want) + 16);
  assert_memory_equal(text, want, strlen(want));
}

static int begin(void **state) {
  empty_own_directory();
  settings = (MapSettings){0};
  assert_int_equal(map_settings_add(&settings, "-n", "1", 1, NULL, NULL), STATUS_OK);
  return map_settings_seal(&settings, NULL);
}

static int end(void **state) {
  map_settings_release(&settings);
  return 0;
}

TEST_WITH(begin, end, each_block_is_taken_once_and_given_whole) {
  Claims *a = open_claims(3, 60), *b = open_claims(3, 60);
  bool at_end;
  assert_int_equal(take(a, &at_end), 0);
  assert_int_equal(take(b, &at_end), 1);
  assert_int_equal(take(a, &at_end), 2);
  assert_int_equal(take(b, &at_end), SIZE_MAX);
  assert_false(at_end); /* a may yet leave its blocks */
  assert_true(give(a, 0, "zero\n"));
  assert_true(give(b, 1, "one\n"));
  assert_int_equal(take(a, &at_end), SIZE_MAX);
  assert_true(at_end);
  assert_int_equal(take(b, &at_end), SIZE_MAX);
  assert_false(at_end);
  assert_true(give(a, 2, "two\n"));
  claims_close(a);
  claims_close(b);
  assert_done(0, "zero\n");
  assert_done(1, "one\n");
  assert_done(2, "two\n");
  Claims *later = open_claims(3, 60);
  assert_int_equal(take(later, &at_end), SIZE_MAX);
  assert_true(at_end);
  claims_close(later);
}

/* Nothing is waited for: what has no file in alive/ has ended, or was never there. */
TEST_WITH(begin, end, blocks_of_a_process_that_has_ended_are_free_at_once) {
  Claims *a = open_claims(1, 60), *b = open_claims(1, 60);
  bool at_end;
  assert_int_equal(take(a, &at_end), 0);
  assert_int_equal(take(b, &at_end), SIZE_MAX);
  assert_false(at_end); /* a may yet leave it */
  claims_close(b);
  assert_int_equal(unlink(of_owner(owner_of(0))), 0);
  b = open_claims(1, 60); /* looks without waiting for its next look */
  assert_int_equal(take(b, &at_end), 0);
  claims_close(b);
  claims_close(a);
  Watch *watch;
  bool dead;
  assert_int_equal(watch_open(60, &watch, NULL), STATUS_OK);
  assert_int_equal(watch_look(watch, "none", of_owner("none"), &dead, NULL), STATUS_OK);
  assert_true(dead);
  watch_close(watch);
}

/* Who ends leaves no block taken, and gives up none that it has given. */
TEST_WITH(begin, end, who_ends_leaves_its_blocks) {
  Claims *a = open_claims(3, 60), *b = open_claims(3, 60);
  bool at_end;
  for (size_t i = 0; i < 3; i++) assert_int_equal(take(a, &at_end), i);
  assert_int_equal(take(b, &at_end), SIZE_MAX);
  assert_true(give(a, 1, "one\n"));
  claims_close(a);
  for (size_t i = 0; i < 3; i++) assert_string_equal(owner_of(i), "");
  claims_close(b);
  b = open_claims(3, 60);
  assert_int_equal(take(b, &at_end), 0);
  assert_int_equal(take(b, &at_end), 2);
  assert_int_equal(take(b, &at_end), SIZE_MAX);
  assert_true(at_end && claims_is_done(b, 1) && !claims_is_done(b, 0));
  claims_close(b);
  assert_done(1, "one\n");
}

TEST_WITH(begin, end, results_of_a_block_that_was_taken_over_are_dropped) {
  for (int first = 0; first < 2; first++) { /* who gives first */
    empty_own_directory();
    Claims *a = open_claims(1, 60);
    bool at_end;
    assert_int_equal(take(a, &at_end), 0);
    assert_int_equal(unlink(of_owner(owner_of(0))), 0);
    Claims *b = open_claims(1, 60);
    assert_int_equal(take(b, &at_end), 0);
    if (first == 0) assert_false(give(a, 0, "of a\n"));
    if (first == 0) assert_int_equal(take(a, &at_end), SIZE_MAX); /* it is b's now */
    if (first == 0) assert_false(at_end);                         /* b may yet leave it */
    assert_true(give(b, 0, "of b\n"));
    if (first == 1) assert_false(give(a, 0, "of a\n"));
    assert_done(0, "of b\n");
    claims_close(a);
    claims_close(b);
  }
}

static void touch(const char *path) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fclose(file);
}

/* A server that answers twice, or an answer that is lost: the block was taken all the same. */
TEST_WITH(begin, end, a_block_that_is_found_in_its_own_name_is_its_own) {
  Claims *a = open_claims(2, 60);
  char mine[OWNER_SIZE + 32];
  bool at_end;
  assert_int_equal(take(a, &at_end), 0);
  mkdir(in_directory(own_directory, "taken/00000001"), 0777);
  snprintf(mine, sizeof mine, "taken/00000001/%s", owner_of(0));
  touch(in_directory(own_directory, mine));
  assert_int_equal(take(a, &at_end), 1);
  claims_close(a);
}

/* Two that think both that the block is theirs: the first results stay. */
TEST_WITH(begin, end, results_are_never_replaced) {
  Claims *a = open_claims(1, 60);
  bool at_end;
  assert_int_equal(take(a, &at_end), 0);
  FILE *done = fopen(in_directory(own_directory, "done/00000000"), "w");
  fputs("earlier\n0123456789abcdef", done);
  fclose(done);
  assert_false(give(a, 0, "later\n"));
  assert_done(0, "earlier\n");
  claims_close(a);
}

/* NFS leaves .nfs... as long as a removed file is open; other names are no process's either. */
TEST_WITH(begin, end, files_that_no_process_has_put_there_stop_no_block) {
  static const char *const strays[] = {
      ".nfs0000000000000001", "notes.txt",
      "a-name-that-is-longer-than-any-process-has-0123456789-0123456789-0123456789-0123456789-0123456789"};
  for (size_t i = 0; i < sizeof strays / sizeof *strays; i++) {
    empty_own_directory();
    char name[256];
    claims_close(open_claims(1, 60));
    mkdir(in_directory(own_directory, "taken/00000000"), 0777);
    snprintf(name, sizeof name, "taken/00000000/%s", strays[i]);
    touch(in_directory(own_directory, name));
    Claims *a = open_claims(1, 60), *b = open_claims(1, 60);
    bool at_end;
    assert_int_equal(take(a, &at_end), 0);
    assert_int_equal(take(b, &at_end), SIZE_MAX); /* a has it */
    assert_true(give(a, 0, "results\n"));
    assert_done(0, "results\n");
    claims_close(a);
    claims_close(b);
  }
}

/* Puts something that is no directory and no results under a name of this test's directory; returns what it
 * is for messages. */
typedef enum { A_FILE, A_FIFO, A_DEVICE, A_LINK_TO_NOTHING, A_LINK_TO_ITSELF, N_OBSTACLES } Obstacle;

static const char *put(Obstacle obstacle, const char *name) {
  static const char *const kinds[] = {"a regular file", "a fifo", "a device", "a symbolic link to nothing",
                                      "a symbolic link to nothing"};
  const char *path = in_directory(own_directory, name);
  if (obstacle == A_FILE) touch(path);
  if (obstacle == A_FIFO) assert_int_equal(mkfifo(path, 0600), 0);
  if (obstacle == A_DEVICE) assert_int_equal(symlink("/dev/zero", path), 0);
  if (obstacle == A_LINK_TO_NOTHING) assert_int_equal(symlink("nothing", path), 0);
  if (obstacle == A_LINK_TO_ITSELF) assert_int_equal(symlink(strrchr(path, '/') + 1, path), 0);
  return kinds[obstacle];
}

/* Whose the block is cannot be written there, so that any process answers it, and says why. */
TEST_WITH(begin, end, a_block_whose_claim_is_no_directory_is_answered_all_the_same) {
  for (Obstacle o = 0; o < N_OBSTACLES; o++) {
    empty_own_directory();
    claims_close(open_claims(2, 60));
    char want[1200];
    snprintf(
        want, sizeof want,
        "auk: %s/taken/00000001 is %s, expected a directory: block 1 is answered all the same, perhaps by "
        "other processes too, until it is removed\n",
        own_directory, put(o, "taken/00000001"));
    Claims *a = open_claims(2, 60), *b = open_claims(2, 60);
    bool at_end;
    tell_begin();
    assert_int_equal(take(a, &at_end), 0);
    assert_int_equal(take(a, &at_end), 1);
    assert_string_equal(note_end(), want);
    tell_begin();
    assert_int_equal(take(b, &at_end), 1);
    note_end();
    assert_true(give(a, 0, "zero\n"));
    assert_true(give(a, 1, "one\n"));
    assert_false(give(b, 1, "another\n"));
    assert_done(1, "one\n");
    assert_int_equal(claims_check_end(a, NULL), STATUS_OK);
    claims_close(a);
    claims_close(b);
  }
}

/* The other blocks go on; the end says that one has no results. */
TEST_WITH(begin, end, what_has_the_name_of_results_and_is_none_is_said) {
  for (Obstacle o = 0; o < N_OBSTACLES; o++) {
    empty_own_directory();
    claims_close(open_claims(2, 60));
    char want[1200];
    const char *kind = put(o, "done/00000000");
    snprintf(want, sizeof want,
             o == A_FILE
                 ? "auk: %s/done/00000000: this is not what --claim wrote there: the file was changed "
                   "since; remove it, and run the command again\n"
                 : "auk: %s/done/00000000 is %s, expected the results of a block: remove it, and run "
                   "the command again\n",
             own_directory, kind);
    Claims *a = open_claims(2, 60);
    bool at_end;
    Error err;
    tell_begin();
    assert_int_equal(take(a, &at_end), 1);
    assert_string_equal(note_end(), want);
    assert_true(give(a, 1, "one\n"));
    assert_int_equal(take(a, &at_end), SIZE_MAX);
    assert_true(at_end);
    assert_int_equal(claims_check_end(a, &err), STATUS_FAILED);
    assert_string_equal(err.text, "--claim: 1 block has no results: something else has its name");
    claims_close(a);
  }
}

/* The hash of results alone, without any, was written by no process. */
TEST_WITH(begin, end, results_are_more_than_their_hash) {
  for (int more = 0; more < 2; more++) {
    const char *path = in_directory(own_directory, "results");
    FILE *file = fopen(path, "w");
    bool there;
    Error err;
    assert_non_null(file);
    fprintf(file, "%0*d", RESULT_HASH_SIZE + more, 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(claims_look_for_result(path, &there, &err), more ? STATUS_OK : STATUS_USAGE);
    assert_true(there);
    unlink(path);
    assert_int_equal(claims_look_for_result(path, &there, &err), STATUS_OK);
    assert_false(there);
  }
}

/* The sign that a process has the block may be of any kind: its name counts. */
TEST_WITH(begin, end, a_sign_of_a_claim_counts_by_its_name) {
  for (Obstacle o = 0; o < N_OBSTACLES; o++) {
    empty_own_directory();
    claims_close(open_claims(1, 60));
    mkdir(in_directory(own_directory, "taken/00000000"), 0777);
    put(o, "taken/00000000/a-dead-process");
    Claims *a = open_claims(1, 60);
    bool at_end;
    assert_int_equal(take(a, &at_end), 0);
    assert_true(give(a, 0, "results\n"));
    assert_done(0, "results\n");
    claims_close(a);
  }
}

TEST_WITH(begin, end, folders_that_are_none_are_named) {
  static const char *const folders[] = {"taken", "done", "alive"};
  for (size_t i = 0; i < 3; i++) {
    for (Obstacle o = 0; o < N_OBSTACLES; o++) {
      empty_own_directory();
      claims_close(open_claims(1, 60));
      rmdir(in_directory(own_directory, folders[i]));
      const char *kind = put(o, folders[i]);
      const ClaimOptions options = {own_directory, 60, RESULTS_LINES, &settings, 1, &interrupted};
      Claims *claims;
      Error err;
      char want[1200];
      snprintf(want, sizeof want, "%s/%s is %s, expected a directory: remove it, and run the command again",
               own_directory, folders[i], kind);
      assert_int_equal(claims_open(&options, &claims, &err), STATUS_FAILED);
      assert_string_equal(err.text, want);
    }
  }
}

/* A number that is none, one that never comes and one that cannot be read: none is a sign of life for longer
 * than a lease. */
TEST_WITH(begin, end, what_is_no_sign_of_life_is_not_waited_for) {
  const char *fifo = in_directory(own_directory, "fifo"), *link = in_directory(own_directory, "link");
  assert_int_equal(mkfifo(fifo, 0600), 0);
  assert_int_equal(symlink("link", link), 0);
  Watch *watch;
  bool deaf, dead;
  assert_int_equal(watch_open(1, &watch, NULL), STATUS_OK);
  const double began = clock_ms();
  assert_int_equal(watch_look(watch, "fifo", fifo, &deaf, NULL), STATUS_OK);
  assert_int_equal(watch_look(watch, "link", link, &dead, NULL), STATUS_OK);
  assert_false(deaf || dead);
  assert_true(clock_ms() - began < 900);
  while (!deaf || !dead) {
    assert_int_equal(watch_look(watch, "fifo", fifo, &deaf, NULL), STATUS_OK);
    assert_int_equal(watch_look(watch, "link", link, &dead, NULL), STATUS_OK);
    assert_true(clock_ms() - began < 5000);
  }
  assert_true(clock_ms() - began >= 1000);
  watch_close(watch);
}

/* The name of a process has room, or it is none. */
TEST_WITH(begin, end, a_name_that_is_too_long_is_no_process_s) {
  for (int n = OWNER_SIZE - 1; n <= OWNER_SIZE; n++) {
    struct {
      char owner[OWNER_SIZE], after;
    } found = {.after = 'x'};
    char name[OWNER_SIZE + 32] = "taken/00000000/";
    empty_own_directory();
    claims_close(open_claims(1, 60));
    mkdir(in_directory(own_directory, "taken/00000000"), 0777);
    memset(name + strlen(name), 'o', (size_t)n);
    touch(in_directory(own_directory, name));
    claims_owner(own_directory, 0, found.owner);
    assert_int_equal(strlen(found.owner), n < OWNER_SIZE ? n : 0);
    assert_int_equal(found.after, 'x');
  }
}

/* A claim that could not be written is no claim: the folder of claims is gone. */
TEST_WITH(begin, end, a_claim_that_has_no_place_fails) {
  Claims *a = open_claims(1, 60);
  size_t block;
  bool found, at_end;
  Error err;
  assert_int_equal(rmdir(in_directory(own_directory, "taken")), 0);
  assert_int_equal(claims_next(a, false, &block, &found, &at_end, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "taken/00000000"));
  claims_close(a);
}

/* Process a changes its number every 15 seconds, which b's shorter lease allows for. */
TEST_WITH(begin, end, who_is_waited_for_is_said_once_after_a_lease) {
  Claims *a = open_claims(3, 60), *b = open_claims(3, 1);
  char want[300];
  bool at_end;
  assert_int_equal(take(a, &at_end), 0);
  assert_int_equal(take(a, &at_end), 1);
  assert_int_equal(take(a, &at_end), 2);
  assert_true(give(a, 0, "results\n"));
  snprintf(want, sizeof want,
           "auk: --claim: waiting for 2 blocks that other processes have: block 1 is with %s\n", owner_of(1));
  tell_begin();
  for (const double began = clock_ms(); clock_ms() - began < 1300; usleep(20000))
    assert_int_equal(take(b, &at_end), SIZE_MAX);
  assert_string_equal(note_end(), want);
  claims_close(b);
  claims_close(a);
}

/* Numbers that a job cannot have: a sign, more digits than fit, something after them. */
TEST_WITH(begin, end, numbers_of_a_part_are_whole_and_plain) {
  static const struct {
    const char *blocks, *input;
    size_t size, n_records; /* 0: refused */
  } cases[] = {
      {"of 64 records", "12 records", 64, 12},     {"of -5 records", "-1 records", 0, 0},
      {"of +5 records", "+1 records", 0, 0},       {"of 0 records", "1234567890123 records", 0, 0},
      {"of 5 recordsx", "5 records ", 0, 0},       {"of 5", "5", 0, 0},
      {"of 1234567890 records", " records", 0, 0}, {"5 records", "x records", 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    MapSettings s = {0};
    size_t size = 0, n_records = 0;
    assert_int_equal(map_settings_add(&s, "input", "", 0, cases[i].input, NULL), STATUS_OK);
    assert_int_equal(map_settings_add(&s, "blocks", "", 0, cases[i].blocks, NULL), STATUS_OK);
    assert_int_equal(blocks_size(&s, &size), cases[i].size > 0);
    assert_int_equal(survey_read(&s, &n_records), cases[i].n_records > 0);
    if (cases[i].size) assert_true(size == cases[i].size && n_records == cases[i].n_records);
    map_settings_release(&s);
  }
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
