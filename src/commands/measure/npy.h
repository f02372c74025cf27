/* npy.h - a float32 matrix written row by row as a NumPy .npy file, complete or not at all. */
#pragma once

#include "base/file.h"

typedef struct {
  AtomicFile file;
  size_t n_columns;
} NpyFile; /* starts zeroed */

/* Begins the file with a header for n_rows rows. Commit or abort `file` at the end; after a failure, abort
 * it. */
Status npy_open(const char *path, size_t n_rows, size_t n_columns, NpyFile *npy, Error *err);
Status npy_write_row(NpyFile *npy, const float *row /* [n_columns] */, Error *err);
