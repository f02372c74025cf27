/* test_prefix_files.c - the files of a prefix store one by one: their bytes as prefix_file.h draws them,
 * which files are refused and why, which names in a directory are the store's, and which files are removed
 * first. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash64.h"
#include "engine/prefix/prefix_directory.h"
#include "engine/prefix/prefix_file.h"
#include "test/directory.h"
#include "test/tests.h"

enum { LAYERS = 2, TOKEN = 8, TOKEN_1 = 12, TOKENS = TOKEN + TOKEN_1, MOST = 2 * PREFIX_BLOCK };

static const size_t layer_bytes[LAYERS] = {TOKEN, TOKEN_1};
static const PrefixKind kind = {"abcde", LAYERS, layer_bytes, true, false};

/* --- one file */

/* A file of n tokens that follow `start` others, as a store writes it. */
static char *write_block(const PrefixKind *of, const char *label, int start, int n) {
  static unsigned char data[MOST * TOKENS];
  static int32_t ids[2 * MOST];
  uint64_t sums[LAYERS + 1] = {0};
  Error err = {{0}};
  for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + i / 256);
  for (int i = 0; i < 2 * MOST; i++) ids[i] = i * 3 + 1;
  const size_t first = prefix_layer_bytes(of, 0, n), second = prefix_layer_bytes(of, 1, n);
  sums[0] = hash64(data, first, 0);
  sums[1] = hash64(data + first, second, 0);
  char *path = in_directory(own_directory, "block");
  if (prefix_file_write(path, of, label, ids, start, n, data, sums, &err)) fail_msg("%s", err.text);
  return path;
}

static size_t read_bytes(const char *path, unsigned char *bytes, size_t room) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t size = fread(bytes, 1, room, file);
  fclose(file);
  return size;
}

static void write_bytes(const char *path, const unsigned char *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

static void assert_i32(const unsigned char *at, int32_t want) {
  int32_t got;
  memcpy(&got, at, sizeof got);
  assert_int_equal(got, want);
}

static void assert_u64(const unsigned char *at, uint64_t want) {
  uint64_t got;
  memcpy(&got, at, sizeof got);
  assert_true(got == want);
}

/* A change of this layout needs another first line of the file, or old files are read as what they are
 * not. */
TEST_IN_DIRECTORY(a_file_has_the_bytes_that_are_drawn) {
  enum { START = 256, N = 3, KEY = 112, IDS = 120, SUMS = 1160, DATA = 1176, SIZE = 1236 };
  unsigned char bytes[2 * SIZE], out[N * TOKEN_1];
  static const unsigned char zeros[64] = {0};
  const char *path = write_block(&kind, "my model", START, N);
  assert_int_equal(read_bytes(path, bytes, sizeof bytes), SIZE);
  assert_int_equal(prefix_file_bytes(&kind, START, N), SIZE);
  const PrefixKind even = {"12345678", LAYERS, layer_bytes, true, false}; /* nothing to be filled up */
  assert_int_equal(prefix_file_bytes(&even, START, 2), 112 + 8 + 258 * 4 + 16 + 2 * TOKENS);
  assert_memory_equal(bytes, "aukpfx3\n", 8);
  const int32_t fields[] = {START, N, LAYERS, 5, 1, 0};
  for (int i = 0; i < 6; i++) assert_i32(bytes + 8 + 4 * i, fields[i]);
  assert_u64(bytes + 32, N * TOKENS);
  assert_u64(bytes + 40, hash64(bytes + 48, DATA - 48, hash64(bytes, 40, 0)));
  assert_memory_equal(bytes + 48, "my model", 8);
  assert_memory_equal(bytes + 56, zeros, 56);
  assert_memory_equal(bytes + KEY, "abcde\0\0", 8);
  for (int i = 0; i < START + N; i++) assert_i32(bytes + IDS + 4 * i, i * 3 + 1);
  assert_memory_equal(bytes + IDS + 4 * (START + N), zeros, 4);
  assert_u64(bytes + SUMS, hash64(bytes + DATA, N * TOKEN, 0));
  assert_u64(bytes + SUMS + 8, hash64(bytes + DATA + N * TOKEN, N * TOKEN_1, 0));
  for (size_t i = 0; i < SIZE - DATA; i++) assert_int_equal(bytes[DATA + i], i * 7 & 255);

  PrefixFile file;
  bool found;
  Error err = {{0}};
  assert_int_equal(prefix_file_open(path, &kind, START, &file, &found, &err), STATUS_OK);
  assert_true(found && file.start == START && file.n == N && file.data_bytes == N * TOKENS);
  assert_int_equal(file.data_offset, DATA);
  assert_memory_equal(file.ids, bytes + IDS, 4 * (START + N));
  assert_int_equal(prefix_file_layer(&file, &kind, 1, out, &err), STATUS_OK);
  assert_memory_equal(out, bytes + DATA + N * TOKEN, N * TOKEN_1);
  assert_int_equal(prefix_file_layer(&file, &kind, 0, out, &err), STATUS_OK);
  assert_memory_equal(out, bytes + DATA, N * TOKEN);
  prefix_file_close(&file);
  assert_int_equal(file.descriptor, -1);
  prefix_file_close(&file); /* twice is once */
}

static void assert_refused(const char *path, const PrefixKind *of, int start, const char *reason) {
  PrefixFile file;
  bool found;
  Error err = {{0}};
  assert_int_equal(prefix_file_open(path, of, start, &file, &found, &err), STATUS_FAILED);
  assert_true(found);
  prefix_file_close(&file);
  char want[800];
  snprintf(want, sizeof want, "%s: %s", path, reason);
  assert_string_equal(err.text, want);
}

static void assert_accepted(const char *path, const PrefixKind *of, int start) {
  PrefixFile file;
  bool found;
  Error err = {{0}};
  if (prefix_file_open(path, of, start, &file, &found, &err)) fail_msg("%s", err.text);
  prefix_file_close(&file);
}

/* The same head in front of each layer's state, whatever the number of tokens before it. */
TEST_IN_DIRECTORY(a_state_has_the_bytes_that_are_drawn) {
  enum { START = 256, N = 200, DATA = 112 + 8 + (START + N) * 4 + 8 * LAYERS };
  static const PrefixKind states = {"abcde", LAYERS, layer_bytes, false, true};
  static const size_t other[LAYERS] = {TOKEN, TOKEN_1 + 2};
  static const PrefixKind others[] = {{"abcde", LAYERS, other, false, true},
                                      {"abcdE", LAYERS, layer_bytes, false, true}};
  unsigned char bytes[DATA + TOKENS + 1], out[TOKEN_1];
  const char *path = write_block(&states, "my model", START, N);
  assert_int_equal(read_bytes(path, bytes, sizeof bytes), DATA + TOKENS);
  assert_int_equal(prefix_file_bytes(&states, START, N), DATA + TOKENS);
  assert_memory_equal(bytes, "aukrec1\n", 8);
  assert_i32(bytes + 12, N);
  assert_u64(bytes + 32, TOKENS);
  PrefixFile file;
  bool found;
  Error err = {{0}};
  if (prefix_file_open(path, &states, START, &file, &found, &err)) fail_msg("%s", err.text);
  assert_true(found && file.start == START && file.n == N && file.data_bytes == TOKENS);
  assert_int_equal(prefix_file_layer(&file, &states, 1, out, &err), STATUS_OK);
  assert_memory_equal(out, bytes + DATA + TOKEN, TOKEN_1);
  prefix_file_close(&file);
  for (size_t i = 0; i < 2; i++)
    assert_refused(path, &others[i], START, "of another model, program or setting");
  assert_refused(path, &kind, START, "no file of keys and values, or another version's");
  assert_refused(write_block(&kind, "", START, N), &states, START,
                 "no file of recurrent states, or another version's");
  PrefixSummary summary;
  assert_true(prefix_file_summary(write_block(&states, "", START, N), &summary));
  assert_true(summary.state && summary.start == START && summary.n == N);
}

TEST_IN_DIRECTORY(a_file_of_something_else_is_refused_with_the_reason) {
  static const char *const other = "of another model, program or setting";
  static const size_t more[LAYERS + 1] = {TOKEN, TOKEN_1, 0}, other_bytes[LAYERS] = {TOKEN, TOKEN_1 + 2};
  const PrefixKind kinds[] = {
      {"abcde", LAYERS + 1, more, true, false},     {"abcde", LAYERS, other_bytes, true, false},
      {"abcde", LAYERS, layer_bytes, false, false}, {"abcd", LAYERS, layer_bytes, true, false},
      {"abcdef", LAYERS, layer_bytes, true, false}, {"abcdE", LAYERS, layer_bytes, true, false}};
  const char *path = write_block(&kind, "", 256, 8);
  assert_accepted(path, &kind, 256);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) assert_refused(path, &kinds[i], 256, other);
  assert_refused(path, &kind, 0, "begins at token 256, expected 0");
  assert_refused(path, &kind, 512, "begins at token 256, expected 512");
  assert_accepted(write_block(&kind, "", 0, 1), &kind, 0);
  assert_accepted(write_block(&kind, "", 0, PREFIX_BLOCK), &kind, 0);
  assert_refused(write_block(&kind, "", 0, 0), &kind, 0, "0 tokens, expected 1 to 256");
  assert_refused(write_block(&kind, "", 0, PREFIX_BLOCK + 1), &kind, 0, "257 tokens, expected 1 to 256");

  PrefixFile file;
  bool found = true;
  assert_int_equal(prefix_file_open(in_directory(own_directory, "none"), &kind, 0, &file, &found, NULL),
                   STATUS_OK);
  assert_false(found);
  prefix_file_close(&file);
}

TEST_IN_DIRECTORY(a_damaged_file_is_refused_with_the_reason) {
  unsigned char bytes[2000], out[8 * TOKEN_1];
  const char *path = write_block(&kind, "", 0, 8);
  const size_t size = read_bytes(path, bytes, sizeof bytes), data = size - 8 * TOKENS;
  char reason[80];
  bytes[3] ^= 1;
  write_bytes(path, bytes, size);
  assert_refused(path, &kind, 0, "no file of keys and values, or another version's");
  bytes[3] ^= 1;
  bytes[50] ^= 1; /* of the label, which nothing else depends on */
  write_bytes(path, bytes, size);
  assert_refused(path, &kind, 0, "the head's checksum is wrong");
  bytes[50] ^= 1;
  write_bytes(path, bytes, size - 1);
  snprintf(reason, sizeof reason, "%zu bytes, expected %zu", size - 1, size);
  assert_refused(path, &kind, 0, reason);
  write_bytes(path, bytes, PREFIX_HEADER - 1);
  assert_refused(path, &kind, 0, "ends within its header");
  bytes[size - 1] ^= 1;
  write_bytes(path, bytes, size);
  PrefixFile file;
  bool found;
  Error err = {{0}};
  assert_int_equal(prefix_file_open(path, &kind, 0, &file, &found, &err), STATUS_OK);
  assert_int_equal(prefix_file_layer(&file, &kind, 0, out, &err), STATUS_OK);
  assert_int_equal(prefix_file_layer(&file, &kind, 1, out, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, ": the checksum of layer 1 is wrong"));
  prefix_file_close(&file);

  uint64_t head[250]; /* aligned */
  memcpy(head, bytes, size);
  const unsigned char *at = (const unsigned char *)head;
  assert_int_equal(prefix_head_check("f", at, data, size, &kind, 0, &file, &err), STATUS_OK);
  assert_int_equal(prefix_head_check("f", at, data - 1, size, &kind, 0, &file, &err), STATUS_FAILED);
  assert_string_equal(err.text, "f: ends before its data");
  assert_int_equal(prefix_head_check("f", at, PREFIX_HEADER - 1, size, &kind, 0, &file, &err), STATUS_FAILED);
  assert_string_equal(err.text, "f: ends within its header");
  assert_int_equal(prefix_head_check("f", at, data, size + 1, &kind, 0, &file, &err), STATUS_FAILED);
}

TEST_IN_DIRECTORY(a_file_says_of_itself_what_it_is) {
  char label[101];
  PrefixSummary summary;
  for (size_t length = 0; length <= 100; length += length == 62 || length == 63 ? 1 : 2) {
    memset(label, 'x', length);
    label[length] = 0;
    assert_true(prefix_file_summary(write_block(&kind, label, 256, 17), &summary));
    assert_true(summary.start == 256 && summary.n == 17);
    assert_int_equal(strlen(summary.label), length < PREFIX_LABEL ? length : PREFIX_LABEL - 1);
    assert_memory_equal(summary.label, label, strlen(summary.label));
    unsigned char head[PREFIX_HEADER];
    read_bytes(in_directory(own_directory, "block"), head, sizeof head);
    assert_int_equal(head[PREFIX_HEADER - 1], 0); /* its reader finds its end */
  }
  assert_true(prefix_file_summary(write_block(&kind, "", 0, PREFIX_BLOCK), &summary));
  assert_false(prefix_file_summary(write_block(&kind, "", 0, PREFIX_BLOCK + 1), &summary));
  assert_false(prefix_file_summary(write_block(&kind, "", 0, 0), &summary));
  unsigned char bytes[4000];
  const char *path = write_block(&kind, "", 256, 1);
  const size_t size = read_bytes(path, bytes, sizeof bytes);
  write_bytes(path, bytes, PREFIX_HEADER);
  assert_true(prefix_file_summary(path, &summary));
  write_bytes(path, bytes, PREFIX_HEADER - 1);
  assert_false(prefix_file_summary(path, &summary));
  bytes[11] ^= 0x80; /* begins before the text */
  write_bytes(path, bytes, size);
  assert_false(prefix_file_summary(path, &summary));
  bytes[11] ^= 0x80;
  bytes[6] ^= 1;
  write_bytes(path, bytes, size);
  assert_false(prefix_file_summary(path, &summary));
  assert_false(prefix_file_summary(own_directory, &summary));
  assert_false(prefix_file_summary(in_directory(own_directory, "none"), &summary));
}

/* --- a directory */

#define BLOCK_A "0123456789abcdef-00000000000000aa-1111111111111111.kv"
#define BLOCK_B "0123456789abcdef-00000000000000aa-2222222222222222.kv"
#define BLOCK_C "0123456789abcdef-00000000000000bb-3333333333333333.kv"
#define BLOCK_D "0123456789abcdee-00000000000000aa-4444444444444444.kv"
#define STATE_A "0123456789abcdef-00000000000000aa-1111111111111111.rs"
#define KNOWN   "known-fedcba9876543210"

static char *make_file(const char *name, size_t size, int64_t used_ns) {
  char *path = in_directory(own_directory, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  for (size_t i = 0; i < size; i++) fputc('x', file);
  fclose(file);
  prefix_mark_used(path, used_ns);
  return path;
}

static PrefixList list_files(void) {
  PrefixList list;
  assert_int_equal(prefix_directory_list(own_directory, &list, NULL), STATUS_OK);
  return list;
}

TEST_IN_DIRECTORY(names_say_which_files_are_the_stores) {
  static const char *const others[] = {
      "0123456789abcdef-00000000000000aa-111111111111111.kv",
      "0123456789abcdef-00000000000000aa-11111111111111111.kv",
      "0123456789abcdef-00000000000000aa-1111111111111111.kv~",
      "0123456789abcdef-00000000000000aa-1111111111111111.k",
      "0123456789abcdef-00000000000000aa-1111111111111111.rsx",
      "0123456789abcdef-00000000000000aa-1111111111111111",
      "0123456789abcdeF-00000000000000aa-1111111111111111.kv",
      "0123456789abcdeg-00000000000000aa-1111111111111111.kv",
      "-00000000000000aa-1111111111111111.kv",
      "0123456789abcde:-00000000000000aa-1111111111111111.kv",
      "0123456789abcdef_00000000000000aa-1111111111111111.kv",
      "known-fedcba987654321",
      "known-fedcba98765432100",
      "known-fedcba987654321`",
      "known_fedcba9876543210",
      "Known-fedcba9876543210",
      "lock",
      "notes.txt",
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) make_file(others[i], 5, 1);
  PrefixList list = list_files();
  assert_int_equal(list.count, 0);
  prefix_list_release(&list);
  make_file(BLOCK_A, 7, 3000000001);
  make_file(KNOWN, 11, 2999999999);
  make_file(BLOCK_C, 0, 3000000001);
  make_file(BLOCK_B, 13, 3000000000);
  assert_int_equal(mkdir(in_directory(own_directory, BLOCK_D), 0700), 0);
  assert_int_equal(symlink(BLOCK_A, in_directory(own_directory, "known-0000000000000000")), 0);
  list = list_files();
  static const struct {
    const char *name;
    bool block;
    uint64_t bytes;
    int64_t used_ns;
  } want[] = {{KNOWN, false, 11, 2999999999},
              {BLOCK_B, true, 13, 3000000000},
              {BLOCK_A, true, 7, 3000000001}, /* used as late as the next: by name */
              {BLOCK_C, true, 0, 3000000001}};
  assert_int_equal(list.count, 4);
  assert_int_equal(list.bytes, 31);
  for (size_t i = 0; i < 4; i++) {
    assert_string_equal(list.items[i].name, want[i].name);
    assert_int_equal(list.items[i].block, want[i].block);
    assert_int_equal(list.items[i].bytes, want[i].bytes);
    assert_true(list.items[i].used_ns == want[i].used_ns);
  }
  prefix_list_release(&list);
  assert_true(list.items == NULL && list.count == 0);
}

TEST_IN_DIRECTORY(blocks_are_found_by_what_is_before_them) {
  const uint64_t key = 0x0123456789abcdef;
  char name[PREFIX_NAME];
  prefix_file_name(key, 0xaa, 0x1111111111111111, false, name);
  assert_string_equal(name, BLOCK_A);
  prefix_file_name(UINT64_MAX, 0, 1, false, name);
  assert_string_equal(name, "ffffffffffffffff-0000000000000000-0000000000000001.kv");
  prefix_file_name(key, 0xaa, 0x1111111111111111, true, name);
  assert_string_equal(name, STATE_A);
  make_file(BLOCK_A, 1, 20);
  make_file(BLOCK_B, 1, 10);
  make_file(BLOCK_C, 1, 5);
  make_file(BLOCK_D, 1, 5);
  make_file(KNOWN, 1, 5);
  make_file(STATE_A, 1, 7);
  PrefixList list;
  assert_int_equal(prefix_directory_blocks(own_directory, key, 0xaa, true, 64, &list, NULL), STATUS_OK);
  assert_int_equal(list.count, 1);
  assert_string_equal(list.items[0].name, STATE_A);
  assert_true(list.items[0].block);
  prefix_list_release(&list);
  assert_int_equal(prefix_directory_blocks(own_directory, key, 0xaa, false, 64, &list, NULL), STATUS_OK);
  assert_int_equal(list.count, 2);
  assert_string_equal(list.items[0].name, BLOCK_B);
  assert_string_equal(list.items[1].name, BLOCK_A);
  prefix_list_release(&list);
  for (size_t most = 0; most < 4; most++) {
    assert_int_equal(prefix_directory_blocks(own_directory, key, 0xaa, false, most, &list, NULL), STATUS_OK);
    assert_int_equal(list.count, most < 2 ? most : 2);
    prefix_list_release(&list);
  }
  assert_int_equal(prefix_directory_blocks(own_directory, key, 0xcc, false, 64, &list, NULL), STATUS_OK);
  assert_int_equal(list.count, 0);
  prefix_list_release(&list);
}

TEST_IN_DIRECTORY(a_directory_that_is_none_is_told) {
  PrefixList list;
  Error err = {{0}};
  int n_removed = 7;
  assert_int_equal(prefix_directory_list(in_directory(own_directory, "none"), &list, &err), STATUS_OK);
  assert_int_equal(list.count, 0);
  const char *path = make_file("file", 1, 1);
  assert_int_equal(prefix_directory_list(path, &list, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "/file: cannot list: "));
  assert_non_null(strstr(err.text, strerror(ENOTDIR)));
  prefix_list_release(&list);
  assert_int_equal(prefix_directory_shrink(in_directory(own_directory, "none"), 0, &n_removed, &err),
                   STATUS_OK);
  assert_int_equal(n_removed, 0);
  make_file(BLOCK_A, 1, 1);
  assert_int_equal(symlink("elsewhere", in_directory(own_directory, "lock")), 0);
  assert_int_equal(prefix_directory_shrink(own_directory, 0, &n_removed, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "/lock: cannot open: "));
  assert_true(file_exists(in_directory(own_directory, BLOCK_A)));
}

static int shrink(uint64_t limit) {
  int n_removed = -1;
  assert_int_equal(prefix_directory_shrink(own_directory, limit, &n_removed, NULL), STATUS_OK);
  return n_removed;
}

/* By the time of use, to the byte, and no more than has to. */
TEST_IN_DIRECTORY(what_was_unused_the_longest_goes) {
  make_file(BLOCK_A, 10, 4);
  make_file(BLOCK_B, 20, 2);
  make_file(BLOCK_C, 30, 3);
  make_file(KNOWN, 40, 1);
  assert_int_equal(shrink(100), 0);
  assert_int_equal(shrink(99), 1);
  assert_false(file_exists(in_directory(own_directory, KNOWN)));
  assert_int_equal(shrink(40), 1);
  assert_false(file_exists(in_directory(own_directory, BLOCK_B)));
  assert_true(file_exists(in_directory(own_directory, BLOCK_C)));
  make_file(BLOCK_D, 5, 9);
  assert_int_equal(shrink(14), 2);
  assert_true(file_exists(in_directory(own_directory, BLOCK_D)));
  assert_int_equal(shrink(5), 0);
  assert_int_equal(shrink(0), 1);
  assert_int_equal(shrink(0), 0);
}

/* Held by another, nothing is removed and nothing fails; afterwards it is free again. */
TEST_IN_DIRECTORY(one_at_a_time_removes_files) {
  make_file(BLOCK_A, 10, 4);
  const char *path = in_directory(own_directory, "lock");
  const mode_t mask = umask(0);
  assert_int_equal(shrink(100), 0);
  umask(mask);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  int lock = open(path, O_RDWR);
  assert_true(lock >= 0);
  for (int shared = 0; shared < 2; shared++) {
    assert_int_equal(flock(lock, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB), 0);
    assert_int_equal(shrink(0), 0);
    assert_true(file_exists(in_directory(own_directory, BLOCK_A)));
  }
  assert_int_equal(flock(lock, LOCK_UN), 0);
  make_file(BLOCK_B, 10, 5);
  assert_int_equal(shrink(10), 1);
  assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0); /* nothing holds it */
  close(lock);
}

/* A day after the process that wrote them was killed. */
TEST_IN_DIRECTORY(what_is_left_of_killed_processes_goes) {
  static const int64_t DAY = 24 * 60 * 60, SECOND = 1000000000;
  const int64_t now = time(NULL), old = (now - DAY - 60) * SECOND, young = (now - DAY + 600) * SECOND;
  static const char *const others[] = {".auk-1.tmpx", ".auk1.tmp", "auk-1.tmp", ".auk-1.tm", ".other.tmp"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) make_file(others[i], 9, old);
  make_file(".auk-1.tmp", 1000, old);
  make_file(".auk-22.tmp", 1000, young);
  make_file(BLOCK_A, 10, old);
  PrefixList list = list_files(); /* which removes nothing */
  assert_int_equal(list.bytes, 10);
  prefix_list_release(&list);
  assert_true(file_exists(in_directory(own_directory, ".auk-1.tmp")));
  assert_int_equal(shrink(10), 0); /* they are neither counted nor reported */
  assert_false(file_exists(in_directory(own_directory, ".auk-1.tmp")));
  assert_true(file_exists(in_directory(own_directory, ".auk-22.tmp")));
  assert_true(file_exists(in_directory(own_directory, BLOCK_A)));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_true(file_exists(in_directory(own_directory, others[i])));
}

TEST_IN_DIRECTORY(a_link_is_not_marked_through) {
  make_file("target", 1, 5000000007);
  const char *path = in_directory(own_directory, "link");
  assert_int_equal(symlink("target", path), 0);
  prefix_mark_used(path, 9000000000);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  assert_true(info.st_mtim.tv_sec == 5 && info.st_mtim.tv_nsec == 7);
  assert_int_equal(lstat(path, &info), 0);
  assert_int_equal(info.st_mtim.tv_sec, 9);
}
