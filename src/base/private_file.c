/* private_file.c - see private_file.h.
 *
 * Always true: no open() blocks, and files are not mapped: if a file is truncated while it is read, the read
 * fails, without a SIGBUS. */
#include "base/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Status private_directory(const char *path, Error *err) {
  if (!*path) return error_set(err, STATUS_USAGE, "the name of a directory is empty");
  char *partial = path_join("", path, err); /* a copy */
  if (!partial) return STATUS_FAILED;
  int reason = 0; /* errno of the mkdir() that failed */
  for (char *at = partial + 1; !reason; at++) {
    if (*at && *at != '/') continue;
    char next = *at;
    *at = 0;
    if (mkdir(partial, 0700) != 0) reason = errno;
    if (reason && file_is_directory(partial)) reason = 0;
    if (!next) break;
    *at = next;
  }
  free(partial);
  if (!reason) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: cannot make the directory: %s", path, strerror(reason));
}

Status private_file_open(const char *path, int *descriptor, uint64_t *size, Error *err) {
  *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
  if (*descriptor < 0) {
    if (errno == ENOENT) return STATUS_OK;
    if (errno == ELOOP) return error_set(err, STATUS_FAILED, "%s is a symbolic link", path);
    return error_set(err, STATUS_FAILED, "%s: cannot open: %s", path, strerror(errno));
  }
  struct stat info;
  Status status = STATUS_OK;
  if (fstat(*descriptor, &info) != 0)
    status = error_set(err, STATUS_FAILED, "%s: cannot examine: %s", path, strerror(errno));
  else if (!S_ISREG(info.st_mode))
    status = error_set(err, STATUS_FAILED, "%s is no regular file", path);
  else if (info.st_uid != geteuid())
    status = error_set(err, STATUS_FAILED, "%s belongs to user %lu, expected %lu", path,
                       (unsigned long)info.st_uid, (unsigned long)geteuid());
  *size = status ? 0 : (uint64_t)info.st_size;
  if (status) {
    close(*descriptor);
    *descriptor = -1;
  }
  return status;
}

Status private_file_read(int descriptor, const char *path, uint64_t offset, void *out, size_t size,
                         Error *err) {
  char *at = out;
  while (size > 0) {
    ssize_t n = pread(descriptor, at, size, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error_set(err, STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
    if (n == 0)
      return error_set(err, STATUS_FAILED, "%s ends at byte %llu, expected %zu more", path,
                       (unsigned long long)offset, size);
    at += n;
    offset += (uint64_t)n;
    size -= (size_t)n;
  }
  return STATUS_OK;
}

Status private_file_create(const char *path, AtomicFile *file, Error *err) {
  *file = (AtomicFile){.descriptor = -1};
  struct stat info;
  /* atomic_file_open() would follow a link and write into a fifo. ENOENT: another process was first. */
  bool there = lstat(path, &info) == 0;
  if (there && !(S_ISREG(info.st_mode) && access(path, W_OK) == 0) && unlink(path) != 0 && errno != ENOENT)
    return error_set(err, STATUS_FAILED, "%s: cannot replace what is there: %s", path, strerror(errno));
  TRY(atomic_file_open(path, file, err));
  file->fleeting = true;
  Status status = atomic_file_hide(file, err);
  if (status != STATUS_OK) atomic_file_abort(file);
  return status;
}
