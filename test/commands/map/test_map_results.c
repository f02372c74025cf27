/* test_map_results.c - files of results: cut at every byte and gone on with, they are what they are when
 * nothing happened; files that are not ours stay as they are; one process at a time; what other programs do
 * to the file is noticed before anything more is written. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/map/map_results.h"
#include "test/directory.h"
#include "test/tests.h"

enum { N = 5, INPUT_LINE = 34 /* bytes of a result's line in OUT.resume */ };
static char path[300], inputs_path[320];
static MapSettings settings;
static size_t head_size; /* of OUT.resume */

static uint64_t input_of(size_t index) {
  return record_hash(RECORD_HASH_START, &index, sizeof index);
}

/* Makes the index-th result; the third is an error. */
static void make_result(ResultsFormat format, size_t index, Buffer *out) {
  /* "\n" begins with a backslash, as an error does. */
  static const char *const texts[N] = {"one", "\ntwo\nlines \\ and\r", "", "\xc3\xa9\t\"", "five"};
  out->size = 0;
  if (format == RESULTS_JSON) {
    assert_int_equal(result_object(index, input_of(index), settings.hash, out, NULL), STATUS_OK);
    assert_int_equal(buffer_printf(out, NULL, ",\"%s\":%zu}\n", index == 2 ? "error" : "text", index),
                     STATUS_OK);
  } else if (index == 2) {
    assert_int_equal(result_error(format, "the record\nis broken", out, NULL), STATUS_OK);
  } else {
    assert_int_equal(result_text(format, texts[index], strlen(texts[index]), out, NULL), STATUS_OK);
  }
}

static void put_file(const char *name, const char *bytes, size_t size) {
  FILE *file = fopen(name, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static void get_file(const char *name, Buffer *out) {
  out->size = 0;
  assert_int_equal(file_read(name, 1 << 20, out, NULL), STATUS_OK);
}

static void assert_file(const char *name, const Buffer *want) {
  Buffer got = {0};
  get_file(name, &got);
  if (got.size != want->size || (got.size && memcmp(got.data, want->data, got.size) != 0))
    fail_msg("%s holds \"%.*s\", expected \"%.*s\"", name, (int)got.size, got.data, (int)want->size,
             want->data);
  buffer_release(&got);
}

static ResultsOptions going_on(ResultsFormat format) {
  return (ResultsOptions){.path = path, .format = format, .resume = true, .settings = &settings};
}

/* Opens the file, passes over what is there, and adds what is missing; how many were there. */
static size_t go_on(const ResultsOptions *options, size_t upto) {
  Results results;
  EarlierResult earlier;
  Buffer result = {0};
  Error err = {{0}};
  bool found;
  size_t n = 0;
  if (results_open(options, &results, &err) != STATUS_OK) fail_msg("%s", err.text);
  for (;; n++) {
    if (results_earlier(&results, &earlier, &found, &err) != STATUS_OK) fail_msg("%s", err.text);
    if (!found) break;
    assert_true(earlier.input == input_of(n));
    assert_int_equal(earlier.is_error, n == 2);
    assert_int_equal(results_keep(&results, NULL), STATUS_OK);
  }
  for (size_t i = n; i < upto; i++) {
    make_result(options->format, i, &result);
    assert_int_equal(results_add(&results, input_of(i), &result, NULL), STATUS_OK);
  }
  assert_int_equal(results_close(&results, NULL), STATUS_OK);
  buffer_release(&result);
  return n;
}

static void remove_files(void) {
  unlink(path);
  unlink(inputs_path);
}

/* The file as it is when nothing happens. */
static void make_whole(ResultsFormat format, Buffer *whole, Buffer *inputs) {
  ResultsOptions options = going_on(format);
  remove_files();
  assert_int_equal(go_on(&options, N), 0);
  get_file(path, whole);
  get_file(inputs_path, inputs);
  head_size = inputs->size - (format == RESULTS_JSON ? 0 : INPUT_LINE * N);
  assert_memory_equal(inputs->data + head_size - 2, "\n\n", 2);
}

TEST(cut_anywhere_it_goes_on_to_the_same) {
  Buffer whole = {0}, inputs = {0}, result = {0};
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++) {
    make_whole(format, &whole, &inputs);
    size_t n_whole = 0, next_end = 0; /* whole results in the first `size` bytes */
    make_result(format, 0, &result);
    next_end = result.size;
    for (size_t size = 0; size <= whole.size; size++) {
      if (size == next_end) {
        n_whole++;
        make_result(format, n_whole % N, &result);
        next_end += result.size;
      }
      /* The hash of the next result is missing, torn or there: it is written before the result. */
      for (size_t more = 0; more < 3; more++) {
        size_t told = head_size + INPUT_LINE * n_whole + (more == 1 ? 9 : more == 2 ? INPUT_LINE : 0);
        for (int retry = 0; retry < (more ? 1 : 2); retry++) { /* go_on() keeps the error all the same */
          ResultsOptions options = going_on(format);
          options.retry = retry;
          put_file(path, whole.data, size);
          put_file(inputs_path, inputs.data, told < inputs.size ? told : inputs.size);
          if (format == RESULTS_JSON && more == 1) unlink(inputs_path); /* as of --json > OUT */
          assert_int_equal(go_on(&options, N), n_whole);
          assert_file(path, &whole);
          assert_file(inputs_path, &inputs);
        }
      }
    }
    assert_int_equal(n_whole, N);
  }
  buffer_release(&whole);
  buffer_release(&inputs);
  buffer_release(&result);
}

static Status try_to_go_on(const ResultsOptions *options, Error *err) {
  Results results;
  EarlierResult earlier;
  bool found = true;
  Status status = results_open(options, &results, err);
  while (status == STATUS_OK && found) {
    status = results_earlier(&results, &earlier, &found, err);
    if (status == STATUS_OK && found) status = results_keep(&results, err);
  }
  results_close(&results, NULL);
  return status;
}

static void assert_stays(ResultsFormat format, const char *bytes, size_t size, const char *words) {
  ResultsOptions options = going_on(format);
  Buffer want = {0};
  Error err = {{0}};
  assert_int_equal(buffer_append(&want, bytes, size, NULL), STATUS_OK);
  for (int retry = 0; retry < 2; retry++) {
    options.retry = retry;
    put_file(path, bytes, size);
    assert_int_equal(try_to_go_on(&options, &err), STATUS_USAGE);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_file(path, &want);
  }
  buffer_release(&want);
}
#define ASSERT_STAYS(format, bytes, words) assert_stays(format, bytes, sizeof(bytes) - 1, words)

/* FNV-1a of "one". */
#define ONE_HASH "1a08aa1921ca5caf"

/* Makes an OUT.resume of lines with our head. */
static void put_told(const char *lines) {
  Buffer text = {0};
  assert_int_equal(buffer_append_string(&text, "auk --map lines 2:\n", NULL), STATUS_OK);
  assert_int_equal(buffer_append(&text, settings.lines.data, settings.lines.size, NULL), STATUS_OK);
  assert_int_equal(buffer_append_string(&text, "\n", NULL), STATUS_OK);
  assert_int_equal(buffer_append_string(&text, lines, NULL), STATUS_OK);
  put_file(inputs_path, text.data, text.size);
  buffer_release(&text);
}

TEST(files_of_others_stay_as_they_are) {
  remove_files();
  ASSERT_STAYS(RESULTS_JSON, "my thesis\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "my thesis", "line 1 is not"); /* torn, but not ours */
  ASSERT_STAYS(RESULTS_JSON, "{\"index\": 0, \"inp\":", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON,
               "{\"index\":0,\"input\":\"0123456789abcdef\",\"settings\":\"00000000000000aa\"}\n"
               "{\"index\": 0,",
               "line 2 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":1,\"input\":\"0123456789abcdef\"}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0,\"input\":\"0123456789abcdeg\"}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0,\"input\":\"0123456789abcdef0\"}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0,\"input\":12}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0,\"input\":\"0123456789abcdef\"}\n",
               "another model or other settings");
  ASSERT_STAYS(RESULTS_JSON,
               "{\"index\":0,\"input\":\"0123456789abcdef\",\"settings\":\"0123456789abcdef\"}\n",
               "another model or other settings");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "[0]\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_LINES, "my thesis\n", "there is no ");
  ASSERT_STAYS(RESULTS_LINES, "my thesis", "there is no ");
  put_file(inputs_path, "my notes, longer than a line\n", 29);
  ASSERT_STAYS(RESULTS_LINES, "my thesis\n", "not what --map has made");
  put_file(inputs_path, "auk --map", 9);
  ASSERT_STAYS(RESULTS_LINES, "my thesis\n", "not what --map has made");
  put_file(inputs_path, "", 0);
  ASSERT_STAYS(RESULTS_LINES, "my thesis\n", "not what --map has made");
  put_told("");
  ASSERT_STAYS(RESULTS_LINES, "one\n", "nothing of result 1");
  put_told("0123456789abcdef " ONE_HASH "\n");
  ASSERT_STAYS(RESULTS_LINES, "one\ntwo\n", "nothing of result 2");
  ASSERT_STAYS(RESULTS_LINES, "own\n", "result 1 is not what --map wrote");
  ASSERT_STAYS(RESULTS_NUL, "one\n", "not what --map has made"); /* else all of it were torn */
  put_told("0123456789abcde  " ONE_HASH "\n");
  ASSERT_STAYS(RESULTS_LINES, "one\n", "nothing of result 1");
  put_told("0123456789abcdef " ONE_HASH " ");
  ASSERT_STAYS(RESULTS_LINES, "one\n", "nothing of result 1");
  put_told("0123456789abcdef 650ee76aabac8ae \n");
  ASSERT_STAYS(RESULTS_LINES, "one\n", "nothing of result 1");
  remove_files();

  put_file(inputs_path, "my notes, longer than a line\n", 29); /* where there are no results yet */
  ResultsOptions options = going_on(RESULTS_LINES);
  Error err;
  assert_int_equal(try_to_go_on(&options, &err), STATUS_USAGE);
  struct stat info;
  assert_true(stat(inputs_path, &info) == 0 && info.st_size == 29);
  remove_files();
}

TEST(what_was_begun_before_anything_was_there_goes_on) {
  Buffer whole = {0}, inputs = {0};
  make_whole(RESULTS_LINES, &whole, &inputs);
  ResultsOptions options = going_on(RESULTS_LINES);
  for (size_t told = 0; told <= inputs.size; told++) { /* another program took the results away */
    put_file(path, "", 0);
    put_file(inputs_path, inputs.data, told);
    assert_int_equal(go_on(&options, N), 0);
    assert_file(path, &whole);
    assert_file(inputs_path, &inputs);
  }
  buffer_release(&whole);
  buffer_release(&inputs);
}

/* Errors are made anew in their place, and what follows them is still there. */
TEST(errors_are_replaced_where_they_stand) {
  Buffer whole = {0}, inputs = {0}, result = {0}, want = {0};
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++) {
    make_whole(format, &whole, &inputs);
    want.size = 0;
    for (size_t i = 0; i < N; i++) {
      make_result(format, i, &result);
      if (i == 2) result.size = 0, buffer_append_string(&result, "another\n", NULL);
      assert_int_equal(buffer_append(&want, result.data, result.size, NULL), STATUS_OK);
    }
    for (int interrupted = 1; interrupted >= 0; interrupted--) {
      ResultsOptions options = going_on(format);
      options.retry = true;
      Results results;
      EarlierResult earlier;
      bool found;
      assert_int_equal(results_open(&options, &results, NULL), STATUS_OK);
      for (size_t i = 0; i < N; i++) {
        assert_int_equal(results_earlier(&results, &earlier, &found, NULL), STATUS_OK);
        assert_true(found && earlier.input == input_of(i) && earlier.is_error == (i == 2));
        result.size = 0;
        if (i == 2) buffer_append_string(&result, "another\n", NULL);
        if (i == 2) assert_int_equal(results_add(&results, input_of(i), &result, NULL), STATUS_OK);
        if (i != 2) assert_int_equal(results_keep(&results, NULL), STATUS_OK);
      }
      if (interrupted) { /* before its end: as if nothing had been tried */
        assert_int_equal(results_close(&results, NULL), STATUS_OK);
        assert_file(path, &whole);
        continue;
      }
      assert_int_equal(results_earlier(&results, &earlier, &found, NULL), STATUS_OK);
      assert_false(found);
      assert_file(path, &want);
      Results second; /* the file in its place is locked too */
      assert_int_equal(results_open(&options, &second, NULL), STATUS_FAILED);
      results_close(&second, NULL);
      result.size = 0;
      buffer_append_string(&result, "more\n", NULL);
      assert_int_equal(results_add(&results, 1, &result, NULL), STATUS_OK);
      assert_int_equal(buffer_append_string(&want, "more\n", NULL), STATUS_OK);
      assert_int_equal(results_close(&results, NULL), STATUS_OK);
      assert_file(path, &want);
    }
  }
  buffer_release(&whole);
  buffer_release(&inputs);
  buffer_release(&result);
  buffer_release(&want);
}

/* Only what takes the place of an error may have any bytes: its line must fit both. */
TEST(results_added_after_errors_were_made_again_are_known_by_their_bytes) {
  Buffer whole = {0}, inputs = {0}, before = {0};
  for (ResultsFormat format = RESULTS_LINES; format < RESULTS_JSON; format++) {
    ResultsOptions options = going_on(format);
    make_whole(format, &whole, &inputs);
    remove_files();
    assert_int_equal(go_on(&options, 3), 0);
    get_file(path, &before);
    options.retry = true; /* and go_on() keeps the error all the same */
    assert_int_equal(go_on(&options, N), 3);
    assert_file(path, &whole);
    assert_file(inputs_path, &inputs);
    whole.data[before.size] ^= 1; /* the first byte of the fourth result */
    put_file(path, whole.data, whole.size);
    options.retry = false;
    Error err = {{0}};
    assert_int_equal(try_to_go_on(&options, &err), STATUS_USAGE);
    assert_non_null(strstr(err.text, "result 4 is not what --map wrote there"));
  }
  buffer_release(&whole);
  buffer_release(&inputs);
  buffer_release(&before);
}

TEST(one_process_at_a_time) {
  remove_files();
  ResultsOptions options = going_on(RESULTS_JSON), fresh = {.path = path, .format = RESULTS_LINES};
  Results results;
  assert_int_equal(results_open(&options, &results, NULL), STATUS_OK);
  pid_t child = fork();
  if (child == 0) {
    Error err;
    bool refused = try_to_go_on(&options, &err) == STATUS_FAILED && strstr(err.text, "another process") &&
                   try_to_go_on(&fresh, &err) == STATUS_FAILED && strstr(err.text, "another process");
    _exit(refused ? 0 : 1);
  }
  int outcome;
  assert_int_equal(waitpid(child, &outcome, 0), child);
  assert_int_equal(outcome, 0);
  results_close(&results, NULL);
  assert_int_equal(go_on(&options, N), 0);
}

TEST(what_cannot_be_written_is_refused) {
  Error err;
  Results results;
  const struct {
    ResultsOptions options;
    Status status;
    const char *words;
  } cases[] = {
      {{.path = ""}, STATUS_USAGE, "empty"},
      {{.path = "/"}, STATUS_FAILED, "/: cannot open"},
      {{.path = "/nonexistent/out"}, STATUS_FAILED, "/nonexistent/out: cannot open"},
      {{.path = "/dev/null", .resume = true, .settings = &settings}, STATUS_USAGE, "only a regular file"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(results_open(&cases[i].options, &results, &err), cases[i].status);
    if (!strstr(err.text, cases[i].words)) fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].words);
    assert_int_equal(results_close(&results, NULL), STATUS_OK);
  }

  ResultsOptions full = {.path = "/dev/full"};
  Buffer result = {.data = "x\n", .size = 2};
  assert_int_equal(results_open(&full, &results, &err), STATUS_OK);
  assert_int_equal(results_add(&results, 0, &result, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "/dev/full"));
  results_close(&results, NULL);
}

static int n_synced; /* regular files */

/* In place of the C library's. */
int fsync(int descriptor) {
  struct stat info;
  n_synced += fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  return 0;
}

/* Once, at the end: a disk takes longer for it than many a record does. */
TEST(results_are_on_the_disk_in_the_end) {
  ResultsOptions options = going_on(RESULTS_LINES);
  remove_files();
  n_synced = 0;
  go_on(&options, 2);
  assert_int_equal(n_synced, 1);
}

TEST(text_keeps_to_its_line) {
  static const char text[] = "a\nb\r\\n\0c";
  Buffer out = {0};
  assert_int_equal(result_text(RESULTS_LINES, text, sizeof text - 1, &out, NULL), STATUS_OK);
  assert_true(out.size == 12 && memcmp(out.data, "a\\nb\\r\\\\n\0c\n", 12) == 0);
  out.size = 0;
  assert_int_equal(result_text(RESULTS_NUL, text, sizeof text - 1, &out, NULL), STATUS_OK);
  assert_true(out.size == 11 && memcmp(out.data,
                                       "a\nb\r\\n\xef\xbf\xbd"
                                       "c\0",
                                       11) == 0);
  out.size = 0;
  assert_int_equal(result_error(RESULTS_LINES, "why\n", &out, NULL), STATUS_OK);
  assert_true(out.size == 8 && memcmp(out.data, "\\!why\\n\n", 8) == 0);
  buffer_release(&out);
}

/* --- one model, one set of settings */

static void make_settings(MapSettings *made, const char *n, const char *system, const char *context) {
  assert_int_equal(map_settings_add(made, "-n", n, strlen(n), NULL, NULL), STATUS_OK);
  assert_int_equal(map_settings_add(made, "-sys", system, strlen(system), NULL, NULL), STATUS_OK);
  assert_int_equal(map_settings_add(made, "-c", context, strlen(context), NULL, NULL), STATUS_OK);
}

TEST(results_of_other_settings_are_refused_by_name) {
#define SIXTY "What a system prompt says in sixty bytes, it is cut after it"
  const struct {
    const char *n, *system, *context, *words;
    bool retry;
  } cases[] = {
      {"4", SIXTY "one", "512", NULL, false},
      {"8", SIXTY "one", "512", "out: its results were made with -n 4, now it is 8", false},
      {"4", "Be\nkind.", "512", "made with -sys " SIXTY "..., now it is Be.kind.", false},
      {"4", SIXTY "two", "512", "made with another -sys than this one (" SIXTY "...)", false},
      {"4", SIXTY "one", "64", "made with -c 512, now it is 64", false},
      {"4", SIXTY "one", "64", NULL, true}, /* errors of a context that was too short are worth another try */
      {"8", SIXTY "one", "64", "made with -n 4, now it is 8", true},
  };
  MapSettings first = {0};
  make_settings(&first, "4", SIXTY "one", "512");
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      MapSettings now = {0};
      make_settings(&now, cases[i].n, cases[i].system, cases[i].context);
      ResultsOptions options = going_on(format);
      const uint64_t hash = settings.hash;
      remove_files();
      options.settings = &first;
      settings.hash = first.hash; /* make_result() takes it */
      assert_int_equal(go_on(&options, N), 0);
      options.settings = &now;
      options.retry = cases[i].retry;
      Error err = {{0}};
      assert_int_equal(try_to_go_on(&options, &err), cases[i].words ? STATUS_USAGE : STATUS_OK);
      if (cases[i].words && !strstr(err.text, cases[i].words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].words);
      settings.hash = hash;
      map_settings_release(&now);
    }
  }
  map_settings_release(&first);
}

/* --- other programs */

typedef enum { EMPTY, CUT, GROW, MOVE, REPLACE, N_DEEDS } Deed;

static void do_deed(Deed deed, const char *name) {
  struct stat info;
  char other[340];
  snprintf(other, sizeof other, "%s.other", name);
  assert_int_equal(stat(name, &info), 0);
  switch (deed) {
  case EMPTY: assert_int_equal(truncate(name, 0), 0); break;
  case CUT: assert_int_equal(truncate(name, info.st_size - 1), 0); break;
  case GROW: assert_int_equal(truncate(name, info.st_size + 1), 0); break;
  case MOVE: assert_int_equal(rename(name, other), 0); break;
  case REPLACE:
    put_file(other, "", 0);
    assert_int_equal(truncate(other, info.st_size), 0); /* as long as the one that it replaces */
    assert_int_equal(rename(other, name), 0);
    break;
  case N_DEEDS: break;
  }
}

/* Adds two results, lets something happen to one of the files, and adds the third or ends. */
static void disturb(ResultsFormat format, Deed deed, const char *name, bool at_end, bool resume) {
  ResultsOptions options = going_on(format);
  options.resume = resume;
  Results results;
  EarlierResult earlier;
  Buffer result = {0}, before = {0};
  Error err = {{0}};
  bool found;
  remove_files();
  assert_int_equal(results_open(&options, &results, NULL), STATUS_OK);
  assert_int_equal(results_earlier(&results, &earlier, &found, NULL), STATUS_OK);
  for (size_t i = 0; i < 2; i++) {
    make_result(format, i, &result);
    assert_int_equal(results_add(&results, input_of(i), &result, NULL), STATUS_OK);
  }
  do_deed(deed, name);
  if (deed != MOVE) get_file(name, &before);
  make_result(format, 2, &result);
  Status status = at_end ? results_close(&results, &err) : results_add(&results, input_of(2), &result, &err);
  assert_int_equal(status, STATUS_FAILED);
  if (!strstr(err.text, name) || !strstr(err.text, "another program"))
    fail_msg("\"%s\" does not name %s", err.text, name);
  results_close(&results, NULL);
  if (deed != MOVE) assert_file(name, &before);             /* nothing was added to it */
  if (deed == EMPTY && strcmp(name, path) == 0 && resume) { /* all of it is made again */
    Buffer whole = {0};
    assert_int_equal(go_on(&options, N), 0);
    get_file(path, &before);
    make_whole(format, &whole, &result);
    assert_true(before.size == whole.size && memcmp(before.data, whole.data, whole.size) == 0);
    buffer_release(&whole);
  }
  buffer_release(&result);
  buffer_release(&before);
}

TEST(what_other_programs_do_to_the_files_is_noticed) {
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++) {
    for (Deed deed = EMPTY; deed < N_DEEDS; deed++) {
      for (int at_end = 0; at_end < 2; at_end++) {
        disturb(format, deed, path, at_end, true);
        disturb(format, deed, path, at_end, false);
        disturb(format, deed, inputs_path, at_end, true);
      }
    }
  }
}

/* Also by one that finds the file which has taken the other one's place. */
TEST(a_file_that_was_rewritten_is_still_locked) {
  ResultsOptions options = going_on(RESULTS_LINES);
  Results results, other;
  EarlierResult earlier;
  Error err = {{0}};
  bool found = true;
  remove_files();
  assert_int_equal(go_on(&options, N), 0);
  options.retry = true;
  assert_int_equal(results_open(&options, &results, NULL), STATUS_OK);
  while (found) {
    assert_int_equal(results_earlier(&results, &earlier, &found, NULL), STATUS_OK);
    if (found) assert_int_equal(results_keep(&results, NULL), STATUS_OK);
  }
  assert_int_equal(results_open(&options, &other, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "another process is writing it"));
  assert_int_equal(results_close(&other, NULL), STATUS_OK);
  assert_int_equal(results_close(&results, NULL), STATUS_OK);
}

/* While it is still read nothing is cut off it, and with retry no other file takes its place. */
TEST(a_file_that_changes_while_it_is_read_stays_as_it_is) {
  Buffer whole = {0}, inputs = {0}, before = {0};
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++) {
    for (Deed deed = EMPTY; deed < N_DEEDS; deed++) {
      for (int retry = 0; retry < 2; retry++) {
        make_whole(format, &whole, &inputs);
        ResultsOptions options = going_on(format);
        options.retry = retry;
        Results results;
        EarlierResult earlier;
        Error err = {{0}};
        bool found = true;
        assert_int_equal(results_open(&options, &results, NULL), STATUS_OK);
        assert_int_equal(results_earlier(&results, &earlier, &found, NULL), STATUS_OK); /* reads all of it */
        do_deed(deed, path);
        if (deed != MOVE) get_file(path, &before);
        Status status = STATUS_OK;
        while (status == STATUS_OK && found) {
          assert_int_equal(results_keep(&results, NULL), STATUS_OK);
          status = results_earlier(&results, &earlier, &found, &err);
        }
        /* The NUL that it has grown by is a result, or no beginning of an object, or a torn line. */
        static const char *const grown[] = {"another program", "nothing of result 6", "line 6 is not"};
        assert_int_equal(status, deed == GROW && format != RESULTS_LINES ? STATUS_USAGE : STATUS_FAILED);
        assert_non_null(strstr(err.text, grown[deed == GROW ? format : RESULTS_LINES]));
        results_close(&results, NULL);
        if (deed != MOVE) assert_file(path, &before);
        if (deed == MOVE) assert_int_not_equal(access(path, F_OK), 0);
        assert_file(inputs_path, &inputs);
      }
    }
  }
  buffer_release(&whole);
  buffer_release(&inputs);
  buffer_release(&before);
}

/* Results that were removed, or put in another order, between two runs. */
TEST(results_that_are_no_longer_where_they_were_are_refused) {
  Buffer whole = {0}, inputs = {0}, first = {0};
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++) {
    make_whole(format, &whole, &inputs);
    make_result(format, 0, &first);
    put_file(path, whole.data + first.size, whole.size - first.size);
    ResultsOptions options = going_on(format);
    Error err = {{0}};
    assert_int_equal(try_to_go_on(&options, &err), STATUS_USAGE);
    assert_non_null(
        strstr(err.text, format == RESULTS_JSON ? "line 1 is not" : "result 1 is not what --map wrote"));
  }
  buffer_release(&whole);
  buffer_release(&inputs);
  buffer_release(&first);
}

static void (*before_lock)(void); /* what happens once between open() and the lock, or NULL */

/* The system's call, in the place of the library's function. */
int flock(int descriptor, int operation) {
  void (*happens)(void) = before_lock;
  before_lock = NULL;
  if (happens) happens();
  return (int)syscall(SYS_flock, descriptor, operation);
}

static void replace(void) {
  do_deed(REPLACE, path);
}

TEST(a_file_that_was_replaced_before_it_was_locked_is_another_process_s) {
  Buffer whole = {0}, inputs = {0};
  make_whole(RESULTS_LINES, &whole, &inputs);
  ResultsOptions options = going_on(RESULTS_LINES);
  Results results;
  Error err = {{0}};
  before_lock = replace;
  assert_int_equal(results_open(&options, &results, &err), STATUS_FAILED);
  assert_null(before_lock);
  assert_non_null(strstr(err.text, "another process is writing it"));
  assert_int_equal(results_close(&results, NULL), STATUS_OK);
  assert_file(inputs_path, &inputs);
  buffer_release(&whole);
  buffer_release(&inputs);
}

static Buffer other_results, other_inputs;

static void write_others(void) {
  int results = open(path, O_WRONLY | O_CLOEXEC); /* and not another file in its place */
  assert_int_equal(write(results, other_results.data, other_results.size), other_results.size);
  close(results);
  put_file(inputs_path, other_inputs.data, other_inputs.size);
}

TEST(what_another_process_has_written_before_the_lock_is_gone_on_with) {
  for (ResultsFormat format = RESULTS_LINES; format <= RESULTS_JSON; format++) {
    make_whole(format, &other_results, &other_inputs);
    ResultsOptions options = going_on(format);
    remove_files();
    before_lock = write_others;
    assert_int_equal(go_on(&options, N), N);
    assert_file(path, &other_results);
    assert_file(inputs_path, &other_inputs);
  }
  buffer_release(&other_results);
  buffer_release(&other_inputs);
}

static int make_place(void **state) {
  make_own_directory(state);
  snprintf(path, sizeof path, "%s/out", own_directory);
  snprintf(inputs_path, sizeof inputs_path, "%s.resume", path);
  make_settings(&settings, "4", "Be kind.", "512");
  settings.hash = 0xaa;
  return 0;
}

static int remove_place(void **state) {
  map_settings_release(&settings);
  return remove_own_directory(state);
}

static CMFixtureFunction before_all = make_place, after_all = remove_place;
