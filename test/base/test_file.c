/* test_file.c - files mapped, read, and written whole or not at all; standard output.
 *
 * Every test works in an empty directory of its own, and ends by looking at what is left in it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/output.h"
#include "test/base/files.h"
#include "test/tests.h"

/* In place of the C library's: what is written to disk, and in which order with the name. */
static struct {
  int n_files, n_directories;
  const char *name;    /* of the file that is written, or NULL */
  bool had_name[2];    /* when the file was synced, when the directory was */
  int n_interruptions; /* writes to come that a signal interrupts before anything is written */
} disk;

int fsync(int descriptor) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return -1;
  bool directory = S_ISDIR(info.st_mode);
  *(directory ? &disk.n_directories : &disk.n_files) += 1;
  if (disk.name) disk.had_name[directory] = access(disk.name, F_OK) == 0;
  return 0;
}

ssize_t write(int descriptor, const void *bytes, size_t size) {
  if (disk.n_interruptions == 0) return syscall(SYS_write, descriptor, bytes, size);
  disk.n_interruptions--;
  errno = EINTR;
  return -1;
}

/* --- reading */

TEST_IN_DIRECTORY(regular_files_are_mapped) {
  MappedFile file;
  Error err;
  const char *path = in_directory(own_directory, "file");
  put(path, "content");
  assert_int_equal(file_map(path, STATUS_MODEL, &file, &err), STATUS_OK);
  assert_string_equal(file.path, path);
  assert_int_equal(file.size, 7);
  assert_memory_equal(file.data, "content", 7);
  file_unmap(&file);
  assert_null(file.path);
  file_unmap(&file);

  put(path, "");
  assert_int_equal(file_map(path, STATUS_MODEL, &file, &err), STATUS_OK);
  assert_null(file.data);
  assert_int_equal(file.size, 0);
  file_unmap(&file);
}

/* kB of mapped files in the process's resident memory. */
static long resident_kb(void) {
  char line[200];
  long kb = -1;
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status) && sscanf(line, "RssFile: %ld", &kb) != 1) continue;
  fclose(status);
  return kb;
}

TEST_IN_DIRECTORY(dropped_pages_come_back) {
  enum { SIZE = 8 << 20 };
  const char *path = in_directory(own_directory, "large");
  FILE *out = fopen(path, "w");
  for (int i = 0; i < SIZE / 64; i++) fprintf(out, "%-63d\n", i);
  fclose(out);
  MappedFile file;
  Error err;
  long sum[2] = {0};
  assert_int_equal(file_map(path, STATUS_FAILED, &file, &err), STATUS_OK);
  assert_int_equal(file.size, SIZE);
  for (size_t i = 0; i < SIZE; i++) sum[0] += file.data[i];
  const long before = resident_kb();
  file_drop_pages(file.data + 1, SIZE - 2); /* all but the first and the last page */
  assert_in_range(before - resident_kb(), SIZE / 1024 - 256, SIZE / 1024);
  for (size_t i = 0; i < SIZE; i++) sum[1] += file.data[i];
  assert_int_equal(sum[0], sum[1]);
  file_drop_pages(file.data + 1, 100); /* no whole page */
  file_unmap(&file);
}

TEST_IN_DIRECTORY(what_is_no_regular_file_is_not_mapped) {
  MappedFile file;
  Error err;
  const char *path = in_directory(own_directory, "absent");
  assert_int_equal(file_map(path, STATUS_MODEL, &file, &err), STATUS_MODEL);
  assert_message(&err, path, strerror(ENOENT));
  assert_int_equal(file_map(own_directory, STATUS_FAILED, &file, &err), STATUS_FAILED);
  assert_message(&err, own_directory, "is a directory, expected a regular file");
  assert_int_equal(file_map("/dev/null", STATUS_MODEL, &file, &err), STATUS_MODEL);
  assert_message(&err, "/dev/null", "is a device");
  path = in_directory(own_directory, "fifo");
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_int_equal(file_map(path, STATUS_MODEL, &file, &err),
                   STATUS_MODEL); /* and does not wait for a writer */
  assert_message(&err, path, "is a fifo");
  assert_null(file.path);
}

TEST_IN_DIRECTORY(texts_are_read_whole) {
  Error err;
  Buffer text = {0};
  const char *path = in_directory(own_directory, "file");
  FILE *file = fopen(path, "w");
  for (int i = 0; i < 300000; i++) fputc(i % 251, file);
  fclose(file);
  assert_int_equal(file_read(path, 1 << 20, &text, &err), STATUS_OK);
  assert_int_equal(text.size, 300000);
  for (size_t i = 0; i < text.size; i++) assert_int_equal((unsigned char)text.data[i], i % 251);
  buffer_release(&text);

  assert_int_equal(file_read("/dev/null", 1 << 20, &text, &err), STATUS_OK);
  assert_int_equal(text.size, 0);
  assert_int_equal(file_read("/dev/zero", 1 << 20, &text, &err), STATUS_USAGE); /* it would never end */
  assert_non_null(strstr(err.text, "/dev/zero has more than 1.0 MiB"));
  assert_int_equal(file_read(own_directory, 1 << 20, &text, &err), STATUS_FAILED);
  assert_message(&err, own_directory, "is a directory");
  path = in_directory(own_directory, "absent");
  assert_int_equal(file_read(path, 1 << 20, &text, &err), STATUS_FAILED);
  assert_message(&err, path, strerror(ENOENT));
  FILE *unreadable = fopen(in_directory(own_directory, "file"), "a");
  assert_int_equal(stream_read(unreadable, "standard input", 1 << 20, &text, &err), STATUS_FAILED);
  assert_message(&err, "standard input", strerror(EBADF));
  fclose(unreadable);
  buffer_release(&text);
}

TEST_IN_DIRECTORY(paths_are_joined_and_examined) {
  static const char *const cases[][3] = {
      {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {"a/b", "c/d", "a/b/c/d"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *path = path_join(cases[i][0], cases[i][1], NULL);
    assert_string_equal(path, cases[i][2]);
    free(path);
  }
  put(in_directory(own_directory, "file"), "");
  assert_true(file_exists(in_directory(own_directory, "file")) &&
              !file_is_directory(in_directory(own_directory, "file")));
  assert_true(file_exists(own_directory) && file_is_directory(own_directory));
  assert_false(file_exists(in_directory(own_directory, "absent")) ||
               file_is_directory(in_directory(own_directory, "absent")));
}

/* --- writing */

static Status write_text(const char *path, const char *text, Error *err) {
  AtomicFile file;
  TRY(atomic_file_open(path, &file, err));
  Status status = atomic_file_write(&file, text, strlen(text), err);
  if (status == STATUS_OK) return atomic_file_commit(&file, err);
  atomic_file_abort(&file);
  return status;
}

TEST_IN_DIRECTORY(a_file_appears_when_it_is_complete) {
  AtomicFile file;
  Error err;
  struct stat info;
  const char *path = in_directory(own_directory, "file");
  mode_t mask = umask(027);
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
  umask(mask);
  assert_int_equal(atomic_file_write(&file, "con", 3, &err), STATUS_OK);
  assert_int_equal(atomic_file_write(&file, "", 0, &err), STATUS_OK);
  assert_int_equal(atomic_file_write(&file, "tent", 4, &err), STATUS_OK);
  assert_false(file_exists(path));
  assert_int_equal(n_entries(),
                   file.temporary ? 1 : 0); /* without a name where the file system can do that */
  assert_int_equal(atomic_file_commit(&file, &err), STATUS_OK);
  assert_content(path, "content");
  assert_int_equal(n_entries(), 1);
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0640);
  atomic_file_abort(&file); /* nothing happens */
  file = (AtomicFile){0};
  atomic_file_abort(&file);
  assert_content(path, "content");
}

/* A power failure must not take the file: its bytes are on the disk before the name is, and the name is
 * synced too. A fleeting file is synced in neither way. */
TEST_IN_DIRECTORY(a_file_is_on_the_disk_when_it_has_its_name) {
  const char *path = in_directory(own_directory, "file");
  for (int fleeting = 0; fleeting < 2; fleeting++) {
    AtomicFile file;
    Error err;
    unlink(path);
    memset(&disk, 0, sizeof disk);
    disk.name = path;
    assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
    file.fleeting = fleeting;
    assert_int_equal(atomic_file_write(&file, "text", 4, &err), STATUS_OK);
    assert_int_equal(atomic_file_commit(&file, &err), STATUS_OK);
    disk.name = NULL;
    assert_int_equal(disk.n_files, !fleeting);
    assert_int_equal(disk.n_directories, !fleeting);
    assert_false(disk.had_name[0]);
    assert_int_equal(disk.had_name[1], !fleeting);
    assert_content(path, "text");
  }
}

TEST_IN_DIRECTORY(a_write_that_was_interrupted_is_made_again) {
  const char *path = in_directory(own_directory, "file");
  Error err;
  disk.n_interruptions = 3;
  assert_int_equal(write_text(path, "text", &err), STATUS_OK);
  assert_int_equal(disk.n_interruptions, 0);
  assert_content(path, "text");
}

TEST_IN_DIRECTORY(a_file_that_was_there_keeps_its_permissions) {
  Error err;
  struct stat info;
  const char *path = in_directory(own_directory, "file");
  put(path, "old");
  assert_int_equal(chmod(path, 0604), 0);
  assert_int_equal(write_text(path, "new", &err), STATUS_OK);
  assert_content(path, "new");
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0604);
  assert_int_equal(n_entries(), 1);
}

TEST_IN_DIRECTORY(an_aborted_file_leaves_nothing) {
  AtomicFile file;
  Error err;
  put(in_directory(own_directory, "file"), "old");
  assert_int_equal(atomic_file_open(in_directory(own_directory, "file"), &file, &err), STATUS_OK);
  assert_int_equal(atomic_file_write(&file, "new", 3, &err), STATUS_OK);
  atomic_file_abort(&file);
  assert_content(in_directory(own_directory, "file"), "old");
  assert_int_equal(n_entries(), 1);
}

/* However a process ends: a file without a name is gone with it. */
TEST_IN_DIRECTORY(a_killed_writer_leaves_nothing) {
  int status, unnamed = open(own_directory, O_TMPFILE | O_WRONLY, 0600);
  if (unnamed < 0) skip(); /* this file system has none */
  close(unnamed);
  put(in_directory(own_directory, "file"), "old");
  pid_t child = fork();
  if (child == 0) {
    AtomicFile file;
    if (atomic_file_open(in_directory(own_directory, "file"), &file, NULL) != STATUS_OK) _exit(1);
    if (atomic_file_write(&file, "new", 3, NULL) != STATUS_OK) _exit(2);
    kill(getpid(), SIGKILL);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  assert_content(in_directory(own_directory, "file"), "old");
  assert_int_equal(n_entries(), 1);
}

/* A limit on the size of files fails in the middle as a full disk does. */
TEST_IN_DIRECTORY(a_failed_write_leaves_the_old_file) {
  AtomicFile file;
  Error err;
  struct rlimit limit, small;
  char bytes[4096] = {0};
  const char *path = in_directory(own_directory, "file");
  put(path, "old");
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  small = limit;
  small.rlim_cur = 10000; /* bytes: not a multiple of what is written, so that a short write comes first */
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status = STATUS_OK;
  for (int i = 0; i < 3 && status == STATUS_OK; i++)
    status = atomic_file_write(&file, bytes, sizeof bytes, &err);
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(status, STATUS_FAILED);
  assert_message(&err, path, strerror(EFBIG));
  atomic_file_abort(&file);
  assert_content(path, "old");
  assert_int_equal(n_entries(), 1);
}

TEST_IN_DIRECTORY(a_failed_rename_leaves_nothing) {
  AtomicFile file;
  Error err;
  const char *path = in_directory(own_directory, "file");
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_OK);
  assert_int_equal(atomic_file_write(&file, "new", 3, &err), STATUS_OK);
  assert_int_equal(mkdir(path, 0700), 0); /* a file cannot take a directory's name */
  assert_int_equal(atomic_file_commit(&file, &err), STATUS_FAILED);
  assert_message(&err, path, strerror(EISDIR));
  assert_int_equal(n_entries(), 1);
  assert_true(file_is_directory(path));
}

TEST_IN_DIRECTORY(what_cannot_be_written_is_refused) {
  AtomicFile file;
  Error err;
  assert_int_equal(atomic_file_open("", &file, &err), STATUS_USAGE);
  assert_message(&err, "file to write", "is empty");
  assert_int_equal(atomic_file_open(own_directory, &file, &err), STATUS_FAILED);
  assert_message(&err, own_directory, "is a directory");
  const char *path = in_directory(own_directory, "absent/file");
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_FAILED);
  assert_message(&err, path, strerror(ENOENT));
  put(in_directory(own_directory, "file"), "old");
  path = in_directory(own_directory, "file/file");
  assert_int_equal(atomic_file_open(path, &file, &err), STATUS_FAILED);
  assert_message(&err, path, strerror(ENOTDIR));
  assert_int_equal(chmod(in_directory(own_directory, "file"), 0400), 0);
  if (geteuid() != 0) { /* root may write everything */
    assert_int_equal(atomic_file_open(in_directory(own_directory, "file"), &file, &err), STATUS_FAILED);
    assert_message(&err, own_directory, strerror(EACCES));
  }
  assert_content(in_directory(own_directory, "file"), "old");
  assert_int_equal(n_entries(), 1);
}

TEST_IN_DIRECTORY(a_symbolic_link_is_followed) {
  Error err;
  AtomicFile file;
  struct stat info;
  put(in_directory(own_directory, "file"), "old");
  assert_int_equal(symlink("file", in_directory(own_directory, "link")), 0);
  assert_int_equal(write_text(in_directory(own_directory, "link"), "new", &err), STATUS_OK);
  assert_content(in_directory(own_directory, "file"), "new");
  assert_int_equal(lstat(in_directory(own_directory, "link"), &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_int_equal(unlink(in_directory(own_directory, "file")), 0);
  assert_int_equal(atomic_file_open(in_directory(own_directory, "link"), &file, &err), STATUS_FAILED);
  assert_message(&err, in_directory(own_directory, "link"), "symbolic link to nothing");
  assert_int_equal(n_entries(), 1);
}

TEST_IN_DIRECTORY(a_full_device_is_an_error) {
  AtomicFile file;
  Error err;
  struct stat info;
  if (stat("/dev/full", &info) != 0) skip();
  assert_int_equal(atomic_file_open("/dev/full", &file, &err), STATUS_OK);
  assert_null(file.temporary);
  assert_int_equal(atomic_file_write(&file, "text", 4, &err), STATUS_FAILED);
  assert_message(&err, "/dev/full", strerror(ENOSPC));
  atomic_file_abort(&file);
  assert_true(stat("/dev/full", &info) == 0 && S_ISCHR(info.st_mode)); /* and still a device */
}

/* --- fifos and pipes */

static void *read_all(void *path) {
  Buffer *text = calloc(1, sizeof *text);
  Error err;
  if (file_read(path, SIZE_MAX, text, &err) != STATUS_OK) abort();
  return text;
}

TEST_IN_DIRECTORY(a_fifo_is_written_directly) {
  pthread_t reader;
  Error err;
  void *result;
  const char *path = in_directory(own_directory, "fifo");
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_int_equal(pthread_create(&reader, NULL, read_all, (void *)path), 0);
  assert_int_equal(write_text(path, "content", &err), STATUS_OK);
  assert_int_equal(pthread_join(reader, &result), 0);
  Buffer *text = result;
  assert_int_equal(text->size, 7);
  assert_memory_equal(text->data, "content", 7);
  buffer_release(text);
  free(text);
  assert_int_equal(n_entries(), 1);
}

TEST_IN_DIRECTORY(a_closed_pipe_is_quiet) {
  int ends[2];
  Error err = {"something"};
  assert_int_equal(pipe(ends), 0);
  signal(SIGPIPE, SIG_IGN);
  close(ends[0]);
  assert_int_equal(descriptor_write(ends[1], "pipe", "text", 4, &err), STATUS_PIPE);
  assert_string_equal(err.text, "");
  signal(SIGPIPE, SIG_DFL);
  close(ends[1]);
}

static void interrupt(int number) {
  (void)number;
}

/* --- input that waits */

static void *write_later(void *user) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  const int descriptor = *(int *)user;
  for (int i = 0; i < 2; i++) {
    usleep(20000);
    if (write(descriptor, "line\n", 5) != 5) abort();
  }
  close(descriptor);
  return NULL;
}

/* Reads from a pipe that does not block, into which two lines come after a while each. */
TEST_IN_DIRECTORY(input_that_does_not_block_is_waited_for) {
  for (int by_line = 0; by_line < 2; by_line++) {
    int ends[2];
    pthread_t writer;
    Buffer text = {0};
    Error err;
    bool found = true;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    FILE *stream = fdopen(ends[0], "r");
    assert_int_equal(pthread_create(&writer, NULL, write_later, &ends[1]), 0);
    if (by_line) {
      for (int i = 0; i < 2; i++) {
        assert_int_equal(stream_read_line(stream, "pipe", 4, &text, &found, &err), STATUS_OK);
        assert_true(found && text.size == 4 && memcmp(text.data, "line", 4) == 0);
      }
      assert_int_equal(stream_read_line(stream, "pipe", 4, &text, &found, &err), STATUS_OK);
      assert_false(found);
    } else {
      assert_int_equal(stream_read(stream, "pipe", 100, &text, &err), STATUS_OK);
      assert_true(text.size == 10 && memcmp(text.data, "line\nline\n", 10) == 0);
    }
    pthread_join(writer, NULL);
    fclose(stream);
    buffer_release(&text);
  }
}

/* An alarm each millisecond; none of them restarts a call. */
static void alarms(bool on) {
  struct sigaction action = {.sa_handler = on ? interrupt : SIG_DFL};
  if (on) sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, on * 1000}, {0, on * 1000}}, NULL);
  if (!on) sigaction(SIGALRM, &action, NULL);
}

TEST_IN_DIRECTORY(waiting_for_input_can_be_interrupted) {
  Buffer text = {0};
  Error err;
  int ends[2];
  assert_int_equal(mkfifo(in_directory(own_directory, "fifo"), 0600), 0);
  assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
  FILE *stream = fdopen(ends[0], "r");
  alarms(true);
  Status opened =
      file_read(in_directory(own_directory, "fifo"), 100, &text, &err); /* no process opens it for writing */
  Status read = stream_read(stream, "pipe", 100, &text, &err);
  alarms(false);
  assert_int_equal(opened, STATUS_INTERRUPTED);
  assert_int_equal(read, STATUS_INTERRUPTED);
  fclose(stream);
  close(ends[1]);
  buffer_release(&text);
}

TEST_IN_DIRECTORY(lines_are_read_one_by_one) {
  Buffer line = {0};
  Error err;
  bool found;
  put(in_directory(own_directory, "file"), "a\n\n12345");
  FILE *stream = fopen(in_directory(own_directory, "file"), "re");
  assert_int_equal(stream_read_line(stream, "file", 4, &line, &found, &err), STATUS_OK);
  assert_true(found && line.size == 1 && line.data[0] == 'a');
  assert_int_equal(stream_read_line(stream, "file", 4, &line, &found, &err), STATUS_OK);
  assert_true(found && line.size == 0);
  assert_int_equal(stream_read_line(stream, "file", 4, &line, &found, &err), STATUS_USAGE);
  assert_message(&err, "file", "more than 4 bytes");
  fclose(stream);
  buffer_release(&line);
}

typedef struct {
  int descriptor;
  size_t n_read;
  unsigned sum; /* of position times byte */
} SlowReader;

static void *read_slowly(void *user) {
  SlowReader *reader = user;
  unsigned char bytes[10000];
  sigset_t all; /* the writer is who shall be interrupted */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (ssize_t n; (n = read(reader->descriptor, bytes, sizeof bytes)) > 0; usleep(300)) {
    for (ssize_t i = 0; i < n; i++) reader->sum += (unsigned)(reader->n_read + (size_t)i) * bytes[i];
    reader->n_read += (size_t)n;
  }
  return NULL;
}

/* A pipe holds 64 KB and its reader is slow: one large write is cut short and interrupted by an alarm each 1
 * ms. */
static void write_through_pipe(bool blocking) {
  enum { SIZE = 1 << 20 };
  int ends[2];
  pthread_t thread;
  Error err;
  assert_int_equal(pipe(ends), 0);
  if (!blocking) assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  SlowReader reader = {.descriptor = ends[0]};
  unsigned char *bytes = malloc(SIZE);
  unsigned sum = 0;
  for (unsigned i = 0; i < SIZE; i++) sum += i * (bytes[i] = (unsigned char)(i * 7 + i / 256));

  struct sigaction action = {.sa_handler = interrupt}; /* without SA_RESTART */
  sigaction(SIGALRM, &action, NULL);
  assert_int_equal(pthread_create(&thread, NULL, read_slowly, &reader), 0);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL);
  assert_int_equal(descriptor_write(ends[1], "pipe", bytes, SIZE, &err), STATUS_OK);
  setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
  close(ends[1]);
  pthread_join(thread, NULL);
  signal(SIGALRM, SIG_DFL);
  close(ends[0]);
  free(bytes);
  assert_int_equal(reader.n_read, SIZE);
  assert_int_equal(reader.sum, sum);
}

TEST_IN_DIRECTORY(interrupted_and_short_writes_go_on) {
  write_through_pipe(true);
}

TEST_IN_DIRECTORY(a_pipe_that_does_not_block_is_waited_for) {
  write_through_pipe(false);
}

/* --- standard output, in children whose descriptors can be closed */

/* The exit code of a child that runs `body` with standard output being `descriptor` (-1: closed). */
static int in_child(int descriptor, int (*body)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (descriptor < 0)
      close(STDOUT_FILENO);
    else
      dup2(descriptor, STDOUT_FILENO);
    _exit(body());
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int print_twice(void) {
  Error err;
  output_begin();
  Status status = output_write("a\0b", 3, &err);
  return (int)(status == STATUS_OK ? output_printf(&err, "%d-%s", 5, "c") : status);
}

TEST_IN_DIRECTORY(output_goes_out_at_once) {
  int ends[2];
  char bytes[16];
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(in_child(ends[1], print_twice), STATUS_OK);
  assert_int_equal(read(ends[0], bytes, sizeof bytes), 6);
  assert_memory_equal(bytes, "a\0b5-c", 6);
  close(ends[0]);
  assert_int_equal(in_child(ends[1], print_twice), STATUS_PIPE);
  close(ends[1]);
  int full = open("/dev/full", O_WRONLY);
  if (full < 0) return;
  assert_int_equal(in_child(full, print_twice), STATUS_FAILED);
  close(full);
}

static int write_into_redirection(void) {
  Error err;
  output_begin();
  if (output_write("1", 1, &err) != STATUS_OK) return 98;
  Status status = write_text("/dev/stdout", "2", &err);
  return status == STATUS_OK ? (int)output_write("3", 1, &err) : (int)status;
}

/* A file to which a shell redirects output stays that file, and is written from its current offset on. */
TEST_IN_DIRECTORY(a_redirected_output_is_written_in_place) {
  struct stat before, after;
  const char *path = in_directory(own_directory, "file");
  put(path, "");
  int descriptor = open(path, O_WRONLY);
  assert_true(descriptor >= 0 && fstat(descriptor, &before) == 0);
  assert_int_equal(in_child(descriptor, write_into_redirection), STATUS_OK);
  close(descriptor);
  assert_content(path, "123");
  assert_int_equal(stat(path, &after), 0);
  assert_int_equal(after.st_ino, before.st_ino);
  assert_int_equal(n_entries(), 1);
}

static int write_into_error_redirection(void) {
  Error err;
  output_begin();
  dup2(STDOUT_FILENO, STDERR_FILENO); /* which alone writes the file */
  int null = open("/dev/null", O_WRONLY);
  if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || write(STDERR_FILENO, "1", 1) != 1) return 98;
  Status status = write_text(in_directory(own_directory, "file"), "2", &err);
  return status == STATUS_OK ? write(STDERR_FILENO, "3", 1) != 1 : (int)status;
}

/* As in a shell that is given: auk ... -o LOG 2>LOG. */
TEST_IN_DIRECTORY(a_file_that_messages_go_to_is_written_in_place) {
  const char *path = in_directory(own_directory, "file");
  put(path, "");
  int descriptor = open(path, O_WRONLY | O_APPEND);
  assert_true(descriptor >= 0);
  assert_int_equal(in_child(descriptor, write_into_error_redirection), STATUS_OK);
  close(descriptor);
  assert_content(path, "123");
  assert_int_equal(n_entries(), 1);
}

static int write_what_output_reads(void) {
  Error err;
  return (int)write_text(in_directory(own_directory, "file"), "new", &err);
}

/* A descriptor that only reads could not take what is written. */
TEST_IN_DIRECTORY(a_file_that_output_is_open_for_reading_is_replaced) {
  const char *path = in_directory(own_directory, "file");
  put(path, "older");
  int descriptor = open(path, O_RDONLY);
  assert_true(descriptor >= 0);
  assert_int_equal(in_child(descriptor, write_what_output_reads), STATUS_OK);
  close(descriptor);
  assert_content(path, "new");
}

/* With standard output closed, the next file to be opened must not become it. */
static int open_something_first(void) {
  output_begin();
  int descriptor = open(in_directory(own_directory, "file"), O_WRONLY | O_CREAT, 0600);
  Error err;
  return descriptor <= 2 ? 99 : (int)output_write("text", 4, &err);
}

TEST_IN_DIRECTORY(a_closed_output_is_no_file_that_is_opened_later) {
  assert_int_equal(in_child(-1, open_something_first), STATUS_FAILED);
  assert_content(in_directory(own_directory, "file"), "");
}

static int close_input_first(void) {
  close(STDIN_FILENO);
  return open_something_first();
}

/* Nor standard input: a file would be read in place of what is not there. */
TEST_IN_DIRECTORY(a_closed_input_is_no_file_that_is_opened_later) {
  int null = open("/dev/null", O_WRONLY);
  assert_int_equal(in_child(null, close_input_first), STATUS_OK);
  close(null);
}
