/* transcript.h - golden transcripts: text files that hold inputs and what the program makes of them.
 *
 * A test writes each file anew from the inputs in it. If that differs, it fails with the first lines that do;
 * with GOLDENS=write in the environment, as `make goldens` sets it, it replaces the file instead. */
#pragma once

#include <dirent.h>

#include "test/unit.h"

enum { TRANSCRIPT_LINE = 8192 };

/* Copies the next line of *text without its end, and moves *text to what follows; false at the end. */
static inline bool transcript_next_line(const char **text, char line[TRANSCRIPT_LINE]) {
  if (!**text) return false;
  const size_t n = strcspn(*text, "\n");
  assert_in_range(n, 0, TRANSCRIPT_LINE - 1);
  snprintf(line, TRANSCRIPT_LINE, "%.*s", (int)n, *text);
  *text += n + ((*text)[n] != 0);
  return true;
}

static inline char *transcript_read(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("cannot open %s (tests run from the repository's root)", path);
  char *text = calloc(1, 1 << 22);
  const size_t n = fread(text, 1, (1 << 22) - 1, file);
  if (n == (1 << 22) - 1) fail_msg("%s is too long", path);
  fclose(file);
  return text;
}

/* Fails with the first lines in which `now` differs from the file. */
static inline void fail_with_difference(const char *path, const char *old, const char *now) {
  char a[TRANSCRIPT_LINE], b[TRANSCRIPT_LINE], input[TRANSCRIPT_LINE] = "";
  int number = 0;
  bool more_a = true, more_b = true;
  while (more_a || more_b) {
    more_a = transcript_next_line(&old, a);
    more_b = transcript_next_line(&now, b);
    number++;
    if (!more_a) *a = 0;
    if (!more_b) *b = 0;
    if (more_a != more_b || strcmp(a, b) != 0) break;
    if (*a && *a != ' ') strcpy(input, a);
  }
  fail_msg("%s:%d: of %.300s\n  expected %.600s\n  found    %.600s\n"
           "`make goldens` writes all such files anew; then look at `git diff test/data/transcripts`",
           path, number, input, a, b);
}

static inline void check_transcript(const char *path, void (*write)(const char *old, FILE *out)) {
  char *old = transcript_read(path), *now = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&now, &size);
  write(old, out);
  fclose(out);
  const char *goldens = getenv("GOLDENS");
  if (strcmp(old, now) != 0 && goldens && strcmp(goldens, "write") == 0) {
    FILE *file = fopen(path, "w");
    if (!file || fputs(now, file) < 0 || fclose(file) != 0) fail_msg("cannot write %s", path);
  } else if (strcmp(old, now) != 0) {
    fail_with_difference(path, old, now);
  }
  free(old);
  free(now);
}

static inline int is_transcript(const struct dirent *entry) {
  return strstr(entry->d_name, ".txt") != NULL;
}

/* All files of a folder, in alphabetical order. */
static inline void check_transcripts(const char *folder, void (*write)(const char *old, FILE *out)) {
  struct dirent **entries;
  const int n = scandir(folder, &entries, is_transcript, alphasort);
  if (n <= 0) fail_msg("no files in %s (tests run from the repository's root)", folder);
  for (int i = 0; i < n; i++) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    check_transcript(path, write);
    free(entries[i]);
  }
  free(entries);
}
