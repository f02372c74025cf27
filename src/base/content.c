/* content.c - see content.h.
 *
 * Always true: a cached hash is of bytes that were read while the file had the cached stamp, and every later
 *              change of the file gives another stamp. */
#include "base/content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash64.h"
#include "base/private_file.h"

static const uint64_t SEED_A = 0, SEED_B = 0x9E3779B97F4A7C15; /* SEED_B: the golden ratio's bits */

/* A file that changed less than this ago can change again and keep its time: FAT rounds to two seconds. */
static const int64_t RACY_NS = 2000000000;

/* Files up to this size are read each time, in some milliseconds, and never cached. */
enum { SMALL_BYTES = 16 << 20 };

Status content_of_bytes(const void *bytes, size_t size, int n_threads, const volatile int *interrupted,
                        ContentHash *hash, Error *err) {
  size_t n_pieces = (size + CONTENT_PIECE - 1) / CONTENT_PIECE;
  ContentHash *pieces;
  TRY(NEW(pieces, n_pieces, "hashes of a file", err));
  const unsigned char *data = bytes;
#pragma omp parallel for schedule(dynamic) if (n_pieces > 4) num_threads(n_threads)
  for (size_t i = 0; i < n_pieces; i++) {
    if (interrupted && *interrupted) continue;
    size_t at = i * CONTENT_PIECE, left = size - at, n = left < CONTENT_PIECE ? left : CONTENT_PIECE;
    pieces[i] = (ContentHash){hash64(data + at, n, SEED_A), hash64(data + at, n, SEED_B)};
  }
  *hash = (ContentHash){hash64(pieces, n_pieces * sizeof *pieces, SEED_A ^ size),
                        hash64(pieces, n_pieces * sizeof *pieces, SEED_B ^ size)};
  free(pieces);
  return interrupted && *interrupted ? error_set(err, STATUS_INTERRUPTED, "interrupted") : STATUS_OK;
}

void content_add(ContentHash *list, ContentHash next) {
  ContentHash both[2] = {*list, next};
  *list = (ContentHash){hash64(both, sizeof both, SEED_A), hash64(both, sizeof both, SEED_B)};
}

/* --- the cache */

/* A cache file, in the machine's own byte order. */
typedef struct {
  char magic[8];
  FileStamp stamp;
  ContentHash hash;
  uint64_t check; /* hash64() of all fields before this */
} CacheEntry;
_Static_assert(sizeof(CacheEntry) == 8 + 5 * 8 + 2 * 8 + 8, "a file's bytes: no padding");

static const char MAGIC[8] = "aukknow1";

static uint64_t entry_check(const CacheEntry *entry) {
  return hash64(entry, offsetof(CacheEntry, check), 0);
}

static char *entry_path(const char *directory, const FileStamp *stamp, Error *err) {
  char name[32];
  snprintf(name, sizeof name, "known-%016llx", (unsigned long long)hash64(stamp, sizeof *stamp, 0));
  return path_join(directory, name, err);
}

bool content_cache_find(const char *directory, const FileStamp *stamp, ContentHash *hash) {
  OWNED(mem_release) char *path = entry_path(directory, stamp, NULL);
  OWNED(descriptor_release) int descriptor = -1;
  uint64_t size = 0;
  CacheEntry entry;
  memset(&entry, 0, sizeof entry);
  bool known = path && private_file_open(path, &descriptor, &size, NULL) == STATUS_OK && descriptor >= 0 &&
               size == sizeof entry &&
               private_file_read(descriptor, path, 0, &entry, sizeof entry, NULL) == STATUS_OK &&
               memcmp(entry.magic, MAGIC, sizeof MAGIC) == 0 && entry.check == entry_check(&entry) &&
               memcmp(&entry.stamp, stamp, sizeof *stamp) == 0;
  if (known) *hash = entry.hash;
  return known;
}

int64_t content_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

Status content_cache_store(const char *directory, const FileStamp *stamp, int64_t started_ns,
                           const ContentHash *hash, bool *stored, Error *err) {
  *stored = false;
  if (stamp->changed_ns > started_ns - RACY_NS || stamp->status_changed_ns > started_ns - RACY_NS)
    return STATUS_OK;
  CacheEntry entry = {.stamp = *stamp, .hash = *hash};
  memcpy(entry.magic, MAGIC, sizeof MAGIC);
  entry.check = entry_check(&entry);
  TRY(private_directory(directory, err));
  OWNED(mem_release) char *path = entry_path(directory, stamp, err);
  if (!path) return STATUS_FAILED;
  OWNED(atomic_file_abort) AtomicFile file = {0};
  TRY(private_file_create(path, &file, err));
  TRY(atomic_file_write(&file, &entry, sizeof entry, err));
  TRY(atomic_file_commit(&file, err));
  *stored = true;
  return STATUS_OK;
}

Status content_of_file(const MappedFile *file, const ContentSearch *search, ContentHash *hash, bool *known,
                       Error *err) {
  bool small = file->size <= SMALL_BYTES, stored;
  *known = !small && search->directory && content_cache_find(search->directory, &file->stamp, hash);
  if (*known || (!small && !search->may_read)) return STATUS_OK;
  int64_t started_ns = content_clock_ns();
  TRY(content_of_bytes(file->data, file->size, search->n_threads, search->interrupted, hash, err));
  *known = file_has_stamp(file->path, &file->stamp);
  if (*known && !small && search->directory)
    content_cache_store(search->directory, &file->stamp, started_ns, hash, &stored, NULL);
  return STATUS_OK;
}
