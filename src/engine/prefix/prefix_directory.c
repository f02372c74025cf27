/* prefix_directory.c - see prefix_directory.h.
 *
 * Called by: prefix_store.c, commands/answer/cache_list.c.
 * Always true: files are unlinked, never truncated, so a process with a file open can read on; nothing waits
 *              for a lock. */
#include "engine/prefix/prefix_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static const int64_t SECOND_NS = 1000000000;

static const char *const SUFFIXES[] = {".kv", ".rs"}; /* of blocks and of states */

void prefix_file_name(uint64_t key, uint64_t before, uint64_t own, bool state, char out[PREFIX_NAME]) {
  snprintf(out, PREFIX_NAME, "%016llx-%016llx-%016llx%s", (unsigned long long)key, (unsigned long long)before,
           (unsigned long long)own, SUFFIXES[state]);
}

/* True if `name` matches `pattern`; an x matches a hexadecimal digit. */
static bool is_like(const char *name, const char *pattern) {
  for (; *pattern; name++, pattern++) {
    bool digit = (*name >= '0' && *name <= '9') || (*name >= 'a' && *name <= 'f');
    if (*pattern == 'x' ? !digit : *name != *pattern) return false;
  }
  return *name == 0;
}

static bool is_block(const char *name) {
  return is_like(name, "xxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx.kv") ||
         is_like(name, "xxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx.rs");
}

static Status add(PrefixList *list, const char *name, const struct stat *info, Error *err) {
  TRY(mem_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items, "cached files", err));
  PrefixEntry *entry = &list->items[list->count++];
  *entry = (PrefixEntry){.block = is_block(name),
                         .bytes = (uint64_t)info->st_size,
                         .used_ns = (int64_t)info->st_mtim.tv_sec * SECOND_NS + info->st_mtim.tv_nsec};
  memcpy(entry->name, name, strlen(name) + 1); /* it fits: the patterns that it matches are shorter */
  list->bytes += entry->bytes;
  return STATUS_OK;
}

static int compare_use(const void *a, const void *b) {
  const PrefixEntry *one = a, *other = b;
  if (one->used_ns != other->used_ns) return one->used_ns < other->used_ns ? -1 : 1;
  return strcmp(one->name, other->name);
}

/* Lists up to `most` of the store's files whose names begin with `prefix` and end with `suffix`; with
 * `clean`, removes old temporary files. */
static Status list_names(const char *directory, const char *prefix, const char *suffix, size_t most,
                         bool clean, PrefixList *list, Error *err) {
  *list = (PrefixList){0};
  OWNED(listing_release) DIR *listing = opendir(directory);
  if (!listing && errno == ENOENT) return STATUS_OK;
  if (!listing) return error_set(err, STATUS_FAILED, "%s: cannot list: %s", directory, strerror(errno));
  Status status = STATUS_OK;
  const struct dirent *entry;
  while (status == STATUS_OK && list->count < most && (entry = readdir(listing))) {
    struct stat info;
    bool ours = is_block(entry->d_name) || is_like(entry->d_name, "known-xxxxxxxxxxxxxxxx");
    ours =
        ours && strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && name_ends_with(entry->d_name, suffix);
    if ((!ours && !(clean && entry->d_name[0] == '.')) ||
        fstatat(dirfd(listing), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
      continue;
    if (ours)
      status = add(list, entry->d_name, &info, err);
    else if (fnmatch(".auk-*.tmp", entry->d_name, 0) == 0 && time(NULL) - info.st_mtime > 24 * 60 * 60)
      /* a killed process left it (base/file.h, AtomicFile) */
      unlinkat(dirfd(listing), entry->d_name, 0);
  }
  if (list->count > 1) qsort(list->items, list->count, sizeof *list->items, compare_use);
  return status;
}

Status prefix_directory_list(const char *directory, PrefixList *list, Error *err) {
  return list_names(directory, "", "", SIZE_MAX, false, list, err);
}

Status prefix_directory_blocks(const char *directory, uint64_t key, uint64_t before, bool states, size_t most,
                               PrefixList *list, Error *err) {
  char prefix[PREFIX_NAME];
  snprintf(prefix, sizeof prefix, "%016llx-%016llx-", (unsigned long long)key, (unsigned long long)before);
  return list_names(directory, prefix, SUFFIXES[states], most, false, list, err);
}

void prefix_list_release(PrefixList *list) {
  free(list->items);
  *list = (PrefixList){0};
}

void prefix_mark_used(const char *path, int64_t used_ns) {
  struct timespec time = {.tv_sec = used_ns / SECOND_NS, .tv_nsec = used_ns % SECOND_NS};
  utimensat(AT_FDCWD, path, (struct timespec[]){time, time}, AT_SYMLINK_NOFOLLOW);
}

static Status remove_oldest(const char *directory, uint64_t limit, int *n_removed, Error *err) {
  OWNED(prefix_list_release) PrefixList list = {0};
  TRY(list_names(directory, "", "", SIZE_MAX, true, &list, err));
  for (size_t i = 0; i < list.count && list.bytes > limit; i++) {
    OWNED(mem_release) char *path = path_join(directory, list.items[i].name, err);
    if (!path) return STATUS_FAILED;
    const bool removed = unlink(path) == 0;
    *n_removed += removed;
    if (removed || errno == ENOENT) list.bytes -= list.items[i].bytes;
  }
  return STATUS_OK;
}

/* Opens the lock file. If there is neither a lock file nor a file to remove, *lock is -1 without failure: a
 * directory of other programs gets no file. */
static Status open_lock(const char *directory, const char *path, int *lock, Error *err) {
  const int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
  *lock = open(path, flags);
  if (*lock < 0 && errno == ENOENT) {
    OWNED(prefix_list_release) PrefixList list = {0};
    TRY(prefix_directory_list(directory, &list, err));
    if (list.count == 0) return STATUS_OK;
    *lock = open(path, flags | O_CREAT, 0600);
  }
  if (*lock >= 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: cannot open: %s", path, strerror(errno));
}

Status prefix_directory_shrink(const char *directory, uint64_t limit, int *n_removed, Error *err) {
  *n_removed = 0;
  char *path = path_join(directory, "lock", err);
  if (!path) return STATUS_FAILED;
  int lock;
  Status status = open_lock(directory, path, &lock, err);
  free(path);
  if (lock < 0) return status;
  if (flock(lock, LOCK_EX | LOCK_NB) == 0) status = remove_oldest(directory, limit, n_removed, err);
  close(lock); /* releases the lock */
  return status;
}
