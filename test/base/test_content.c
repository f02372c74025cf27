/* test_content.c - hashes against the reference implementation's, what is remembered of files and when it is
 * not believed, and files of a cache directory. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/content.h"
#include "base/hash64.h"
#include "base/private_file.h"
#include "test/directory.h"
#include "test/tests.h"

/* In place of the C library's: what content_clock_ns() says, reading by reading; 0: the machine's time. */
static int64_t clock_reads_ns[4];
static int n_clock_reads;

int clock_gettime(clockid_t clock, struct timespec *now) {
  const int64_t ns = n_clock_reads < 4 ? clock_reads_ns[n_clock_reads] : 0;
  if (clock != CLOCK_REALTIME || ns == 0) return (int)syscall(SYS_clock_gettime, clock, now);
  n_clock_reads++;
  *now = (struct timespec){ns / 1000000000, ns % 1000000000};
  return 0;
}

static void set_clock(int64_t first_ns, int64_t later_ns) {
  for (int i = 0; i < 4; i++) clock_reads_ns[i] = i ? later_ns : first_ns;
  n_clock_reads = 0;
}

/* Made with python-xxhash 3.6 (xxhash.xxh64) over bytes (i * 151 + i / 256 * 7 + 3) mod 256. */
TEST(hashes_are_those_of_the_specification) {
  static const struct {
    size_t n;
    uint64_t plain, seeded; /* with seed 0x9E3779B97F4A7C15 */
  } cases[] = {
      {0, 0xef46db3751d8e999, 0xc4349fc93c010000},   {1, 0x1f25c8d0bc1f4bb6, 0x79826bcd749d267a},
      {3, 0x297d4677b265becd, 0x427dec79ea0b2c4e},   {4, 0x2d90a6de354edbaf, 0xc0dfe78f27f6e3c9},
      {7, 0xfb1f7a3aa195a475, 0x732dba531db15027},   {8, 0xd698f193e9f13a75, 0x757ecd343d8ae9b3},
      {11, 0x935fa9c0a36cc95b, 0xe5dc17d4e96276d5},  {12, 0xbec5085d65ae03a9, 0x5675738128632a22},
      {31, 0xece92d22479f29fc, 0x634370ce33e9fcbd},  {32, 0x1ebf66e97a6d1e34, 0x4ae3c69856c11951},
      {33, 0x8e63359d1e16c19c, 0x53fcca75ce46847c},  {63, 0xd8fe590d5014fb9d, 0xdbfd94da5e91d338},
      {64, 0x343ba6b8abfff548, 0xb846eb709f4814fe},  {100, 0x9101b1dbcacb65a2, 0xd5d7338c9f2cfb39},
      {999, 0x267a5c5aaa97ad56, 0x126248967469a491}, {1000, 0xe93454514fd1f612, 0xc3c6a5021ee3e92e},
  };
  unsigned char bytes[1001];
  for (int i = 0; i < 1000; i++) bytes[i + 1] = (unsigned char)(i * 151 + i / 256 * 7 + 3);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hash64(bytes + 1, cases[i].n, 0), cases[i].plain); /* at an odd address */
    assert_int_equal(hash64(bytes + 1, cases[i].n, 0x9E3779B97F4A7C15), cases[i].seeded);
  }
}

static bool same(ContentHash one, ContentHash other) {
  return one.a == other.a && one.b == other.b;
}

TEST(every_byte_of_a_content_counts) {
  const size_t size = 5 * CONTENT_PIECE + 77;
  unsigned char *bytes = calloc(1, size);
  ContentHash hash, again, other;
  assert_int_equal(content_of_bytes(bytes, size, 2, NULL, &hash, NULL), STATUS_OK);
  assert_int_equal(content_of_bytes(bytes, size, 1, NULL, &again, NULL), STATUS_OK);
  assert_true(same(hash, again));
  const size_t places[] = {0, CONTENT_PIECE - 1, CONTENT_PIECE, 3 * CONTENT_PIECE + 12345, size - 1};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    bytes[places[i]] = 1;
    assert_int_equal(content_of_bytes(bytes, size, 2, NULL, &other, NULL), STATUS_OK);
    assert_true(hash.a != other.a && hash.b != other.b);
    bytes[places[i]] = 0;
  }
  assert_int_equal(content_of_bytes(bytes, size - 1, 2, NULL, &other, NULL), STATUS_OK);
  assert_false(same(hash, other));
  assert_int_equal(content_of_bytes(NULL, 0, 2, NULL, &other, NULL), STATUS_OK);
  const volatile int interrupted = 1;
  assert_int_equal(content_of_bytes(bytes, size, 2, &interrupted, &other, NULL), STATUS_INTERRUPTED);
  ContentHash one_two = {0}, two_one = {0};
  content_add(&one_two, hash), content_add(&one_two, again = (ContentHash){1, 2});
  content_add(&two_one, again), content_add(&two_one, hash);
  assert_false(same(one_two, two_one));
  free(bytes);
}

/* Two hashes of each piece of 1 MiB, and two of all these hashes and the size. */
TEST(a_content_is_hashed_piece_by_piece) {
  static const uint64_t seed = 0x9E3779B97F4A7C15;
  const size_t piece = 1 << 20, sizes[] = {0, 1, piece - 1, piece, piece + 1, 2 * piece, 6 * piece + 5};
  unsigned char *bytes = malloc(7 * piece);
  for (size_t i = 0; i < 7 * piece; i++) bytes[i] = (unsigned char)(i * 7 + i / 251);
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    uint64_t hashes[14];
    size_t n = 0;
    for (size_t at = 0; at < sizes[k]; at += piece) {
      const size_t size = sizes[k] - at < piece ? sizes[k] - at : piece;
      hashes[n++] = hash64(bytes + at, size, 0);
      hashes[n++] = hash64(bytes + at, size, seed);
    }
    ContentHash want = {hash64(hashes, 8 * n, sizes[k]), hash64(hashes, 8 * n, seed ^ sizes[k])}, got, list;
    assert_int_equal(content_of_bytes(bytes, sizes[k], 2, NULL, &got, NULL), STATUS_OK);
    assert_true(same(got, want));
    list = (ContentHash){3, 4};
    content_add(&list, got);
    const uint64_t both[4] = {3, 4, got.a, got.b};
    assert_true(list.a == hash64(both, 32, 0) && list.b == hash64(both, 32, seed));
  }
  free(bytes);
}

/* --- in a directory */

static FileStamp old_stamp(void) {
  int64_t now = content_clock_ns();
  return (FileStamp){1, 2, 3, now - 10000000000, now - 5000000000};
}

TEST_IN_DIRECTORY(a_memory_is_of_one_stamp) {
  FileStamp stamp = old_stamp(), other;
  ContentHash hash = {11, 12}, recalled;
  bool remembered;
  const char *cache = in_directory(own_directory, "not/there/yet");
  assert_false(content_cache_find(cache, &stamp, &recalled));
  assert_int_equal(content_cache_store(cache, &stamp, content_clock_ns(), &hash, &remembered, NULL),
                   STATUS_OK);
  assert_true(remembered);
  assert_true(content_cache_find(cache, &stamp, &recalled));
  assert_true(same(hash, recalled));
  for (int field = 0; field < 5; field++) {
    other = stamp;
    ((uint64_t *)&other)[field]++;
    assert_false(content_cache_find(cache, &other, &recalled));
  }
}

/* A change in the same moment as the last one, as a coarse clock has it, would leave the stamp as it is. */
TEST_IN_DIRECTORY(a_file_that_changed_just_now_is_not_remembered) {
  int64_t now = content_clock_ns();
  ContentHash hash = {11, 12}, recalled;
  bool remembered = true;
  for (int which = 0; which < 2; which++) {
    FileStamp stamp = old_stamp();
    *(which ? &stamp.changed_ns : &stamp.status_changed_ns) = now - 1000000000;
    assert_int_equal(content_cache_store(own_directory, &stamp, now, &hash, &remembered, NULL), STATUS_OK);
    assert_false(remembered);
    assert_false(content_cache_find(own_directory, &stamp, &recalled));
  }
}

/* The coarsest clock of a file system has two seconds. */
TEST_IN_DIRECTORY(a_change_is_old_after_two_seconds) {
  const int64_t now = 1700000000000000000, old = now - 2000000000;
  const ContentHash hash = {11, 12};
  for (int64_t late = 0; late <= 1; late++) {
    for (int which = 0; which < 2; which++) {
      FileStamp stamp = {1, 2, 3, old, old};
      *(which ? &stamp.changed_ns : &stamp.status_changed_ns) += late;
      bool remembered = late;
      assert_int_equal(content_cache_store(own_directory, &stamp, now, &hash, &remembered, NULL), STATUS_OK);
      assert_int_equal(remembered, !late);
    }
  }
}

/* A file that another program, or a later version of ours, wrote under the name of this stamp. */
TEST_IN_DIRECTORY(a_memory_of_another_kind_or_stamp_is_none) {
  const FileStamp stamp = {1, 2, 3, 4, 5}, other = {1, 2, 3, 4, 6};
  const struct {
    const char *magic;
    const FileStamp *stamp;
    bool known;
  } cases[] = {{"aukknow1", &stamp, true}, {"aukknow2", &stamp, false}, {"aukknow1", &other, false}};
  char name[64];
  snprintf(name, sizeof name, "known-%016llx", (unsigned long long)hash64(&stamp, sizeof stamp, 0));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t words[9] = {0, 0, 0, 0, 0, 0, 11, 12, 0};
    memcpy(words, cases[i].magic, 8);
    memcpy(words + 1, cases[i].stamp, sizeof stamp);
    words[8] = hash64(words, 64, 0);
    FILE *stream = fopen(in_directory(own_directory, name), "wb");
    assert_int_equal(fwrite(words, 1, sizeof words, stream), sizeof words);
    fclose(stream);
    ContentHash hash = {0};
    assert_int_equal(content_cache_find(own_directory, &stamp, &hash), cases[i].known);
    assert_true(same(hash, cases[i].known ? (ContentHash){11, 12} : (ContentHash){0}));
  }
}

TEST_IN_DIRECTORY(a_damaged_memory_is_none) {
  FileStamp stamp = old_stamp();
  ContentHash hash = {11, 12}, recalled;
  bool remembered;
  assert_int_equal(content_cache_store(own_directory, &stamp, content_clock_ns(), &hash, &remembered, NULL),
                   STATUS_OK);
  char name[64];
  snprintf(name, sizeof name, "known-%016llx", (unsigned long long)hash64(&stamp, sizeof stamp, 0));
  const char *path = in_directory(own_directory, name);
  int descriptor = open(path, O_RDWR);
  assert_true(descriptor >= 0);
  for (off_t at = 0; at < 72; at++) {
    unsigned char byte;
    assert_int_equal(pread(descriptor, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(descriptor, &byte, 1, at), 1);
    assert_false(content_cache_find(own_directory, &stamp, &recalled));
    byte ^= 4;
    assert_int_equal(pwrite(descriptor, &byte, 1, at), 1);
  }
  assert_true(content_cache_find(own_directory, &stamp, &recalled));
  assert_int_equal(ftruncate(descriptor, 71), 0);
  assert_false(content_cache_find(own_directory, &stamp, &recalled));
  assert_int_equal(ftruncate(descriptor, 73), 0);
  assert_false(content_cache_find(own_directory, &stamp, &recalled));
  close(descriptor);
  unlink(path);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_false(content_cache_find(own_directory, &stamp, &recalled)); /* at once */
}

TEST_IN_DIRECTORY(large_files_are_read_once) {
  char path[512], cache[512];
  strcpy(path, in_directory(own_directory, "weights"));
  strcpy(cache, in_directory(own_directory, "cache"));
  ContentSearch look = {cache, false, 2, NULL}, read = {cache, true, 2, NULL};
  ContentSearch forgetful = {NULL, true, 2, NULL}, blind = {NULL, false, 2, NULL}; /* no directory */
  MappedFile file;
  ContentHash hash, again;
  bool known;
  for (int small = 1; small >= 0; small--) {
    FILE *stream = fopen(path, "wb");
    fputs("weights", stream);
    assert_int_equal(fseek(stream, small ? 1000 : 20 << 20, SEEK_SET), 0);
    fputs("end", stream);
    fclose(stream);
    assert_int_equal(file_map(path, STATUS_FAILED, &file, NULL), STATUS_OK);
    assert_int_equal(content_of_file(&file, &look, &hash, &known, NULL), STATUS_OK);
    assert_int_equal(known, small); /* what is small is read each time, however new it is */
    assert_int_equal(content_of_file(&file, &read, &hash, &known, NULL), STATUS_OK);
    assert_true(known);
    assert_int_equal(content_of_bytes(file.data, file.size, 1, NULL, &again, NULL), STATUS_OK);
    assert_true(same(hash, again));
    assert_int_equal(content_of_file(&file, &forgetful, &again, &known, NULL), STATUS_OK);
    assert_true(known && same(hash, again));
    assert_int_equal(content_of_file(&file, &blind, &again, &known, NULL), STATUS_OK);
    assert_int_equal(known, small);
    file_unmap(&file);
  }
  /* It was too new to be remembered. One that seems older is, as long as it has its stamp. */
  assert_int_equal(file_map(path, STATUS_FAILED, &file, NULL), STATUS_OK);
  assert_int_equal(content_of_file(&file, &look, &again, &known, NULL), STATUS_OK);
  assert_false(known);
  bool remembered;
  assert_int_equal(
      content_cache_store(cache, &file.stamp, content_clock_ns() + 10000000000, &hash, &remembered, NULL),
      STATUS_OK);
  assert_true(remembered);
  assert_int_equal(content_of_file(&file, &look, &again, &known, NULL), STATUS_OK);
  assert_true(known && same(hash, again));
  /* Another content of the same size, the time of its change put back: only the inode's own time shows it. */
  struct stat before;
  stat(path, &before);
  int descriptor = open(path, O_WRONLY);
  assert_int_equal(pwrite(descriptor, "other", 5, 100), 5);
  assert_int_equal(futimens(descriptor, (struct timespec[]){before.st_atim, before.st_mtim}), 0);
  close(descriptor);
  assert_false(file_has_stamp(path, &file.stamp));
  assert_int_equal(content_of_file(&file, &read, &again, &known, NULL), STATUS_OK);
  assert_true(known); /* by the memory of what was mapped */
  file_unmap(&file);
  assert_int_equal(file_map(path, STATUS_FAILED, &file, NULL), STATUS_OK);
  assert_int_equal(content_of_file(&file, &look, &again, &known, NULL), STATUS_OK);
  assert_false(known);
  unlink(path); /* the mapped bytes are not those of the file now: its hash must not be theirs */
  assert_int_equal(content_of_file(&file, &read, &again, &known, NULL), STATUS_OK);
  assert_false(known);
  file_unmap(&file);
}

/* A sparse file of that many bytes, mapped. */
static MappedFile map_holes(const char *name, off_t size) {
  MappedFile file;
  const char *path = in_directory(own_directory, name);
  fclose(fopen(path, "wb"));
  assert_int_equal(truncate(path, size), 0);
  assert_int_equal(file_map(path, STATUS_FAILED, &file, NULL), STATUS_OK);
  return file;
}

TEST_IN_DIRECTORY(files_of_up_to_16_mib_are_read_each_time) {
  for (int more = 0; more < 2; more++) {
    MappedFile file = map_holes("weights", (16 << 20) + more);
    ContentSearch look = {NULL, false, 2, NULL};
    ContentHash hash;
    bool known;
    assert_int_equal(content_of_file(&file, &look, &hash, &known, NULL), STATUS_OK);
    assert_int_equal(known, !more);
    file_unmap(&file);
  }
}

/* A change within two seconds before the reading began could be followed by one that leaves the stamp as it
 * is, however long the reading takes. */
TEST_IN_DIRECTORY(what_counts_is_when_the_reading_began) {
  MappedFile file = map_holes("weights", (16 << 20) + 1);
  char cache[512];
  strcpy(cache, in_directory(own_directory, "cache"));
  ContentSearch read = {cache, true, 2, NULL};
  ContentHash hash;
  bool known;
  const int64_t changed = file.stamp.status_changed_ns;
  for (int late = 0; late < 2; late++) {
    set_clock(changed + 1000000000 + late * 1000000000, changed + 100000000000);
    assert_int_equal(content_of_file(&file, &read, &hash, &known, NULL), STATUS_OK);
    assert_true(known);
    assert_int_equal(content_cache_find(cache, &file.stamp, &hash), late);
  }
  file_unmap(&file);
  /* A file that is no longer at its path is not remembered either. */
  file = map_holes("other", (16 << 20) + 1);
  unlink(file.path);
  set_clock(file.stamp.status_changed_ns + 100000000000, file.stamp.status_changed_ns + 100000000000);
  assert_int_equal(content_of_file(&file, &read, &hash, &known, NULL), STATUS_OK);
  assert_false(known || content_cache_find(cache, &file.stamp, &hash));
  set_clock(0, 0);
  file_unmap(&file);
}

TEST_IN_DIRECTORY(kept_files_are_whole_and_private) {
  char path[512];
  strcpy(path, in_directory(own_directory, "kept"));
  AtomicFile file;
  struct stat info;
  int descriptor;
  uint64_t size;
  Error err;
  assert_int_equal(private_file_open(path, &descriptor, &size, &err), STATUS_OK);
  assert_int_equal(descriptor, -1);
  assert_int_equal(private_file_create(path, &file, &err), STATUS_OK);
  assert_int_equal(atomic_file_write(&file, "whole", 5, &err), STATUS_OK);
  assert_false(file_exists(path));
  assert_int_equal(atomic_file_commit(&file, &err), STATUS_OK);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  assert_int_equal(private_file_open(path, &descriptor, &size, &err), STATUS_OK);
  assert_int_equal(size, 5);
  char bytes[6] = "";
  assert_int_equal(private_file_read(descriptor, path, 1, bytes, 4, &err), STATUS_OK);
  assert_string_equal(bytes, "hole");
  assert_int_equal(private_file_read(descriptor, path, 1, bytes, 5, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "ends at byte 5"));
  close(descriptor);
  assert_int_equal(private_directory(own_directory, &err), STATUS_OK);
  char below[600];
  snprintf(below, sizeof below, "%s/below", path);
  assert_int_equal(private_directory(below, &err), STATUS_FAILED); /* a file is in the way */
  assert_non_null(strstr(err.text, "cannot make the directory"));
  assert_int_equal(private_directory("", &err), STATUS_USAGE);
}
