/* fuzz_ak48.c - any bytes as a packed file. A file that is accepted is written again, and must give the same
 * bytes.
 *
 * The file is one in memory, opened through /proc/self/fd, beside which there is no config.json. The corpus
 * holds the smallest file with q and k norms and the smallest without, made as models.md, "ak48", says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(int holds) {
  if (!holds) abort();
}

static void write_again(const Model *model, const uint8_t *bytes, size_t size) {
  static char path[64];
  if (!path[0]) snprintf(path, sizeof path, "/tmp/auk-fuzz-%ld.ak48", (long)getpid());
  Error err = {{0}};
  Buffer written = {0};
  AtomicFile file;
  require(ak48_check_fits(model, NULL, &err) == STATUS_OK);
  require(atomic_file_open(path, &file, &err) == STATUS_OK);
  require(ak48_write(model, &file, NULL, &err) == STATUS_OK);
  require(atomic_file_commit(&file, &err) == STATUS_OK);
  require(file_read(path, SIZE_MAX, &written, &err) == STATUS_OK);
  require(written.size == size && memcmp(written.data, bytes, size) == 0);
  buffer_release(&written);
  unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  int descriptor = memfd_create("input", MFD_CLOEXEC);
  char path[64];
  require(descriptor >= 0 && write(descriptor, bytes, size) == (ssize_t)size);
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  Model *model;
  Error err = {{0}};
  Status status = model_open(path, NULL, &model, &err);
  if (status == STATUS_OK)
    write_again(model, bytes, size);
  else
    require(status == STATUS_MODEL && strstr(err.text, path) != NULL);
  model_close(model);
  close(descriptor);
  return 0;
}
