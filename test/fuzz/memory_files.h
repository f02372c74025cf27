/* memory_files.h - files of a fuzz target that live in memory, in a directory whose names are links to them:
 * what opens files by name is fed some thousand times a second, and no disk is written. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY_FILES = 4 };

static char memory_directory[64] = "XXXXXX";
static char memory_names[MEMORY_FILES][64];

static inline void require(bool condition) {
  if (!condition) abort();
}

/* The path of the name in the directory; it is overwritten by the next call. */
static inline const char *memory_path(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", memory_directory, name);
  return path;
}

static void memory_remove(void) {
  for (int i = 0; i < MEMORY_FILES; i++)
    if (memory_names[i][0]) unlink(memory_path(memory_names[i]));
  rmdir(memory_directory);
}

static inline void memory_begin(void) {
  if (strcmp(memory_directory, "XXXXXX") == 0) {
    snprintf(memory_directory, sizeof memory_directory, "%s/auk-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    require(mkdtemp(memory_directory) != NULL);
    atexit(memory_remove);
  }
}

/* File number `slot` has this name from now on, and holds these bytes. Its descriptor is returned, which the
 * next call for the slot closes. */
static inline int memory_file(int slot, const char *name, const void *bytes, size_t size) {
  static int descriptors[MEMORY_FILES];
  memory_begin();
  if (descriptors[slot] > 0) close(descriptors[slot]);
  if (memory_names[slot][0]) unlink(memory_path(memory_names[slot]));
  int descriptor = descriptors[slot] = memfd_create(name, MFD_CLOEXEC);
  require(descriptor > 0 && (size == 0 || write(descriptor, bytes, size) == (ssize_t)size));
  lseek(descriptor, 0, SEEK_SET);
  char target[64];
  snprintf(target, sizeof target, "/proc/self/fd/%d", descriptor);
  snprintf(memory_names[slot], sizeof memory_names[slot], "%s", name);
  require(symlink(target, memory_path(name)) == 0);
  return descriptor;
}
