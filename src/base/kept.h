/* kept.h - files that a program keeps for itself: written whole or not at all, read with distrust. */
#ifndef AUK_BASE_KEPT_H
#define AUK_BASE_KEPT_H

#include "base/file.h"

/* Makes the directory, and those above it, for its owner alone (0700) where they are not there. */
Status kept_directory(const char *path, Error *err);

/* A descriptor for reading a regular file that belongs to this user, and its size; *descriptor is -1 without
 * failure where nothing is there. A link, a fifo, a directory, another's file are refused; nothing waits. */
Status kept_open(const char *path, int *descriptor, uint64_t *size, Error *err);

/* Fills out[size] from `offset`; a file that is shorter is refused. `path` is for the message. */
Status kept_read(int descriptor, const char *path, uint64_t offset, void *out, size_t size, Error *err);

/* A file for its owner alone (0600), to be written and committed (base/file.h); it takes the place of
 * whatever is there but a directory. */
Status kept_create(const char *path, AtomicFile *file, Error *err);

#endif
