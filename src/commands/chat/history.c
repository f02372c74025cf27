/* history.c - see history.h. Called by: chat_input.c.
 * Always true: the file is written only under its exclusive lock, by one write or a rename; if it is
 *              replaced while a writer waits for its lock, the writer opens the new file. */
#include "commands/chat/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/private_file.h"
#include "base/utf8.h"
#include "commands/auk_directory.h"
#include "commands/common.h"

Status history_path(char **path, Error *err) {
  OWNED(mem_release) char *directory = NULL;
  *path = NULL;
  TRY(auk_directory("XDG_STATE_HOME", ".local/state", &directory, err));
  if (!directory) return STATUS_OK;
  TRY(private_directory(directory, err));
  *path = path_join(directory, "history", err);
  if (!*path) return STATUS_FAILED;
  char *target = realpath(*path, NULL); /* a symbolic link stays; its target is shortened */
  if (target) {
    free(*path);
    *path = target;
  }
  return STATUS_OK;
}

/* --- the file under its lock */

/* Opens and locks the file at `path`, creating it if needed. *file may be open also after a failure. */
static Status open_locked(const char *path, int *file, Error *err) {
  for (;;) {
    *file = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (*file < 0) return system_error(path, "open", err);
    struct stat ours, there;
    while (flock(*file, LOCK_EX) != 0)
      if (errno != EINTR) return system_error(path, "lock", err);
    if (fstat(*file, &ours) != 0) return system_error(path, "lock", err);
    if (!S_ISREG(ours.st_mode)) return error_set(err, STATUS_FAILED, "%s is no regular file", path);
    if (stat(path, &there) == 0 && there.st_ino == ours.st_ino && there.st_dev == ours.st_dev)
      return STATUS_OK;
    close(*file); /* the file was replaced meanwhile */
  }
}

/* Reads the last `most` bytes of the file, from the beginning of a line. */
static Status read_end(int file, const char *path, size_t most, Buffer *out, Error *err) {
  off_t size = lseek(file, 0, SEEK_END), start = 0;
  if (size < 0) return system_error(path, "read", err);
  if ((uint64_t)size > most) start = size - (off_t)most;
  char part[65536];
  for (off_t at = start;;) {
    ssize_t n = pread(file, part, sizeof part, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "read", err);
    if (n == 0) break;
    TRY(buffer_append(out, part, (size_t)n, err));
    at += n;
  }
  char *newline = start && out->size ? memchr(out->data, '\n', out->size) : NULL;
  size_t cut = newline ? (size_t)(newline + 1 - out->data) : start ? out->size : 0;
  out->size -= cut;
  if (out->size) memmove(out->data, out->data + cut, out->size);
  return STATUS_OK;
}

static Status shorten(int file, const char *path, Error *err) {
  OWNED(buffer_release) Buffer kept = {0}, name = {0};
  TRY(read_end(file, path, HISTORY_BYTES / 2, &kept, err));
  TRY(buffer_printf(&name, err, "%s.new", path));
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  OWNED(descriptor_release) const int half = open(name.data, flags, 0600); /* the lock protects it, too */
  if (half < 0) return system_error(name.data, "open", err);
  Status status = kept.size ? descriptor_write(half, name.data, kept.data, kept.size, err) : STATUS_OK;
  if (status == STATUS_OK && rename(name.data, path) != 0) status = system_error(name.data, "rename", err);
  if (status) unlink(name.data);
  return status;
}

/* --- entries */

static Status write_entry(const char *text, size_t size, Buffer *line, Error *err) {
  for (size_t i = 0; i < size; i++) {
    const char *escape = text[i] == '\n' ? "\\n" : text[i] == '\\' ? "\\\\" : text[i] == '\r' ? "\\r" : NULL;
    TRY(escape ? buffer_append(line, escape, 2, err) : buffer_append(line, text + i, 1, err));
  }
  return buffer_append(line, "\n", 1, err);
}

static Status read_entry(const char *line, size_t size, Buffer *text, Error *err) {
  for (size_t i = 0; i < size; i++) {
    char c = line[i];
    if (c == '\\' && i + 1 < size) {
      c = line[++i];
      c = c == 'n' ? '\n' : c == 'r' ? '\r' : c;
    }
    TRY(buffer_append(text, &c, 1, err));
  }
  return STATUS_OK;
}

Status history_add(const char *path, const char *text, size_t size, Error *err) {
  if (size == 0 || size > HISTORY_ENTRY_BYTES || memchr(text, 0, size)) return STATUS_OK;
  OWNED(buffer_release) Buffer line = {0};
  OWNED(descriptor_release) int file = -1;
  TRY(write_entry(text, size, &line, err));
  TRY(open_locked(path, &file, err));
  TRY(descriptor_write(file, path, line.data, line.size, err));
  struct stat now;
  return fstat(file, &now) == 0 && now.st_size > HISTORY_BYTES ? shorten(file, path, err) : STATUS_OK;
}

static Status take_lines(const Buffer *lines, HistorySink take, void *user, Error *err) {
  OWNED(buffer_release) Buffer entry = {0};
  for (size_t at = 0; at < lines->size;) {
    const char *line = lines->data + at, *end = memchr(line, '\n', lines->size - at);
    if (!end) break; /* an incomplete line */
    size_t size = (size_t)(end - line);
    at += size + 1;
    entry.size = 0;
    if (size == 0 || memchr(line, 0, size) || utf8_valid_prefix(line, size) != size) continue;
    TRY(read_entry(line, size, &entry, err));
    TRY(take(user, entry.data, entry.size, err));
  }
  return STATUS_OK;
}

Status history_read(const char *path, HistorySink take, void *user, Error *err) {
  OWNED(descriptor_release) int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo would block */
  if (file < 0) return errno == ENOENT ? STATUS_OK : system_error(path, "open", err);
  struct stat kind;
  OWNED(buffer_release) Buffer lines = {0};
  if (fstat(file, &kind) != 0 || !S_ISREG(kind.st_mode))
    return error_set(err, STATUS_FAILED, "%s is no regular file", path);
  flock(file, LOCK_SH);
  TRY(read_end(file, path, HISTORY_BYTES, &lines, err));
  flock(file, LOCK_UN);
  return take_lines(&lines, take, user, err);
}
