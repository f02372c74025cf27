/* test_map_results.c - files of results: cut at every byte and gone on with, they are what they are when
 * nothing happened; files that are not ours stay as they are; one process at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "commands/map/map_results.h"
#include "test/directory.h"

enum { N = 5 };
static char path[300], inputs_path[320];

static uint64_t input_of(size_t index) {
  return record_hash(RECORD_HASH_START, &index, sizeof index);
}

/* What the index-th result is: the third is an error. */
static void make_result(ResultsFormat format, size_t index, Buffer *out) {
  static const char *const texts[N] = {"one", "two\nlines \\ and\r", "", "\xc3\xa9\t\"", "five"};
  out->size = 0;
  if (format == RESULTS_JSON) {
    assert_int_equal(result_object(index, input_of(index), out, NULL), STATUS_OK);
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
  return (ResultsOptions){.path = path, .format = format, .resume = true, .input = -1};
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
  if (format != RESULTS_JSON) get_file(inputs_path, inputs);
}

static void cut_anywhere_it_goes_on_to_the_same(void **state) {
  (void)state;
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
      /* The hash of the next one may be there, or not, or torn; but for one of those, it was written first.
       *  */
      for (size_t more = 0; more < 3; more++) {
        size_t told = 17 * (1 + n_whole) + (more == 1 ? 9 : more == 2 ? 17 : 0);
        ResultsOptions options = going_on(format);
        put_file(path, whole.data, size);
        if (format != RESULTS_JSON)
          put_file(inputs_path, inputs.data, told < inputs.size ? told : inputs.size);
        assert_int_equal(go_on(&options, N), n_whole);
        assert_file(path, &whole);
        if (format != RESULTS_JSON) assert_file(inputs_path, &inputs);
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

static void files_of_others_stay_as_they_are(void **state) {
  (void)state;
  remove_files();
  ASSERT_STAYS(RESULTS_JSON, "my thesis\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "my thesis", "line 1 is not"); /* torn, but not ours */
  ASSERT_STAYS(RESULTS_JSON, "{\"index\": 0, \"inp\":", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\": 0, \"input\": \"0123456789abcdef\"}\n{\"index\": 0,",
               "line 2 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":1,\"input\":\"0123456789abcdef\"}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0,\"input\":\"0123456789abcdeg\"}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0,\"input\":\"0123456789abcdef0\"}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0,\"input\":12}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "{\"index\":0}\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_JSON, "[0]\n", "line 1 is not");
  ASSERT_STAYS(RESULTS_LINES, "my thesis\n", "there is no ");
  ASSERT_STAYS(RESULTS_LINES, "my thesis", "there is no ");
  put_file(inputs_path, "my notes, longer than a line\n", 29);
  ASSERT_STAYS(RESULTS_LINES, "my thesis\n", "not what --map has made");
  put_file(inputs_path, "auk --map", 9);
  ASSERT_STAYS(RESULTS_LINES, "my thesis\n", "not what --map has made");
  put_file(inputs_path, "auk --map lines:\n", 17);
  ASSERT_STAYS(RESULTS_LINES, "one\n", "line 2 is no hash");
  put_file(inputs_path, "auk --map lines:\n0123456789abcdef\n", 34);
  ASSERT_STAYS(RESULTS_LINES, "one\ntwo\n", "line 3 is no hash");
  put_file(inputs_path, "auk --map lines:\n0123456789abcde \n", 34);
  ASSERT_STAYS(RESULTS_LINES, "one\n", "line 2 is no hash");
  put_file(inputs_path, "auk --map lines:\n0123456789abcdef\n", 34);
  ASSERT_STAYS(RESULTS_NUL, "one\n", "not what --map has made"); /* else all of it were torn */
  remove_files();

  put_file(inputs_path, "my notes, longer than a line\n", 29); /* where there are no results yet */
  ResultsOptions options = going_on(RESULTS_LINES);
  Error err;
  assert_int_equal(try_to_go_on(&options, &err), STATUS_USAGE);
  struct stat info;
  assert_true(stat(inputs_path, &info) == 0 && info.st_size == 29);
  remove_files();
}

static void what_was_begun_before_anything_was_there_goes_on(void **state) {
  (void)state;
  Buffer whole = {0}, inputs = {0};
  make_whole(RESULTS_LINES, &whole, &inputs);
  ResultsOptions options = going_on(RESULTS_LINES);
  for (size_t told = 0; told <= inputs.size; told++) { /* somebody took the results away */
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
static void errors_are_replaced_where_they_stand(void **state) {
  (void)state;
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

static void one_process_at_a_time(void **state) {
  (void)state;
  remove_files();
  ResultsOptions options = going_on(RESULTS_JSON),
                 fresh = {.path = path, .format = RESULTS_LINES, .input = -1};
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

static void what_cannot_be_written_is_refused(void **state) {
  (void)state;
  Error err;
  Results results;
  FILE *self = fopen(path, "w+b");
  assert_non_null(self);
  fputs("input\n", self);
  fflush(self);
  const struct {
    ResultsOptions options;
    Status status;
    const char *words;
  } cases[] = {
      {{.path = "", .input = -1}, STATUS_USAGE, "empty"},
      {{.path = "/", .input = -1}, STATUS_FAILED, "/: cannot open"},
      {{.path = "/nonexistent/out", .input = -1}, STATUS_FAILED, "/nonexistent/out: cannot open"},
      {{.path = "/dev/null", .resume = true, .input = -1}, STATUS_USAGE, "only a regular file"},
      {{.path = path, .input = fileno(self)}, STATUS_USAGE, "the input itself"},
      {{.path = path, .resume = true, .input = fileno(self)}, STATUS_USAGE, "the input itself"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(results_open(&cases[i].options, &results, &err), cases[i].status);
    if (!strstr(err.text, cases[i].words)) fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].words);
    assert_int_equal(results_close(&results, NULL), STATUS_OK);
  }
  fclose(self);
  Buffer want = {.data = "input\n", .size = 6};
  assert_file(path, &want);

  ResultsOptions full = {.path = "/dev/full", .input = -1};
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
static void results_are_on_the_disk_in_the_end(void **state) {
  (void)state;
  ResultsOptions options = going_on(RESULTS_LINES);
  remove_files();
  n_synced = 0;
  go_on(&options, 2);
  assert_int_equal(n_synced, 1);
}

static void text_keeps_to_its_line(void **state) {
  (void)state;
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

static int make_place(void **state) {
  make_own_directory(state);
  snprintf(path, sizeof path, "%s/out", own_directory);
  snprintf(inputs_path, sizeof inputs_path, "%s.resume", path);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cut_anywhere_it_goes_on_to_the_same),
      cmocka_unit_test(files_of_others_stay_as_they_are),
      cmocka_unit_test(what_was_begun_before_anything_was_there_goes_on),
      cmocka_unit_test(errors_are_replaced_where_they_stand),
      cmocka_unit_test(one_process_at_a_time),
      cmocka_unit_test(what_cannot_be_written_is_refused),
      cmocka_unit_test(results_are_on_the_disk_in_the_end),
      cmocka_unit_test(text_keeps_to_its_line),
  };
  return cmocka_run_group_tests(tests, make_place, remove_own_directory);
}
