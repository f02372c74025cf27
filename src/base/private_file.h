/* private_file.h - private files of the user, such as caches: written atomically, validated when opened. */
#pragma once

#include "base/file.h"

/* Makes the directory, and missing directories above it, with mode 0700. */
Status private_directory(const char *path, Error *err);

/* Opens a regular file of this user for reading and reports its size; *descriptor is -1, without failure, if
 * there is no file. A link, a fifo, a directory and another user's file are refused; never blocks. */
Status private_file_open(const char *path, int *descriptor, uint64_t *size, Error *err);

/* Fills out[size] from `offset`; a shorter file is refused. `path` is for the message. */
Status private_file_read(int descriptor, const char *path, uint64_t offset, void *out, size_t size,
                         Error *err);

/* Opens a file of mode 0600, to be written and committed (base/file.h); it replaces anything at `path` but a
 * directory. */
Status private_file_create(const char *path, AtomicFile *file, Error *err);
