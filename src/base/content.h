/* content.h - 128-bit hash of a file's content; the hashes of large files are cached on disk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

typedef struct {
  uint64_t a, b; /* hash64() with two seeds */
} ContentHash;

/* Hashes each CONTENT_PIECE bytes in memory, then the list of hashes. Returns STATUS_INTERRUPTED when
 * *interrupted becomes other than 0 (NULL: never). */
enum { CONTENT_PIECE = 1 << 20 };
Status content_of_bytes(const void *bytes, size_t size, int n_threads, const volatile int *interrupted,
                        ContentHash *hash, Error *err);

/* Appends a hash to the hash of a list, which begins zeroed. The order matters. */
void content_add(ContentHash *list, ContentHash next);

/* Hash of a mapped file. A file up to 16 MiB is always read. A larger file's hash is taken from the cache in
 * `directory`; if it is not there and may_read is true, it is computed now and stored there. *known is false
 * in two cases: a larger file's hash is not cached and may_read is false; or the file was read and has
 * changed since it was mapped. A directory that cannot be written is no failure. */
typedef struct {
  const char *directory; /* the cache's directory, or NULL */
  bool may_read;
  int n_threads;
  const volatile int *interrupted; /* may be NULL */
} ContentSearch;
Status content_of_file(const MappedFile *file, const ContentSearch *search, ContentHash *hash, bool *known,
                       Error *err);

/* Looks up the hash of the file with this stamp (identity and time of change). The cache is a small file for
 * each stamp in `directory`, which need not exist. */
bool content_cache_find(const char *directory, const FileStamp *stamp, ContentHash *hash);

/* Stores a hash in the cache. PRECOND `hash` is of bytes that were read after started_ns
 * (content_clock_ns()), and the file had this stamp before and after they were read. If the file changed so
 * shortly before started_ns that another change could have left the same stamp, nothing is stored and *stored
 * is false. */
Status content_cache_store(const char *directory, const FileStamp *stamp, int64_t started_ns,
                           const ContentHash *hash, bool *stored, Error *err);
int64_t content_clock_ns(void);
