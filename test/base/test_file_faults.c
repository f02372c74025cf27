/* test_file_faults.c - files where the system refuses a call or lacks one, and what is known of a file
 * without reading it.
 *
 * Every test works in an empty directory of its own, with calls of the C library replaced, and must leave as
 * many descriptors open as it found. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/output.h"
#include "test/base/files.h"
#include "test/tests.h"

/* In place of the C library's: each error is an errno, 0 where the call works. */
static struct {
  bool no_proc; /* /proc is not mounted, as far as access() can see */
  int sync, close, place, link;
  int n_syncs;
} faults;

/* The calls that make a file whole and give it its name, a letter each (see the callers of note()). */
static struct {
  char letters[32];
  size_t n, killed_after; /* after so many calls the process kills itself; 0: never */
} calls;

static void note(char letter) {
  if (calls.n < sizeof calls.letters - 1) calls.letters[calls.n++] = letter;
  calls.letters[calls.n] = 0;
  if (calls.n == calls.killed_after) kill(getpid(), SIGKILL);
}

static bool is_regular(int descriptor) {
  struct stat info;
  return fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
}

int access(const char *name, int mode) {
  if (!faults.no_proc || strncmp(name, "/proc/", 6) != 0) return faccessat(AT_FDCWD, name, mode, 0);
  errno = ENOENT;
  return -1;
}

int fsync(int descriptor) {
  note(is_regular(descriptor) ? 's' : 'd');
  faults.n_syncs++;
  errno = faults.sync;
  return faults.sync ? -1 : 0;
}

/* Fails for regular files, which are closed all the same. */
int close(int descriptor) {
  const bool regular = is_regular(descriptor), fails = faults.close && regular;
  const int result = (int)syscall(SYS_close, descriptor);
  if (regular) note('c');
  if (fails) errno = faults.close;
  return fails ? -1 : result;
}

int renameat2(int old_directory, const char *old, int new_directory, const char *new, unsigned flags) {
  const int result =
      faults.place ? -1 : (int)syscall(SYS_renameat2, old_directory, old, new_directory, new, flags);
  note('P');
  if (faults.place) errno = faults.place;
  return result;
}

int rename(const char *old, const char *new) {
  const int result = (int)syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
  note('R');
  return result;
}

/* 'T': to a temporary name; 'L': to the final one, 'E' if that is taken. */
int linkat(int old_directory, const char *old, int new_directory, const char *new, int flags) {
  const int result =
      faults.link ? -1 : (int)syscall(SYS_linkat, old_directory, old, new_directory, new, flags);
  const int error = faults.link ? faults.link : errno;
  const bool temporary = strstr(new, "/.auk-") != NULL;
  note(temporary ? 'T' : result && error == EEXIST ? 'E' : 'L');
  errno = error;
  return result;
}

static int n_open(void) {
  DIR *dir = opendir("/proc/self/fd");
  int n = 0;
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}

static int n_open_before;

static int begin(void **state) {
  memset(&faults, 0, sizeof faults);
  memset(&calls, 0, sizeof calls);
  n_open_before = n_open();
  return make_own_directory(state);
}

static int end(void **state) {
  memset(&faults, 0, sizeof faults);
  const int leaked = n_open() - n_open_before;
  if (leaked) print_error("%d descriptors are left open\n", leaked);
  return remove_own_directory(state) || leaked != 0;
}

/* --- what cannot be stored */

typedef Status Finish(AtomicFile *file, Error *err);

static Status place(AtomicFile *file, Error *err) {
  bool placed;
  return atomic_file_place(file, &placed, err);
}

/* Writes "new" to `path` and ends that by `finish`. */
static Status write_new(const char *path, bool fleeting, Finish *finish, Error *err) {
  AtomicFile file;
  assert_int_equal(atomic_file_open(path, &file, err), STATUS_OK);
  file.fleeting = fleeting;
  assert_int_equal(atomic_file_write(&file, "new", 3, err), STATUS_OK);
  return finish(&file, err);
}

static void skip_without_unnamed_files(void) {
  const int unnamed = open(own_directory, O_TMPFILE | O_WRONLY, 0600);
  if (unnamed < 0) skip();
  close(unnamed);
}

/* A file has a temporary name from the beginning where its file system, or a missing /proc, asks for it. */
TEST_WITH(begin, end, what_cannot_reach_the_disk_does_not_get_its_name) {
  Finish *const finishes[] = {atomic_file_commit, place};
  const char *path = in_directory(own_directory, "file");
  for (int i = 0; i < 8; i++) {
    Error err = {{0}};
    faults.no_proc = i & 1;
    *(i & 4 ? &faults.sync : &faults.close) = EIO;
    assert_int_equal(write_new(path, false, finishes[i >> 1 & 1], &err), STATUS_FAILED);
    assert_message(&err, path, strerror(EIO));
    faults.sync = faults.close = 0;
    assert_int_equal(n_entries(), 0);
  }
  put(path, "old");
  faults.sync = EIO;
  assert_int_equal(write_new(path, false, atomic_file_commit, &(Error){{0}}), STATUS_FAILED);
  assert_content(path, "old");
}

/* Linux has closed the file then; other errors of close() are lost data. */
TEST_WITH(begin, end, an_interrupted_close_is_no_failure) {
  const char *path = in_directory(own_directory, "file");
  Error err = {{0}};
  faults.close = EINTR;
  assert_int_equal(write_new(path, false, atomic_file_commit, &err), STATUS_OK);
  assert_content(path, "new");
}

/* To be linked after close() has reported, an unnamed file needs a second descriptor. */
TEST_WITH(begin, end, a_file_without_a_free_descriptor_fails) {
  AtomicFile file;
  Error err = {{0}};
  struct rlimit limit, small;
  const char *path = in_directory(own_directory, "file");
  skip_without_unnamed_files();
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  small = limit;
  small.rlim_cur = (rlim_t)file.descriptor + 1; /* all below are open: open() takes the lowest */
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
  const Status status = atomic_file_commit(&file, &err);
  setrlimit(RLIMIT_NOFILE, &limit);
  assert_int_equal(status, STATUS_FAILED);
  assert_message(&err, path, strerror(EMFILE));
  assert_int_equal(n_entries(), 0);
}

TEST_WITH(begin, end, a_synced_file_is_synced_before_it_is_committed) {
  AtomicFile file;
  Error err;
  const char *path = in_directory(own_directory, "file");
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
  assert_int_equal(atomic_file_sync(&file, &err), STATUS_OK);
  assert_int_equal(faults.n_syncs, 1);
  faults.sync = EIO;
  assert_int_equal(atomic_file_sync(&file, &err), STATUS_FAILED);
  assert_message(&err, path, "cannot write to disk");
  file.fleeting = true;
  assert_int_equal(atomic_file_sync(&file, &err), STATUS_OK);
  assert_int_equal(faults.n_syncs, 2);
  atomic_file_abort(&file);
}

/* --- names */

TEST_WITH(begin, end, a_file_that_needs_a_name_from_the_beginning_takes_a_free_one) {
  AtomicFile file;
  Error err;
  char name[64];
  const char *path = in_directory(own_directory, "file");
  for (int attempt = 0; attempt < 3; attempt++) {
    snprintf(name, sizeof name, ".auk-%ld-%d.tmp", (long)getpid(), attempt);
    const char *temporary = in_directory(own_directory, name);
    faults.no_proc = true;
    faults.n_syncs = 0;
    assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
    assert_true(atomic_file_is_new(&file) && file_exists(temporary));
    assert_int_equal(n_entries(), attempt + 1);
    assert_int_equal(atomic_file_write(&file, "text", 4, &err), STATUS_OK);
    assert_int_equal(atomic_file_commit(&file, &err), STATUS_OK);
    assert_int_equal(faults.n_syncs, 2); /* the file and its directory */
    assert_content(path, "text");
    assert_false(file_exists(temporary));
    unlink(path);
    put(temporary, "left by a process that was killed");
  }
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
  assert_int_equal(n_entries(), 4);
  atomic_file_abort(&file);
  assert_int_equal(n_entries(), 3);
}

/* Every way to a name: close() has reported before, nothing comes between a temporary name and the renaming,
 * and a name that is free needs no temporary one. */
static const struct {
  bool no_proc, old, fleeting, places; /* old: there is a file of the name */
  const char *calls;                   /* a second 'c' closes the duplicate by which the file was linked */
} ways[] = {
    {false, false, false, false, "scLdc"}, {false, true, false, false, "scETRdc"},
    {false, false, true, false, "cLc"},    {false, true, true, false, "cETRc"},
    {false, false, false, true, "scLdc"},  {false, true, false, true, "scEc"},
    {true, false, false, false, "scRd"},   {true, true, false, false, "scRd"},
    {true, false, false, true, "scPd"},    {true, true, false, true, "scP"},
};
static const int n_ways = sizeof ways / sizeof *ways;

/* Writes a file and names it; the calls are those after the writing. */
static Status take_way(int way, const char *path, size_t killed_after) {
  unlink(path);
  if (ways[way].old) put(path, "old");
  faults.no_proc = ways[way].no_proc;
  AtomicFile file;
  TRY(atomic_file_open(path, &file, NULL));
  file.fleeting = ways[way].fleeting;
  TRY(atomic_file_write(&file, "new", 3, NULL));
  calls.n = 0;
  calls.killed_after = killed_after;
  return ways[way].places ? place(&file, NULL) : atomic_file_commit(&file, NULL);
}

TEST_WITH(begin, end, a_name_is_taken_by_the_shortest_way) {
  const char *path = in_directory(own_directory, "file");
  skip_without_unnamed_files();
  for (int way = 0; way < n_ways; way++) {
    assert_int_equal(take_way(way, path, 0), STATUS_OK);
    assert_string_equal(calls.letters, ways[way].calls);
    assert_content(path, ways[way].old && ways[way].places ? "old" : "new");
    assert_int_equal(n_entries(), 1);
  }
}

/* A kill after any call leaves the old file or the whole new one. The whole new file can stay under its
 * temporary name too: between the two calls that replace a file, and without unnamed files. */
TEST_WITH(begin, end, a_kill_leaves_another_file_only_between_link_and_rename) {
  skip_without_unnamed_files();
  for (int way = 0; way < n_ways; way++) {
    const char *const expected = ways[way].calls;
    for (size_t n = 1; n <= strlen(expected); n++) {
      int status;
      char name[64];
      const char *path = in_directory(own_directory, "file");
      empty_own_directory();
      const pid_t child = fork();
      if (child == 0) _exit(take_way(way, path, n) == STATUS_OK ? 1 : 2);
      assert_int_equal(waitpid(child, &status, 0), child);
      assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      snprintf(name, sizeof name, ".auk-%ld-0.tmp", (long)child);
      const char *temporary = in_directory(own_directory, name);
      bool is_new = false, left = ways[way].no_proc;
      for (size_t i = 0; i < n; i++) {
        if (strchr("LRP", expected[i]) && !(ways[way].places && ways[way].old)) is_new = true;
        if (expected[i] == 'T') left = true;
      }
      left = left && !is_new;
      if (is_new || ways[way].old)
        assert_content(path, is_new ? "new" : "old");
      else
        assert_false(file_is_named(path));
      if (left) assert_content(temporary, "new");
      assert_int_equal(n_entries(), left + (is_new || ways[way].old));
    }
  }
}

/* Another process may take the name while the file is written, or remove the file that has it. */
TEST_WITH(begin, end, a_name_may_be_taken_or_become_free_meanwhile) {
  AtomicFile file;
  Error err = {{0}};
  const char *path = in_directory(own_directory, "file");
  for (int i = 0; i < 4; i++) {
    const bool taken = i & 1, places = i & 2;
    bool placed = false;
    unlink(path);
    if (!taken) put(path, "old");
    assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
    assert_int_equal(atomic_file_write(&file, "new", 3, &err), STATUS_OK);
    if (taken) put(path, "old");
    if (!taken) assert_int_equal(unlink(path), 0);
    assert_int_equal(places ? atomic_file_place(&file, &placed, &err) : atomic_file_commit(&file, &err),
                     STATUS_OK);
    if (places) assert_int_equal(placed, !taken);
    assert_content(path, taken && places ? "old" : "new");
    assert_int_equal(n_entries(), 1);
  }
}

/* Some file systems know no RENAME_NOREPLACE, and say so with one of two errors. */
TEST_WITH(begin, end, a_placed_file_replaces_nothing) {
  static const int errors[] = {0, EINVAL, ENOSYS};
  const char *path = in_directory(own_directory, "file");
  for (int i = 0; i < 6; i++) {
    AtomicFile file;
    Error err;
    faults.place = errors[i >> 1];
    faults.no_proc = i & 1;
    for (int taken = 0; taken < 2; taken++) {
      bool placed = taken;
      faults.n_syncs = 0;
      assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
      assert_int_equal(atomic_file_write(&file, taken ? "b" : "a", 1, &err), STATUS_OK);
      assert_int_equal(atomic_file_place(&file, &placed, &err), STATUS_OK);
      assert_int_equal(placed, !taken);
      assert_int_equal(faults.n_syncs, taken ? 1 : 2);
      assert_content(path, "a");
      assert_int_equal(n_entries(), 1);
      assert_null(file.path);
    }
    unlink(path);
  }
}

TEST_WITH(begin, end, a_file_that_cannot_be_placed_is_no_file_that_was_there) {
  Error err = {{0}};
  const char *path = in_directory(own_directory, "file");
  faults.place = faults.link = EPERM;
  for (int no_proc = 0; no_proc < 2; no_proc++) {
    faults.no_proc = no_proc;
    assert_int_equal(write_new(path, false, place, &err), STATUS_FAILED);
    assert_message(&err, path, no_proc ? "cannot rename" : "cannot write there");
    assert_message(&err, path, strerror(EPERM));
    assert_int_equal(n_entries(), 0);
  }
}

TEST_WITH(begin, end, a_placed_file_that_is_fleeting_is_not_synced) {
  Error err;
  assert_int_equal(write_new(in_directory(own_directory, "file"), true, place, &err), STATUS_OK);
  assert_int_equal(faults.n_syncs, 0);
}

TEST_WITH(begin, end, a_file_gets_no_other_bits_than_permissions) {
  struct stat info;
  Error err;
  const char *path = in_directory(own_directory, "file");
  put(path, "old");
  assert_int_equal(chmod(path, 06751), 0);
  assert_int_equal(write_new(path, false, atomic_file_commit, &err), STATUS_OK);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0751);
}

/* --- what is written directly, and what a child gets */

/* Opens it, looks at the descriptor, and aborts. */
static void look_at_descriptor(const char *path, bool is_new) {
  AtomicFile file;
  Error err = {{0}};
  if (atomic_file_open(path, &file, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(atomic_file_is_new(&file), is_new);
  assert_true(fcntl(file.descriptor, F_GETFD) & FD_CLOEXEC);
  assert_true(file.descriptor > STDERR_FILENO);
  assert_int_equal(atomic_file_sync(&file, &err), STATUS_OK);
  assert_int_equal(faults.n_syncs, is_new);
  faults.n_syncs = 0;
  atomic_file_abort(&file);
}

TEST_WITH(begin, end, no_child_inherits_a_file_that_is_written) {
  const char *fifo = in_directory(own_directory, "fifo"), *path = in_directory(own_directory, "file");
  look_at_descriptor(path, true);
  faults.no_proc = true;
  look_at_descriptor(path, true);
  look_at_descriptor("/dev/null", false);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  const int reader = open(fifo, O_RDWR | O_CLOEXEC);
  look_at_descriptor(fifo, false);
  close(reader);
  put(path, "");
  const int saved = dup(STDOUT_FILENO), writer = open(path, O_WRONLY);
  dup2(writer, STDOUT_FILENO);
  look_at_descriptor(path, false);
  dup2(saved, STDOUT_FILENO);
  look_at_descriptor(path, true);
  close(writer);
  close(saved);
}

static int signals_and_descriptors(void) {
  struct sigaction pipe, size;
  for (int descriptor = 0; descriptor <= 2; descriptor++) close(descriptor);
  output_begin();
  sigaction(SIGPIPE, NULL, &pipe);
  sigaction(SIGXFSZ, NULL, &size);
  if (pipe.sa_handler != SIG_IGN || size.sa_handler != SIG_IGN) return 1;
  for (int descriptor = 0; descriptor <= 2; descriptor++)
    if ((fcntl(descriptor, F_GETFL) & O_ACCMODE) != (descriptor ? O_RDONLY : O_WRONLY)) return 2;
  return open("/dev/null", O_RDONLY) > 2 ? 0 : 3;
}

TEST_WITH(begin, end, a_program_begins_without_signals_and_with_three_descriptors) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) _exit(signals_and_descriptors());
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- stamps, kinds, limits, paths */

TEST_WITH(begin, end, a_stamp_is_of_one_content) {
  const struct timespec times[] = {{1234567890, 123456789}, {1234567890, 123456789}};
  MappedFile file;
  Error err;
  struct stat info;
  const char *path = in_directory(own_directory, "file");
  put(path, "content");
  assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(file_map(path, STATUS_MODEL, &file, &err), STATUS_OK);
  const FileStamp stamp = file.stamp;
  assert_true(stamp.device == info.st_dev && stamp.inode == info.st_ino && stamp.size == 7);
  assert_int_equal(stamp.changed_ns, 1234567890123456789);
  assert_int_equal(stamp.status_changed_ns, info.st_ctim.tv_sec * 1000000000 + info.st_ctim.tv_nsec);
  assert_true(file_has_stamp(path, &stamp));
  assert_false(file_was_overwritten(path, &stamp));
  /* device, inode, size, time of the content, time of the inode */
  static const bool overwritten[5] = {false, false, true, true, false};
  for (int field = 0; field < 5; field++) {
    FileStamp other = stamp;
    ((uint64_t *)&other)[field]++;
    assert_false(file_has_stamp(path, &other));
    assert_int_equal(file_was_overwritten(path, &other), overwritten[field]);
    other.size++; /* of another file, that says nothing */
    assert_int_equal(file_was_overwritten(path, &other), field >= 2);
  }
  unlink(path);
  assert_false(file_has_stamp(path, &stamp) || file_was_overwritten(path, &stamp));
  file_unmap(&file);
}

TEST_WITH(begin, end, other_things_than_files_are_refused_by_their_kind) {
  const struct {
    const char *path, *kind;
    bool waits, is_written; /* a read could wait for it; it is written to */
  } cases[] = {
      {own_directory, "a directory", false, false},
      {in_directory(own_directory, "socket"), "a socket", true, false},
      {in_directory(own_directory, "fifo"), "a fifo", true, true},
      {"/dev/null", "a device", true, true},
  };
  assert_int_equal(mknod(cases[1].path, S_IFSOCK | 0600, 0), 0);
  assert_int_equal(mkfifo(cases[2].path, 0600), 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    MappedFile file;
    AtomicFile written;
    Error err = {{0}};
    char expected[700];
    snprintf(expected, sizeof expected, "%s is %s, expected a regular file", cases[i].path, cases[i].kind);
    Status status = file_refuse_waiting(cases[i].path, &err);
    assert_int_equal(status, cases[i].waits ? STATUS_USAGE : STATUS_OK);
    if (cases[i].waits) assert_string_equal(err.text, expected);
    status = file_map(cases[i].path, STATUS_MODEL, &file, &err); /* the kernel opens no socket */
    assert_int_equal(status, STATUS_MODEL);
    if (i != 1) assert_string_equal(err.text, expected);
    if (cases[i].is_written) continue;
    snprintf(expected, sizeof expected, "%s is %s, expected a file to write", cases[i].path, cases[i].kind);
    assert_int_equal(atomic_file_open(cases[i].path, &written, &err), STATUS_FAILED);
    assert_string_equal(err.text, expected);
    assert_null(written.path);
  }
  put(in_directory(own_directory, "file"), "");
  assert_int_equal(file_refuse_waiting(in_directory(own_directory, "file"), NULL), STATUS_OK);
  assert_int_equal(file_refuse_waiting(in_directory(own_directory, "absent"), NULL), STATUS_OK);
}

/* Bytes that are in the buffer already do not count. */
TEST_WITH(begin, end, a_text_may_be_as_long_as_the_limit) {
  Buffer text = {0};
  Error err = {{0}};
  char expected[700], line[301];
  const char *path = in_directory(own_directory, "file");
  memset(line, 'x', 300);
  line[300] = 0;
  put(path, line);
  assert_int_equal(buffer_append_string(&text, "before", &err), STATUS_OK);
  assert_int_equal(file_read(path, 300, &text, &err), STATUS_OK);
  assert_true(text.size == 306 && memcmp(text.data, "beforexxx", 9) == 0);
  assert_int_equal(file_read(path, 299, &text, &err), STATUS_USAGE);
  snprintf(expected, sizeof expected, "%s has 300 bytes, expected at most 299 bytes", path);
  assert_string_equal(err.text, expected);
  text.size = 0;
  FILE *stream = fopen(path, "r");
  bool found = false;
  assert_int_equal(stream_read_line(stream, "name", 300, &text, &found, &err), STATUS_OK);
  assert_true(found && text.size == 300);
  rewind(stream);
  assert_int_equal(stream_read_line(stream, "name", 299, &text, &found, &err), STATUS_USAGE);
  assert_string_equal(err.text, "name: a line has more than 299 bytes");
  fclose(stream);
  put(path, "");
  stream = fopen(path, "r");
  assert_int_equal(stream_read_line(stream, "name", 0, &text, &found, &err), STATUS_OK);
  assert_false(found);
  fclose(stream);
  buffer_release(&text);
}

TEST_WITH(begin, end, links_are_followed_or_not) {
  const char *file = in_directory(own_directory, "file"), *to_file = in_directory(own_directory, "to_file");
  const char *to_folder = in_directory(own_directory, "to_folder"),
             *lost = in_directory(own_directory, "lost");
  put(file, "");
  assert_int_equal(symlink("file", to_file) | symlink(".", to_folder) | symlink("nowhere", lost), 0);
  assert_true(file_exists(to_file) && file_is_named(to_file) && !file_is_directory(to_file));
  assert_true(file_exists(to_folder) && file_is_named(to_folder) && file_is_directory(to_folder));
  assert_true(!file_exists(lost) && file_is_named(lost) && !file_is_directory(lost));
  assert_false(file_is_named(own_directory) && file_is_named("/nowhere/at/all"));
}

TEST_WITH(begin, end, a_path_lies_in_a_directory) {
  static const char *const cases[][2] = {{"file", "."},  {"a/b", "a"}, {"a/b/c", "a/b"}, {"/b", "/"},
                                         {"/a/b", "/a"}, {"a/", "a"},  {"../b", ".."},   {"", "."}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *directory = path_directory(cases[i][0], NULL);
    assert_string_equal(directory, cases[i][1]);
    free(directory);
  }
}
