/* test_map_records.c - the records of a file and of a pipe, whatever is in them and wherever reads end,
 * against what their rules say. */
#include <sys/wait.h>
#include <unistd.h>

#include "commands/map/map_records.h"
#include "test/tests.h"

static const RecordRules lines = {.end = '\n', .limit = 100, .hash = RECORD_HASH_START};
static const RecordRules json = {.end = '\n', .passes_blank = true, .limit = 100, .hash = RECORD_HASH_START};
static const RecordRules nul = {.end = 0, .limit = 100, .hash = RECORD_HASH_START};

/* The reading end of a pipe into which a process writes text[0..size), `step` bytes at a time. */
static int pipe_of(const char *text, size_t size, size_t step) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  if (fork() == 0) {
    for (size_t at = 0; at < size; at += step)
      if (write(ends[1], text + at, size - at < step ? size - at : step) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  return ends[0];
}

/* Reads all records of the text and compares them with want[0..n), also where they come in small pieces. */
static void assert_records(const char *text, size_t size, RecordRules rules, const char *const *want,
                           size_t n) {
  const size_t steps[] = {1, 3, 1 << 20};
  for (size_t s = 0; s < 3; s++) {
    int descriptor = pipe_of(text, size, steps[s]);
    RecordReader reader;
    Record record;
    bool found = true;
    assert_int_equal(record_reader_attach(descriptor, "pipe", rules, &reader, NULL), STATUS_OK);
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
      assert_true(found);
      assert_int_equal(record.index, i);
      assert_int_equal(record.size, strlen(want[i]));
      assert_memory_equal(record.text, want[i], record.size);
      assert_false(record.cut);
    }
    for (int i = 0; i < 2; i++) {
      assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
      assert_false(found);
    }
    assert_int_equal(reader.n_consumed, size);
    record_reader_close(&reader);
    close(descriptor);
    wait(NULL);
  }
}
#define ASSERT_RECORDS(text, rules, ...)                                                                     \
  do {                                                                                                       \
    const char *const want_[] = {__VA_ARGS__, NULL};                                                         \
    assert_records(text, sizeof(text) - 1, rules, want_, sizeof want_ / sizeof *want_ - 1);                  \
  } while (0)

TEST(lines_are_what_lies_between_their_ends) {
  assert_records("", 0, lines, NULL, 0);
  ASSERT_RECORDS("\n", lines, "");
  ASSERT_RECORDS("one\ntwo\n", lines, "one", "two");
  ASSERT_RECORDS("one\ntwo", lines, "one", "two");         /* no end after the last */
  ASSERT_RECORDS("\n\none\n\n", lines, "", "", "one", ""); /* empty lines count */
  ASSERT_RECORDS("one\r\n\r\ntwo\r\r\nthr\ree\r", lines, "one", "", "two\r", "thr\ree");
  ASSERT_RECORDS("\xef\xbb\xbfone\n\xef\xbb\xbftwo", lines, "one",
                 "\xef\xbb\xbftwo"); /* the mark of a file */
  ASSERT_RECORDS("\xef\xbb\xbf\n", lines, "");
  ASSERT_RECORDS("\xef\xbb", lines, "\xef\xbb");
}

TEST(blank_lines_are_no_json) {
  ASSERT_RECORDS("\n \t\r\n{}\n\n[1]\n  \n", json, "{}", "[1]");
  assert_records("\n\n \n", 4, json, NULL, 0);
}

TEST(records_may_end_in_nul) {
  ASSERT_RECORDS("one\ntwo\r\n\0\0three\r", nul, "one\ntwo\r\n", "", "three\r");
}

TEST(nul_is_a_byte_of_a_line) {
  int descriptor = pipe_of("a\0b\n\0", 5, 5);
  RecordReader reader;
  Record record;
  bool found;
  assert_int_equal(record_reader_attach(descriptor, "pipe", json, &reader, NULL), STATUS_OK);
  assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
  assert_int_equal(record.size, 3);
  assert_memory_equal(record.text, "a\0b", 3);
  assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
  assert_true(found && record.size == 1 && record.text[0] == 0 && !record.ended); /* not blank */
  record_reader_close(&reader);
  close(descriptor);
  wait(NULL);
}

TEST(a_hash_tells_records_apart_and_not_where_reads_end) {
  uint64_t hashes[3][4];
  for (size_t s = 0; s < 3; s++) {
    int descriptor = pipe_of("one\ntwo\n\ntwp", 12, s + 1);
    RecordReader reader;
    Record record;
    bool found;
    assert_int_equal(record_reader_attach(descriptor, "pipe", lines, &reader, NULL), STATUS_OK);
    for (int i = 0; i < 4; i++) {
      assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
      hashes[s][i] = record.hash;
    }
    record_reader_close(&reader);
    close(descriptor);
    wait(NULL);
  }
  assert_memory_equal(hashes[0], hashes[1], sizeof *hashes);
  assert_memory_equal(hashes[0], hashes[2], sizeof *hashes);
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < i; k++) assert_true(hashes[0][i] != hashes[0][k]);
  assert_true(hashes[0][2] == RECORD_HASH_START);
  assert_true(record_hash(RECORD_HASH_START, "foobar", 6) ==
              0x85944171f73967e8u); /* RFC 9923's test vector */
}

/* A line of 200 MB costs the memory of its limit, and what follows it is read as ever. */
TEST(a_line_of_any_length_is_passed_over) {
  static char piece[1 << 16];
  memset(piece, 'x', sizeof piece);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  if (fork() == 0) {
    close(ends[0]);
    for (int i = 0; i < 200 * 16; i++)
      if (write(ends[1], piece, sizeof piece) < 0) _exit(1);
    if (write(ends[1], "\r\nnext\n", 7) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  RecordReader reader;
  Record record;
  bool found;
  assert_int_equal(record_reader_attach(ends[0], "pipe", lines, &reader, NULL), STATUS_OK);
  assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
  assert_true(found && record.cut && record.ended && record.size == 100);
  assert_true(reader.record.capacity < 4096);
  assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
  assert_true(found && !record.cut && record.index == 1);
  assert_memory_equal(record.text, "next", 4);
  record_reader_close(&reader);
  close(ends[0]);
  wait(NULL);
}

TEST(a_record_of_just_the_limit_is_whole) {
  char text[202];
  memset(text, 'y', sizeof text);
  text[100] = '\n';
  text[200] = '\r'; /* no end of a line: the record goes on */
  int descriptor = pipe_of(text, sizeof text, 64);
  RecordReader reader;
  Record record;
  bool found;
  assert_int_equal(record_reader_attach(descriptor, "pipe", lines, &reader, NULL), STATUS_OK);
  assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
  assert_true(record.size == 100 && !record.cut && record.ended);
  assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
  assert_true(record.size == 100 && record.cut && !record.ended);
  record_reader_close(&reader);
  close(descriptor);
  wait(NULL);
}

/* A line is there as soon as its end is, whatever follows. */
TEST(lines_are_not_waited_for) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  RecordReader reader;
  Record record;
  bool found;
  volatile int interrupted = 0;
  assert_int_equal(record_reader_attach(ends[0], "pipe", lines, &reader, NULL), STATUS_OK);
  reader.interrupted = &interrupted;
  for (int i = 0; i < 3; i++) {
    assert_int_equal(write(ends[1], "one\n", 4), 4);
    assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
    assert_true(found && record.size == 3);
  }
  assert_int_equal(write(ends[1], "half", 4), 4);
  interrupted = 1;
  Error err;
  assert_int_equal(record_reader_next(&reader, &record, &found, &err), STATUS_INTERRUPTED);
  record_reader_close(&reader);
  close(ends[0]);
  close(ends[1]);
}

TEST(what_cannot_be_read_is_told) {
  RecordReader reader;
  Record record;
  bool found;
  Error err;
  assert_int_equal(record_reader_open("/nonexistent/records", lines, NULL, &reader, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "/nonexistent/records: cannot open"));
  record_reader_close(&reader);
  assert_int_equal(record_reader_open("/", lines, NULL, &reader, &err), STATUS_OK);
  assert_int_equal(record_reader_next(&reader, &record, &found, &err), STATUS_FAILED);
  assert_string_equal(err.text, "/: cannot read: Is a directory");
  record_reader_close(&reader);
}

/* Back at a place all is as it was there, from within the copies of a record too. */
TEST(a_place_is_returned_to) {
  static const char text[] = "one\ntwo\n\nfour\n";
  Buffer texts = {0};
  RecordRules rules = lines;
  rules.n_copies = 3;
  assert_int_equal(buffer_append(&texts, text, sizeof text - 1, NULL), STATUS_OK);
  for (int n_before = 0; n_before <= 12; n_before++) {
    RecordReader reader;
    Record record;
    bool found;
    assert_int_equal(record_reader_open_texts(&texts, "texts", rules, &reader, NULL), STATUS_OK);
    RecordPlace places[4];
    uint64_t hashes[4];
    for (size_t i = 0; i < 12; i++) {
      if (i % 3 == 0) places[i / 3] = record_reader_place(&reader);
      assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
      hashes[i / 3] = reader.hash;
    }
    for (size_t to = 0; to < 4; to++) {
      assert_int_equal(record_reader_return(&reader, &places[0], NULL), STATUS_OK);
      for (int i = 0; i < n_before; i++)
        assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
      assert_int_equal(record_reader_return(&reader, &places[to], NULL), STATUS_OK);
      for (size_t i = 3 * to; i < 12; i++) {
        assert_int_equal(record_reader_next(&reader, &record, &found, NULL), STATUS_OK);
        assert_true(found && record.index == i && record.copy == (int)(i % 3) && record.line == i / 3 + 1);
        assert_true(reader.hash == hashes[i / 3]);
      }
    }
    record_reader_close(&reader);
  }
  buffer_release(&texts);
}
