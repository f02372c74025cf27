/* npy.c - see npy.h.   Called by: eval.c. NumPy's format, version 1.0 (numpy.lib.format): magic,
 * version, a u16 length, a Python dictionary padded with spaces so that the data begin at a multiple of 64,
 * then little-endian numbers. */
#include "commands/measure/npy.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

enum { HEADER_BYTES = 128, PREFIX_BYTES = 10 };

Status npy_open(const char *path, size_t n_rows, size_t n_columns, NpyFile *npy, Error *err) {
  char header[HEADER_BYTES + 1];
  memset(header, ' ', sizeof header);
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = HEADER_BYTES - PREFIX_BYTES;
  header[9] = 0;
  int length = snprintf(header + PREFIX_BYTES, sizeof header - PREFIX_BYTES,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", n_rows, n_columns);
  header[PREFIX_BYTES + length] = ' '; /* overwrites snprintf's NUL */
  header[HEADER_BYTES - 1] = '\n';
  npy->n_columns = n_columns;
  TRY(atomic_file_open(path, &npy->file, err));
  return atomic_file_write(&npy->file, header, HEADER_BYTES, err);
}

Status npy_write_row(NpyFile *npy, const float *row, Error *err) {
  return atomic_file_write(&npy->file, row, npy->n_columns * sizeof *row, err);
}
