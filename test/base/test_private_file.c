/* test_private_file.c - files that processes keep for themselves in a directory that they share. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/private_file.h"
#include "test/tests.h"

static char directory[64], path[96];
static int goes_at; /* the call of access() before which another process removes the file; 0: none */

/* In place of the C library's. */
int access(const char *name, int mode) {
  if (goes_at > 0 && --goes_at == 0 && strcmp(name, path) == 0) unlink(path);
  return faccessat(AT_FDCWD, name, mode, 0);
}

static bool read_only; /* the file system, as far as new directories are asked for */

/* ASan calls it before it can check memory. */
__attribute__((no_sanitize_address)) int mkdir(const char *name, mode_t mode) {
  if (!read_only) return mkdirat(AT_FDCWD, name, mode);
  errno = EROFS;
  return -1;
}

static int n_syncs;

int fsync(int descriptor) {
  (void)descriptor;
  n_syncs++;
  return 0;
}

static int interruptions; /* of reads to come; reads give one byte at a time while there are any */

ssize_t pread(int descriptor, void *bytes, size_t size, off_t offset) {
  if (interruptions == 0) return syscall(SYS_pread64, descriptor, bytes, size, offset);
  if (interruptions-- % 2) return syscall(SYS_pread64, descriptor, bytes, 1, offset);
  errno = EINTR;
  return -1;
}

static int make_directory(void **state) {
  snprintf(directory, sizeof directory, "/tmp/auk-test-kept-XXXXXX");
  if (!mkdtemp(directory)) return -1;
  snprintf(path, sizeof path, "%s/file", directory);
  return 0;
}

static int remove_directory(void **state) {
  unlink(path);
  return rmdir(directory);
}

static void write_file(const char *text) {
  AtomicFile file;
  Error err = {{0}};
  if (private_file_create(path, &file, &err)) fail_msg("%s", err.text);
  assert_int_equal(atomic_file_write(&file, text, strlen(text), &err), STATUS_OK);
  if (atomic_file_commit(&file, &err)) fail_msg("%s", err.text);
}

static void assert_holds(const char *text) {
  char got[16] = "";
  int descriptor;
  uint64_t size;
  Error err = {{0}};
  assert_int_equal(private_file_open(path, &descriptor, &size, &err), STATUS_OK);
  assert_true(descriptor >= 0);
  assert_int_equal(size, strlen(text));
  assert_int_equal(private_file_read(descriptor, path, 0, got, size, &err), STATUS_OK);
  assert_string_equal(got, text);
  close(descriptor);
}

TEST_WITH(make_directory, remove_directory, a_file_is_replaced) {
  struct stat info;
  write_file("one");
  write_file("other");
  assert_holds("other");
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
}

/* private_file_create() looks first, atomic_file_open() second: whenever the file goes, a new one is made. */
TEST_WITH(make_directory, remove_directory, a_file_that_another_process_removes_is_written_all_the_same) {
  struct stat info;
  for (int at = 1; at <= 2; at++) {
    write_file("one");
    goes_at = at;
    write_file("other");
    assert_int_equal(goes_at, 0);
    assert_holds("other");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
  }
}

TEST_WITH(make_directory, remove_directory, a_link_is_replaced_and_not_followed) {
  struct stat info;
  assert_int_equal(symlink("/dev/null", path), 0);
  write_file("one");
  assert_int_equal(lstat(path, &info), 0);
  assert_true(S_ISREG(info.st_mode));
  assert_holds("one");
}

TEST_WITH(make_directory, remove_directory, what_cannot_be_removed_is_told) {
  AtomicFile file;
  Error err = {{0}};
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_equal(private_file_create(path, &file, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "cannot replace what is there"));
  assert_int_equal(rmdir(path), 0);
}

/* Losing it with the machine's power is no loss. */
TEST_WITH(make_directory, remove_directory, a_kept_file_is_not_synced) {
  n_syncs = 0;
  write_file("one");
  assert_int_equal(n_syncs, 0);
}

TEST_WITH(make_directory, remove_directory, what_is_no_file_of_ours_is_not_opened) {
  Error err = {{0}};
  int descriptor = 7, next = dup(STDIN_FILENO);
  uint64_t size = 7;
  char expected[160];
  close(next);
  for (int kind = 0; kind < 4; kind++) {
    const char *const reasons[] = {"%s is a symbolic link", "%s is no regular file", "%s is no regular file",
                                   "%s belongs to user 1, expected 0"};
    const bool is_root = geteuid() == 0;
    if (kind == 3 && !is_root) break;
    int made = kind == 0   ? symlink("/dev/null", path)
               : kind == 1 ? mkfifo(path, 0600)
               : kind == 2 ? mkdir(path, 0700)
                           : mknod(path, S_IFREG | 0600, 0) | chown(path, 1, (gid_t)-1);
    assert_int_equal(made, 0);
    assert_int_equal(private_file_open(path, &descriptor, &size, &err), STATUS_FAILED);
    snprintf(expected, sizeof expected, reasons[kind], path);
    assert_string_equal(err.text, expected);
    assert_int_equal(descriptor, -1);
    assert_int_equal(kind == 2 ? rmdir(path) : unlink(path), 0);
  }
  descriptor = dup(STDIN_FILENO);
  assert_int_equal(descriptor, next); /* none was left open */
  close(descriptor);
}

TEST_WITH(make_directory, remove_directory, short_and_interrupted_reads_go_on) {
  char got[5] = "";
  int descriptor;
  uint64_t size;
  Error err = {{0}};
  write_file("another");
  assert_int_equal(private_file_open(path, &descriptor, &size, &err), STATUS_OK);
  assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
  interruptions = 6;
  assert_int_equal(private_file_read(descriptor, path, 2, got, 4, &err), STATUS_OK);
  assert_int_equal(interruptions, 0);
  assert_string_equal(got, "othe");
  assert_int_equal(private_file_read(descriptor, path, 6, got, 3, &err), STATUS_FAILED);
  char expected[160];
  snprintf(expected, sizeof expected, "%s ends at byte 7, expected 2 more", path);
  assert_string_equal(err.text, expected);
  close(descriptor);
}

TEST_WITH(make_directory, remove_directory, a_directory_and_those_above_it_are_their_owners_alone) {
  static const char *const endings[] = {"/one/two", "//one//two/", "/one/two//"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    char below[128];
    struct stat info;
    snprintf(below, sizeof below, "%s%s", directory, endings[i]);
    const mode_t mask = umask(0);
    Status status = private_directory(below, NULL);
    umask(mask);
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(private_directory(below, NULL), STATUS_OK); /* it is there */
    for (int level = 2; level > 0; level--) {
      snprintf(below, sizeof below, "%s/one%s", directory, level == 2 ? "/two" : "");
      assert_int_equal(stat(below, &info), 0);
      assert_int_equal(info.st_mode & 07777, 0700);
      assert_int_equal(rmdir(below), 0);
    }
  }
}

/* Also where it is not the last part of the path that cannot be made; what is there already is no matter. */
TEST_WITH(make_directory, remove_directory, a_directory_that_cannot_be_made_has_its_true_reason) {
  char below[128];
  Error err = {{0}};
  read_only = true;
  snprintf(below, sizeof below, "%s/one/two", directory);
  Status refused = private_directory(below, &err), there = private_directory(directory, &err);
  read_only = false;
  assert_int_equal(refused, STATUS_FAILED);
  assert_non_null(strstr(err.text, "cannot make the directory: Read-only file system"));
  assert_int_equal(there, STATUS_OK);
}
