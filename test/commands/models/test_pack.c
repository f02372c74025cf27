/* test_pack.c - in which order `auk pack` writes to the disk, and that it leaves nothing where any step
 * of that fails. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/names.h"
#include "test/directory.h"
#include "test/tests.h"

#define STORIES "test/data/stories260K-awq"

/* The calls that make files durable or give them names, in place of the C library's. */
typedef struct {
  enum { SYNC_FILE, SYNC_DIRECTORY, NAME } kind;
  ino_t inode;   /* of the file */
  char name[64]; /* NAME: the file's, without its folder */
} Step;

static Step steps[64];
static int n_steps, n_failing; /* n_failing: calls so far that may fail; number fails_at does */
static int fails_at;

static Step *add_step(int kind, const struct stat *info) {
  assert_in_range(n_steps, 0, 63);
  steps[n_steps] = (Step){.kind = kind, .inode = info->st_ino};
  return &steps[n_steps++];
}

static bool fails(void) {
  if (++n_failing != fails_at) return false;
  errno = EIO;
  return true;
}

int fsync(int descriptor) {
  struct stat info;
  assert_int_equal(fstat(descriptor, &info), 0);
  add_step(S_ISDIR(info.st_mode) ? SYNC_DIRECTORY : SYNC_FILE, &info);
  return S_ISREG(info.st_mode) && fails() ? -1 : 0;
}

/* Temporary names do not count. */
static void note_name(const char *from, const char *to) {
  struct stat info;
  assert_int_equal(stat(from, &info), 0);
  if (strstr(to, "/.auk-")) return;
  snprintf(add_step(NAME, &info)->name, sizeof steps->name, "%s", strrchr(to, '/') + 1);
}

int rename(const char *from, const char *to) {
  note_name(from, to);
  return fails() ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
  note_name(from, to);
  return fails() ? -1 : (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
  note_name(from, to);
  return fails() ? -1 : (int)syscall(SYS_linkat, from_directory, from, to_directory, to, flags);
}

/* Hides the messages of the command, which runs many times. */
static int pack(int call_that_fails) {
  char output[512];
  snprintf(output, sizeof output, "%s/model.ak48", own_directory);
  char *arguments[] = {(char *)"pack", (char *)STORIES, (char *)"-o", output, NULL};
  n_steps = n_failing = 0;
  fails_at = call_that_fails;
  const int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
  dup2(null, STDERR_FILENO);
  const int status = command_call(&pack_interface, 4, arguments);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(null);
  return status;
}

static int count_entries(void) {
  Names names = {0};
  assert_int_equal(names_read(own_directory, &names, NULL), STATUS_OK);
  const int n = (int)names.count;
  names_release(&names);
  return n;
}

static bool is_synced_before(ino_t inode, int end) {
  for (int i = 0; i < end; i++)
    if (steps[i].kind == SYNC_FILE && steps[i].inode == inode) return true;
  return false;
}

/* A power failure leaves what was there, or all of the new files: the bytes of every one are on the disk
 * before the first has its name, the packed file has its name last, and the folder is synced after each
 * name. */
TEST_IN_DIRECTORY(every_file_is_on_the_disk_before_any_has_its_name) {
  static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json",
                                      "model.ak48"};
  assert_int_equal(pack(0), 0);
  int first = 0, n_named = 0;
  while (steps[first].kind != NAME) first++;
  for (int i = first; i < n_steps; i++) {
    if (steps[i].kind != NAME) continue;
    assert_true(n_named < 4);
    assert_string_equal(steps[i].name, names[n_named++]);
    assert_true(is_synced_before(steps[i].inode, first));
    assert_true(i + 1 < n_steps && steps[i + 1].kind == SYNC_DIRECTORY);
  }
  assert_int_equal(n_named, 4);
  assert_int_equal(count_entries(), 4);
}

static void put_old(void) {
  FILE *file = fopen(in_directory(own_directory, "model.ak48"), "wb");
  assert_true(file && fputs("old", file) >= 0 && fclose(file) == 0);
}

static void assert_old(void) {
  char text[8] = "";
  FILE *file = fopen(in_directory(own_directory, "model.ak48"), "rb");
  assert_non_null(file);
  assert_int_equal(fread(text, 1, 7, file), 3);
  fclose(file);
  assert_string_equal(text, "old");
}

TEST_IN_DIRECTORY(whichever_step_fails_leaves_what_was_there) {
  for (int there = 0; there < 2; there++) { /* an older packed file */
    int call = 1;
    for (;; call++) {
      if (there) put_old();
      if (pack(call) == 0) break;
      assert_int_equal(n_failing, call); /* nothing more was tried */
      assert_int_equal(count_entries(), there);
      if (there) assert_old();
      empty_own_directory();
    }
    assert_in_range(call, 9, 40); /* four files were synced and named at least */
    assert_int_equal(count_entries(), 4);
    empty_own_directory();
  }
}
