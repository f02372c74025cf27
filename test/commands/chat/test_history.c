/* test_history.c - entries come back as they were, from several processes, and the file stays small. */
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/chat/history.h"
#include "test/directory.h"
#include "test/tests.h"

static int make_place(void **state) {
  make_own_directory(state);
  return setenv("XDG_STATE_HOME", own_directory, 1);
}

static char *path_here(void) {
  char *path;
  assert_int_equal(history_path(&path, NULL), STATUS_OK);
  assert_non_null(path);
  return path;
}

typedef struct {
  size_t n, bytes;
  char last[256];
  int seen[4][200]; /* [process][entry]: how often */
} Seen;

static Status look(void *user, const char *text, size_t size, Error *err) {
  Seen *seen = user;
  (void)err;
  seen->n++;
  seen->bytes += size;
  snprintf(seen->last, sizeof seen->last, "%.*s", (int)size, text);
  int process, entry;
  if (sscanf(seen->last, "process %d entry %d", &process, &entry) == 2) seen->seen[process][entry]++;
  return STATUS_OK;
}

TEST_WITH(make_place, remove_own_directory, entries_come_back) {
  static const char *const texts[] = {"plain", "two\nlines", "back\\slash \\n", "\xe4\xb8\xad\xe6\x96\x87",
                                      "cr\rlf\n"};
  char *path = path_here();
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(history_add(path, texts[i], strlen(texts[i]), NULL), STATUS_OK);
    Seen seen = {0};
    assert_int_equal(history_read(path, look, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.n, i + 1);
    assert_string_equal(seen.last, texts[i]);
  }
  struct stat kind;
  assert_int_equal(stat(path, &kind), 0);
  assert_int_equal(kind.st_mode & 0777, 0600);
  free(path);
}

TEST_WITH(make_place, remove_own_directory, no_file_holds_no_entries) {
  char *path = path_here();
  Seen seen = {0};
  assert_int_equal(history_read(path, look, &seen, NULL), STATUS_OK);
  assert_int_equal(seen.n, 0);
  mkdir(path, 0700);
  assert_int_equal(history_read(path, look, &seen, NULL), STATUS_FAILED);
  assert_int_equal(history_add(path, "x", 1, NULL), STATUS_FAILED);
  free(path);
}

TEST_WITH(make_place, remove_own_directory, damaged_lines_are_passed_over) {
  char *path = path_here();
  FILE *file = fopen(path, "w");
  static const char lines[] = "good\n\xff\xfe\nnul\0here\n\nend";
  fwrite(lines, 1, sizeof lines - 1, file);
  fclose(file);
  Seen seen = {0};
  assert_int_equal(history_read(path, look, &seen, NULL), STATUS_OK);
  assert_int_equal(seen.n, 1);
  assert_string_equal(seen.last, "good");
  free(path);
}

TEST_WITH(make_place, remove_own_directory, the_directories_are_private) {
  char folder[300];
  snprintf(folder, sizeof folder, "%s/made/deep", own_directory);
  setenv("XDG_STATE_HOME", folder, 1);
  free(path_here());
  struct stat kind;
  assert_int_equal(stat(folder, &kind), 0);
  assert_int_equal(kind.st_mode & 0777, 0700);
  strcat(folder, "/auk");
  assert_int_equal(stat(folder, &kind), 0);
  assert_int_equal(kind.st_mode & 0777, 0700);
}

/* A history kept elsewhere by a link: entries go there, and the link outlives the cutting of the file. */
TEST_WITH(make_place, remove_own_directory, a_link_leads_to_the_history) {
  empty_own_directory();
  setenv("XDG_STATE_HOME", own_directory, 1);
  free(path_here()); /* makes the directory */
  char *link = in_directory(own_directory, "auk/history"), *target = in_directory(own_directory, "elsewhere");
  assert_int_equal(fclose(fopen(target, "w")), 0);
  assert_int_equal(symlink(target, link), 0);
  char *path = path_here(), *text = malloc(60000);
  memset(text, 'x', 60000);
  for (int i = 0; i < 20; i++) assert_int_equal(history_add(path, text, 60000, NULL), STATUS_OK);
  struct stat kind;
  assert_int_equal(lstat(link, &kind), 0);
  assert_true(S_ISLNK(kind.st_mode));
  assert_int_equal(stat(target, &kind), 0);
  assert_in_range(kind.st_size, HISTORY_BYTES / 4, HISTORY_BYTES);
  free(text);
  free(path);
}

/* The longest entry that can be kept is kept; one that a line of the file cannot hold is left out. */
TEST_WITH(make_place, remove_own_directory, an_entry_has_its_limit) {
  char *path = path_here(), *text = malloc(HISTORY_ENTRY_BYTES + 1);
  struct stat kind;
  memset(text, 'x', HISTORY_ENTRY_BYTES + 1);
  assert_int_equal(history_add(path, "", 0, NULL), STATUS_OK);
  assert_int_equal(history_add(path, "a\0b", 3, NULL), STATUS_OK);
  assert_int_equal(history_add(path, text, HISTORY_ENTRY_BYTES + 1, NULL), STATUS_OK);
  assert_int_not_equal(stat(path, &kind), 0); /* nothing was written */
  assert_int_equal(history_add(path, text, HISTORY_ENTRY_BYTES, NULL), STATUS_OK);
  assert_int_equal(stat(path, &kind), 0);
  assert_int_equal(kind.st_size, HISTORY_ENTRY_BYTES + 1);
  free(text);
  free(path);
}

/* Makes a history of lines of 64 bytes, the last one of `last` bytes; the number of each at its beginning. */
static void fill(const char *path, size_t n_lines, size_t last) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (size_t i = 0; i < n_lines; i++) fprintf(file, "%-*zu\n", (int)(i + 1 < n_lines ? 64 : last) - 1, i);
  assert_int_equal(fclose(file), 0);
}

/* A file of just the limit stays; a byte more, and the later half is kept, from the beginning of a line. */
TEST_WITH(make_place, remove_own_directory, a_history_has_its_limit) {
  enum { N_LINES = HISTORY_BYTES / 64 };
  char *path = path_here();
  for (size_t more = 0; more < 2; more++) {
    struct stat kind;
    Seen seen = {0};
    fill(path, N_LINES - 1, 64);
    char text[64];
    memset(text, 'y', sizeof text);
    assert_int_equal(history_add(path, text, 63 + more, NULL), STATUS_OK);
    assert_int_equal(stat(path, &kind), 0);
    /* The half that is kept begins within a line if the file has a byte more; the rest of that line goes. */
    assert_int_equal(kind.st_size, more ? HISTORY_BYTES / 2 - 63 : HISTORY_BYTES);
    if (more) assert_int_equal(kind.st_mode & 0777, 0600);
    assert_int_equal(history_read(path, look, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.n, more ? N_LINES / 2 - 1 : N_LINES);
    assert_int_equal(seen.last[0], 'y');
    assert_int_equal(unlink(path), 0);
  }
  free(path);
}

static Status take_first(void *user, const char *text, size_t size, Error *err) {
  (void)size, (void)err;
  long *first = user;
  if (*first < 0) *first = strtol(text, NULL, 10);
  return STATUS_OK;
}

/* If another program made a longer file, only its end is read. */
TEST_WITH(make_place, remove_own_directory, a_longer_history_is_read_from_its_end) {
  enum { N_LINES = HISTORY_BYTES / 64 };
  char *path = path_here();
  long first = -1;
  fill(path, N_LINES, 64);
  assert_int_equal(history_read(path, take_first, &first, NULL), STATUS_OK);
  assert_int_equal(first, 0);
  fill(path, N_LINES + 10, 63); /* what is read begins with the last byte of a line */
  first = -1;
  assert_int_equal(history_read(path, take_first, &first, NULL), STATUS_OK);
  assert_int_equal(first, 10);
  free(path);
}

/* Adds entries of 60,000 bytes until the file is cut, and says how many. */
static int add_until_cut(const char *path) {
  char *text = malloc(60000);
  struct stat kind;
  memset(text, 'x', 60000);
  int n = 0;
  for (off_t size = 0;; size = kind.st_size) {
    text[0] = (char)('a' + n++);
    assert_int_equal(history_add(path, text, 60000, NULL), STATUS_OK);
    assert_int_equal(stat(path, &kind), 0);
    if (kind.st_size < size) break;
  }
  free(text);
  return n;
}

/* A process may end after it wrote the shorter file and before it renamed it. */
TEST_WITH(make_place, remove_own_directory, what_a_crash_has_left_does_not_come_into_the_history) {
  char *path = path_here(), left[300];
  snprintf(left, sizeof left, "%s.new", path);
  FILE *file = fopen(left, "w");
  assert_non_null(file);
  for (int i = 0; i < HISTORY_BYTES / 12; i++) fputs("crashed\n", file);
  assert_int_equal(fclose(file), 0);
  const char last[] = {(char)('a' + add_until_cut(path) - 1), 'x', 0};
  Seen seen = {0};
  assert_int_equal(history_read(path, look, &seen, NULL), STATUS_OK);
  assert_int_equal(seen.bytes, seen.n * 60000);
  assert_memory_equal(seen.last, last, 2);
  assert_int_not_equal(access(left, F_OK), 0);
  free(path);
}

/* Three processes write at once, enough that the file is cut meanwhile: what is left is whole, nothing twice,
 * and the last entry of each is there. */
TEST_WITH(make_place, remove_own_directory, several_processes_lose_nothing) {
  enum { PROCESSES = 3, ENTRIES = 200, FILL = 4000 };
  char *path = path_here();
  for (int p = 0; p < PROCESSES; p++) {
    if (fork() != 0) continue;
    for (int e = 0; e < ENTRIES; e++) {
      char text[FILL + 64];
      int n = snprintf(text, sizeof text, "process %d entry %d %0*d", p, e, FILL, 0);
      if (history_add(path, text, (size_t)n, NULL)) _exit(1);
    }
    _exit(0);
  }
  for (int p = 0; p < PROCESSES; p++) {
    int how;
    wait(&how);
    assert_int_equal(how, 0);
  }
  Seen seen = {0};
  assert_int_equal(history_read(path, look, &seen, NULL), STATUS_OK);
  struct stat kind;
  assert_int_equal(stat(path, &kind), 0);
  assert_in_range(kind.st_size, HISTORY_BYTES / 4, HISTORY_BYTES);
  assert_int_equal(seen.bytes, (size_t)kind.st_size - seen.n); /* no line was passed over */
  size_t n = 0;
  for (int p = 0; p < PROCESSES; p++) {
    for (int e = 0; e < ENTRIES; e++) {
      assert_in_range(seen.seen[p][e], 0, 1);
      if (e > 0 && seen.seen[p][e - 1]) assert_int_equal(seen.seen[p][e], 1);
      n += (size_t)seen.seen[p][e];
    }
  }
  assert_int_equal(n, seen.n);
  free(path);
}
