/* fuzz_npy.c - the NumPy writer: any numbers in any shape are a file whose header says that shape, and whose
 * data are those numbers.
 *
 * The first two bytes are the shape, the rest the numbers, over and over. */
#include "memory_files.h"

#include "commands/measure/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *path, size_t n_rows, size_t n_columns, const float *numbers) {
  Buffer file = {0};
  Error err;
  require(file_read(path, SIZE_MAX, &file, &err) == STATUS_OK);
  require(file.size == 128 + n_rows * n_columns * 4 &&
          memcmp(file.data, "\x93NUMPY\x01\x00\x76\x00", 10) == 0);
  require(file.data[127] == '\n' && !memchr(file.data + 10, 0, 118));
  size_t rows, columns;
  char end;
  file.data[127] = 0;
  require(sscanf(file.data + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), %c", &rows,
                 &columns, &end) == 3);
  require(rows == n_rows && columns == n_columns && end == '}');
  require(n_rows * n_columns == 0 || memcmp(file.data + 128, numbers, n_rows * n_columns * 4) == 0);
  buffer_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  size_t n_rows = data[0] % 64, n_columns = data[1] % 64;
  float numbers[64 * 64] = {0};
  for (size_t i = 0; size > 2 && i < n_rows * n_columns * 4; i++)
    ((uint8_t *)numbers)[i] = data[2 + i % (size - 2)];
  NpyFile npy = {0};
  Error err = {{0}};
  memory_begin();
  char path[512];
  snprintf(path, sizeof path, "%s", memory_path("matrix"));
  require(npy_open(path, n_rows, n_columns, &npy, &err) == STATUS_OK);
  for (size_t i = 0; i < n_rows; i++)
    require(npy_write_row(&npy, numbers + i * n_columns, &err) == STATUS_OK);
  require(atomic_file_commit(&npy.file, &err) == STATUS_OK);
  check(path, n_rows, n_columns, numbers);
  unlink(path);
  return 0;
}
