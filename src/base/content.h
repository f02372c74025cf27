/* content.h - what a file holds, as a number that another content does not have; of large files remembered,
 * so that they are read through once. */
#ifndef AUK_BASE_CONTENT_H
#define AUK_BASE_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

typedef struct {
  uint64_t a, b; /* hash64() with two seeds */
} ContentHash;

/* Of bytes in memory: hashes of its pieces of CONTENT_PIECE bytes, and over these. When `interrupted` (NULL:
 * never) becomes other than 0: STATUS_INTERRUPTED. */
enum { CONTENT_PIECE = 1 << 20 };
Status content_of_bytes(const void *bytes, size_t size, int n_threads, const volatile int *interrupted,
                        ContentHash *hash, Error *err);

/* Adds one content to a list of them, which begins as zeroes: their order counts. */
void content_add(ContentHash *list, ContentHash next);

/* Hash of a mapped file: taken from `directory` (NULL: none), or computed now and kept there. Computing the
 * hash of a large file needs `may_read`. *known is false where the file was not to be read, or is no longer
 * what was mapped; a directory that cannot be written is no failure. */
typedef struct {
  const char *directory; /* or NULL */
  bool may_read;
  int n_threads;
  const volatile int *interrupted; /* may be NULL */
} ContentSearch;
Status content_of_file(const MappedFile *file, const ContentSearch *search, ContentHash *hash, bool *known,
                       Error *err);

/* What is remembered of the content of a file: one small file in `directory` (which need not be there) for
 * each stamp. */
bool content_recall(const char *directory, const FileStamp *stamp, ContentHash *hash);

/* Remembers it. PRECOND `hash` is of bytes that were read after started_ns (content_clock_ns()), and the file
 * had this stamp before and after that. Where its last change is so short a time before that the next one
 * could have left the stamp as it is, nothing is remembered: *remembered is false. */
Status content_remember(const char *directory, const FileStamp *stamp, int64_t started_ns,
                        const ContentHash *hash, bool *remembered, Error *err);
int64_t content_clock_ns(void);

#endif
