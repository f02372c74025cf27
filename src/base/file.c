/* file.c - see file.h.
 *
 * Always true: a message about a file names its path, and a failed system call's reason; only an AtomicFile's
 *              descriptor outlives the call that opened it, and no child process inherits a descriptor. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size_text.h"
#include "base/utf8.h"

#define PROC_PATH      "/proc/self/fd/%d"
#define PROC_PATH_SIZE 32

static Status system_error(Error *err, Status status, const char *path, const char *what) {
  return error_set(err, status, "%s: cannot %s: %s", path, what, strerror(errno));
}

static const char *file_kind(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a fifo";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return S_ISSOCK(mode) ? "a socket" : "no ordinary file";
}

static char *copy_string(const char *string, Error *err) {
  char *copy = mem_alloc(strlen(string) + 1, 1, "a path", err);
  return copy ? strcpy(copy, string) : NULL;
}

/* --- mapping */

static int64_t nanoseconds(struct timespec time) {
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static FileStamp stamp_of(const struct stat *info) {
  return (FileStamp){.device = info->st_dev,
                     .inode = info->st_ino,
                     .size = (uint64_t)info->st_size,
                     .changed_ns = nanoseconds(info->st_mtim),
                     .status_changed_ns = nanoseconds(info->st_ctim)};
}

Status file_stamp(const char *path, FileStamp *stamp, Error *err) {
  struct stat info;
  if (stat(path, &info) != 0)
    return error_set(err, STATUS_FAILED, "%s: cannot examine: %s", path, strerror(errno));
  *stamp = stamp_of(&info);
  return STATUS_OK;
}

Status file_stamp_write(const FileStamp *s, Buffer *out, Error *err) {
  return buffer_printf(out, err, "%llx:%llx %llu %lld %lld", (unsigned long long)s->device,
                       (unsigned long long)s->inode, (unsigned long long)s->size, (long long)s->changed_ns,
                       (long long)s->status_changed_ns);
}

bool file_has_stamp(const char *path, const FileStamp *stamp) {
  struct stat info;
  if (stat(path, &info) != 0) return false;
  FileStamp now = stamp_of(&info);
  return memcmp(&now, stamp, sizeof now) == 0;
}

bool file_was_overwritten(const char *path, const FileStamp *stamp) {
  struct stat info;
  if (stat(path, &info) != 0) return false;
  FileStamp now = stamp_of(&info);
  bool same_file = now.device == stamp->device && now.inode == stamp->inode;
  return same_file && (now.size != stamp->size || now.changed_ns != stamp->changed_ns);
}

static Status map_descriptor(int descriptor, Status refused, MappedFile *file, Error *err) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return system_error(err, refused, file->path, "examine");
  if (!S_ISREG(info.st_mode))
    return error_set(err, refused, "%s is %s, expected a regular file", file->path, file_kind(info.st_mode));
  file->stamp = stamp_of(&info);
  if (info.st_size == 0) return STATUS_OK;
  if ((uintmax_t)info.st_size > PTRDIFF_MAX)
    return error_set(err, refused, "%s: %jd bytes do not fit into memory addresses", file->path,
                     (intmax_t)info.st_size);
  void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) return system_error(err, refused, file->path, "map");
  file->data = data;
  file->size = (size_t)info.st_size;
  return STATUS_OK;
}

Status file_map(const char *path, Status refused, MappedFile *file, Error *err) {
  *file = (MappedFile){0};
  if (!(file->path = copy_string(path, err))) return STATUS_FAILED;
  /* O_NONBLOCK: without it open() waits for ever on a fifo without a writer. */
  OWNED(descriptor_release) int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  Status status = descriptor < 0 ? system_error(err, refused, path, "open")
                                 : map_descriptor(descriptor, refused, file, err);
  if (status != STATUS_OK) file_unmap(file);
  return status;
}

void file_unmap(MappedFile *file) {
  if (file->data) munmap((void *)file->data, file->size);
  free(file->path);
  *file = (MappedFile){0};
}

void file_drop_pages(const void *data, size_t bytes) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page,
                  end = ((uintptr_t)data + bytes) / page * page;
  if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

Status file_refuse_waiting(const char *path, Error *err) {
  struct stat info;
  if (stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is %s, expected a regular file", path, file_kind(info.st_mode));
}

/* --- reading */

/* Handles a failed read: if a non-blocking descriptor has no input yet, waits for input and returns STATUS_OK
 * for another try; else fails. PRECOND errno is the read's. */
static Status after_failed_read(FILE *stream, const char *name, Error *err) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    struct pollfd ready = {.fd = fileno(stream), .events = POLLIN};
    if (poll(&ready, 1, -1) >= 0) {
      clearerr(stream);
      return STATUS_OK;
    }
  }
  if (errno == EINTR) return error_set(err, STATUS_INTERRUPTED, "%s: reading was interrupted", name);
  return system_error(err, STATUS_FAILED, name, "read");
}

/* Refuses more than `limit` bytes. The message states a regular file's size; a pipe has no known size. */
static Status refuse_length(FILE *stream, const char *name, size_t limit, Error *err) {
  struct stat info;
  const SizeText most = size_text(limit);
  if (fstat(fileno(stream), &info) == 0 && S_ISREG(info.st_mode))
    return error_set(err, STATUS_USAGE, "%s has %s, expected at most %s", name,
                     size_text((uint64_t)info.st_size).text, most.text);
  return error_set(err, STATUS_USAGE, "%s has more than %s", name, most.text);
}

Status stream_read(FILE *stream, const char *name, size_t limit, Buffer *out, Error *err) {
  static const size_t step = 1 << 16;
  size_t start = out->size;
  for (;;) {
    TRY(mem_grow(&out->data, &out->capacity, out->size + step, 1, name, err));
    errno = 0;
    out->size += fread(out->data + out->size, 1, out->capacity - out->size, stream);
    if (out->size - start > limit) return refuse_length(stream, name, limit, err);
    if (feof(stream)) return STATUS_OK;
    if (ferror(stream)) TRY(after_failed_read(stream, name, err));
  }
}

Status stream_read_line(FILE *stream, const char *name, size_t limit, Buffer *line, bool *found, Error *err) {
  line->size = 0;
  *found = false;
  for (;;) {
    errno = 0;
    int byte = getc_unlocked(stream);
    if (byte == EOF && feof(stream)) return STATUS_OK;
    if (byte == EOF) {
      TRY(after_failed_read(stream, name, err));
      continue;
    }
    *found = true;
    if (byte == '\n') return STATUS_OK;
    if (line->size == limit)
      return error_set(err, STATUS_USAGE, "%s: a line has more than %s", name, size_text(limit).text);
    TRY(mem_grow(&line->data, &line->capacity, line->size + 1, 1, name, err));
    line->data[line->size++] = (char)byte;
  }
}

Status file_refuse_url(const char *path, Error *err) {
  if (!strstr(path, "://") || file_exists(path)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: URLs are not fetched: curl -sL URL | auk ... gives one to a pipe",
                   path);
}

Status file_read(const char *path, size_t limit, Buffer *out, Error *err) {
  TRY(file_refuse_url(path, err));
  OWNED(stream_release) FILE *stream = fopen(path, "rbe");
  if (!stream && errno == EINTR) /* a fifo that no process has opened for writing yet */
    return error_set(err, STATUS_INTERRUPTED, "%s: opening was interrupted", path);
  if (!stream) return system_error(err, STATUS_FAILED, path, "open");
  struct stat info;
  if (fstat(fileno(stream), &info) == 0 && S_ISDIR(info.st_mode))
    return error_set(err, STATUS_FAILED, "%s is a directory, expected a file to read", path);
  return stream_read(stream, path, limit, out, err);
}

bool file_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

bool file_is_named(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0;
}

bool file_is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char *file_kind_of(const char *path) {
  struct stat info;
  if (stat(path, &info) == 0) return file_kind(info.st_mode);
  return lstat(path, &info) == 0 ? "a symbolic link to nothing" : NULL;
}

bool name_ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), n = strlen(end);
  return length >= n && strcmp(name + length - n, end) == 0;
}

char *path_join(const char *directory, const char *name, Error *err) {
  size_t length = strlen(directory);
  bool slash = length > 0 && directory[length - 1] != '/';
  size_t size = length + slash + strlen(name) + 1;
  char *path = mem_alloc(size, 1, "a path", err);
  if (path) snprintf(path, size, "%s%s%s", directory, slash ? "/" : "", name);
  return path;
}

char *path_directory(const char *path, Error *err) {
  const char *slash = strrchr(path, '/');
  if (!slash) return copy_string(".", err);
  char *directory = copy_string(path, err);
  if (directory) directory[slash == path ? 1 : slash - path] = 0;
  return directory;
}

/* --- writing */

/* Reads every page. write() reports EFAULT for bytes of a mapped file that was truncated; reading them raises
 * SIGBUS instead, whose handler (commands/sigbus.c) names the file. */
static void read_pages(const char *bytes, size_t size) {
  static const size_t page = 4096; /* a page is this or a multiple */
  const volatile char *at = bytes;
  for (size_t i = 0; i < size; i += page) (void)at[i];
  (void)at[size - 1];
}

Status descriptor_write(int descriptor, const char *name, const void *bytes, size_t size, Error *err) {
  const char *at = bytes;
  while (size > 0) {
    ssize_t n = write(descriptor, at, size);
    if (n >= 0) {
      at += n;
      size -= (size_t)n;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      struct pollfd ready = {.fd = descriptor, .events = POLLOUT};
      poll(&ready, 1, -1);
    } else if (errno == EPIPE) {
      return error_set(err, STATUS_PIPE, "%s", "");
    } else if (errno != EINTR) {
      if (errno == EFAULT) read_pages(at, size);
      return system_error(err, STATUS_FAILED, name, "write");
    }
  }
  return STATUS_OK;
}

/* Gives an unnamed file a name; fails with EEXIST if the name is taken. */
static bool link_unnamed(AtomicFile *file, const char *name) {
  char self[PROC_PATH_SIZE];
  snprintf(self, sizeof self, PROC_PATH, file->descriptor);
  if (linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) != 0) return false;
  file->unnamed = false;
  return true;
}

/* If file->unnamed, links the open file as file->temporary; else creates a file of this name. */
static bool take_name(AtomicFile *file, mode_t mode) {
  if (file->unnamed) return link_unnamed(file, file->temporary);
  file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  return file->descriptor >= 0;
}

/* Finds a temporary name in the target's directory: rename() cannot cross file systems. The name does not
 * contain the target's, which may already be as long as a name can be.
 *
 * A process that is killed while its file has such a name leaves the file. No later AtomicFile removes it,
 * because nothing proves that its owner is gone: a PID is of one host and one namespace, locks need not reach
 * other hosts that share the directory, and the file of a writer that waits may be old. */
static Status take_temporary_name(AtomicFile *file, mode_t mode, Error *err) {
  OWNED(mem_release) char *directory = path_directory(file->path, err);
  if (!directory) return STATUS_FAILED;
  for (int attempt = 0;; attempt++) {
    char name[64];
    snprintf(name, sizeof name, ".auk-%ld-%d.tmp", (long)getpid(), attempt);
    if (!(file->temporary = path_join(directory, name, err))) return STATUS_FAILED;
    if (take_name(file, mode)) return STATUS_OK;
    bool taken = errno == EEXIST && attempt < 1000; /* by another file of this or of a killed process */
    if (!taken) system_error(err, STATUS_FAILED, file->path, "write there");
    free(TAKE(file->temporary));
    if (!taken) return STATUS_FAILED;
  }
}

/* Opens a file without a name, which is gone when the process ends, even if killed. The file has a name from
 * the beginning if the file system lacks O_TMPFILE, or if /proc is missing, which linkat() needs to name the
 * file later. */
static Status create_temporary(AtomicFile *file, mode_t mode, Error *err) {
  char *directory = path_directory(file->path, err), self[PROC_PATH_SIZE];
  if (!directory) return STATUS_FAILED;
  file->descriptor = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  free(directory);
  snprintf(self, sizeof self, PROC_PATH, file->descriptor);
  file->unnamed = file->descriptor >= 0 && access(self, F_OK) == 0;
  if (file->unnamed) return STATUS_OK;
  if (file->descriptor >= 0) close(file->descriptor);
  file->descriptor = -1;
  return take_temporary_name(file, mode, err);
}

/* If standard output or error writes to this file, returns a duplicate of that descriptor, with the same
 * offset; else -1. Replacing the file would hide what is written to standard output or error later. */
static int duplicate_standard(const struct stat *info) {
  for (int descriptor = STDOUT_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
    struct stat standard;
    if (fstat(descriptor, &standard) == 0 && standard.st_dev == info->st_dev &&
        standard.st_ino == info->st_ino && (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY)
      return fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  }
  return -1;
}

/* Opens the target file->path; `info` is NULL if it does not exist yet. */
static Status open_target(AtomicFile *file, const struct stat *info, Error *err) {
  if (!info) return create_temporary(file, 0666, err);
  if (S_ISCHR(info->st_mode) || S_ISFIFO(info->st_mode)) {
    do {
      file->descriptor = open(file->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    } while (file->descriptor < 0 && errno == EINTR);
    return file->descriptor < 0 ? system_error(err, STATUS_FAILED, file->path, "open for writing")
                                : STATUS_OK;
  }
  if (!S_ISREG(info->st_mode))
    return error_set(err, STATUS_FAILED, "%s is %s, expected a file to write", file->path,
                     file_kind(info->st_mode));
  if ((file->descriptor = duplicate_standard(info)) >= 0) return STATUS_OK;
  /* Checked because rename() would replace even a file that its owner made read-only. */
  if (access(file->path, W_OK) != 0) {
    if (errno == ENOENT) return create_temporary(file, 0666, err); /* removed since it was examined */
    return system_error(err, STATUS_FAILED, file->path, "write");
  }
  TRY(create_temporary(file, 0600, err));
  if (fchmod(file->descriptor, info->st_mode & 0777) != 0)
    return system_error(err, STATUS_FAILED, file->path, "set permissions");
  return STATUS_OK;
}

Status atomic_file_open(const char *path, AtomicFile *file, Error *err) {
  *file = (AtomicFile){.descriptor = -1};
  if (!*path) return error_set(err, STATUS_USAGE, "the name of the file to write is empty");
  struct stat info, link;
  bool exists = stat(path, &info) == 0;
  if (!exists && errno != ENOENT) return system_error(err, STATUS_FAILED, path, "write");
  bool is_link = lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
  if (is_link && !exists) return error_set(err, STATUS_FAILED, "%s is a symbolic link to nothing", path);
  if (is_link && S_ISREG(info.st_mode)) { /* replace what it points to, not the link */
    if (!(file->path = realpath(path, NULL)))
      return system_error(err, STATUS_FAILED, path, "follow the link");
  } else if (!(file->path = copy_string(path, err))) {
    return STATUS_FAILED;
  }
  Status status = open_target(file, exists ? &info : NULL, err);
  if (status != STATUS_OK) atomic_file_abort(file);
  return status;
}

Status atomic_file_hide(AtomicFile *file, Error *err) {
  if (fchmod(file->descriptor, 0600) == 0) return STATUS_OK;
  return system_error(err, STATUS_FAILED, file->path, "set permissions");
}

bool atomic_file_is_new(const AtomicFile *file) {
  return file->temporary || file->unnamed;
}

Status atomic_file_write(AtomicFile *file, const void *bytes, size_t size, Error *err) {
  return descriptor_write(file->descriptor, file->path, bytes, size, err);
}

/* Makes the new name durable. Failures are ignored: the file is complete and in place by now, and some file
 * systems cannot sync a directory. */
static void sync_directory(const char *path) {
  char *directory = path_directory(path, NULL);
  int descriptor = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
  free(directory);
}

Status atomic_file_sync(AtomicFile *file, Error *err) {
  if (!atomic_file_is_new(file) || file->fleeting || fsync(file->descriptor) == 0) return STATUS_OK;
  return system_error(err, STATUS_FAILED, file->path, "write to disk");
}

/* Closes the written file: close() reports what a network file system could not store, so no file gets its
 * name before it is closed. Every close() of a descriptor reports this, even if a duplicate stays open. So an
 * unnamed file keeps a duplicate, by which it is linked later. */
static Status close_written(AtomicFile *file, Error *err) {
  const int descriptor = file->descriptor;
  int kept = -1;
  if (file->unnamed && (kept = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) < 0)
    return system_error(err, STATUS_FAILED, file->path, "write");
  file->descriptor = kept;
  if (close(descriptor) == 0 || errno == EINTR) return STATUS_OK; /* EINTR leaves it closed on Linux */
  return system_error(err, STATUS_FAILED, file->path, "write");
}

/* Renames a file from its temporary name to the target's. If `replaces` is false and the file system does not
 * know RENAME_NOREPLACE (NFS), links the file under the new name and removes the temporary name. */
static bool rename_temporary(AtomicFile *file, bool replaces) {
  if (replaces && rename(file->temporary, file->path) != 0) return false;
  if (!replaces && renameat2(AT_FDCWD, file->temporary, AT_FDCWD, file->path, RENAME_NOREPLACE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) return false;
    if (link(file->temporary, file->path) != 0) return false;
    unlink(file->temporary);
  }
  free(file->temporary);
  file->temporary = NULL;
  return true;
}

/* Gives a complete file the target's name; *placed is false if the name is taken and `replaces` is false.
 *
 * An unnamed file is linked directly under the final name. linkat() replaces nothing: to replace a file, the
 * new one is linked under a temporary name, which rename() changes. A process that is killed between these
 * two calls leaves the complete file under the temporary name, so nothing slow may come between them. */
static Status take_final_name(AtomicFile *file, bool replaces, bool *placed, Error *err) {
  const bool linked = file->unnamed && link_unnamed(file, file->path);
  if (file->unnamed) { /* the link failed */
    *placed = replaces || errno != EEXIST;
    if (!*placed) return STATUS_OK;
    if (errno != EEXIST) return system_error(err, STATUS_FAILED, file->path, "write there");
    TRY(take_temporary_name(file, 0, err));
  }
  if (!linked && !rename_temporary(file, replaces)) {
    *placed = replaces || errno != EEXIST;
    if (!*placed) return STATUS_OK;
    return error_set(err, STATUS_FAILED, "%s: cannot rename %s to it: %s", file->path, file->temporary,
                     strerror(errno));
  }
  if (!file->fleeting) sync_directory(file->path);
  return STATUS_OK;
}

static Status commit(AtomicFile *file, bool replaces, bool *placed, Error *err) {
  *placed = true;
  const bool is_new = atomic_file_is_new(file);
  Status status = atomic_file_sync(file, err);
  if (status == STATUS_OK) status = close_written(file, err);
  if (status == STATUS_OK && is_new) status = take_final_name(file, replaces, placed, err);
  atomic_file_abort(file); /* releases what is left: only the path if the file has its final name */
  return status;
}

Status atomic_file_commit(AtomicFile *file, Error *err) {
  bool placed;
  return commit(file, true, &placed, err);
}

Status atomic_file_place(AtomicFile *file, bool *placed, Error *err) {
  return commit(file, false, placed, err);
}

void atomic_file_abort(AtomicFile *file) {
  if (!file->path) return;
  if (file->descriptor >= 0) close(file->descriptor);
  if (file->temporary) unlink(file->temporary);
  free(file->temporary);
  free(file->path);
  *file = (AtomicFile){.descriptor = -1};
}

/* --- formats */

const char content_format_gguf[] = "a GGUF file", content_format_utf16[] = "UTF-16 text";

/* A format is recognised by `size` bytes at offset `at` and, unless `then` is NULL, four bytes at then_at. */
static const struct {
  size_t at, size;
  const char *bytes;
  size_t then_at;
  const char *then; /* NULL: none */
  const char *kind;
} kinds[] = {
    {0, 4, "GGUF", 0, NULL, content_format_gguf},
    {0, 4, "\x89PNG", 0, NULL, "a PNG image"},
    {0, 3, "\xff\xd8\xff", 0, NULL, "a JPEG image"},
    {0, 6, "GIF89a", 0, NULL, "a GIF image"},
    {0, 6, "GIF87a", 0, NULL, "a GIF image"},
    {0, 4, "RIFF", 8, "WEBP", "a WebP image"},
    {0, 4, "RIFF", 8, "WAVE", "a sound (WAV)"},
    {0, 4, "RIFF", 8, "AVI ", "a film (AVI)"},
    {0, 4, "II*\0", 0, NULL, "a TIFF image"},
    {0, 4, "MM\0*", 0, NULL, "a TIFF image"},
    {4, 4, "ftyp", 0, NULL, "a sound, an image or a film (MP4)"},
    {0, 3, "ID3", 0, NULL, "a sound (MP3)"},
    {0, 4, "fLaC", 0, NULL, "a sound (FLAC)"},
    {0, 4, "OggS", 0, NULL, "a sound (Ogg)"},
    {0, 5, "%PDF-", 0, NULL, "a PDF"},
    {0, 4, "PK\3\4", 0, NULL, "a zip archive (as docx, odt and epub are)"},
    {0, 2, "\x1f\x8b", 0, NULL, "compressed by gzip"},
    {0, 4, "\x28\xb5\x2f\xfd", 0, NULL, "compressed by zstd"},
    {0, 6,
     "\xfd"
     "7zXZ",
     0, NULL, "compressed by xz"},
    {0, 6, "7z\xbc\xaf\x27\x1c", 0, NULL, "a 7z archive"},
    {0, 4,
     "\x7f"
     "ELF",
     0, NULL, "a program"},
    {0, 6, "\x93NUMPY", 0, NULL, "a NumPy array"},
    {5, 5, "\0\0\0{\"", 0, NULL, "a safetensors file"},
    {0, 2, "\xff\xfe", 0, NULL, content_format_utf16},
    {0, 2, "\xfe\xff", 0, NULL, content_format_utf16},
};

/* True if among the first eight bytes exactly those at `first`, `first` + 2, ... are 0: UTF-16 without a byte
 * order mark. */
static bool is_utf16(const unsigned char *bytes, size_t size, size_t first) {
  size_t i = 0;
  while (i < size && i < 8 && (bytes[i] == 0) == (i % 2 == first)) i++;
  return i == 8;
}

const char *content_format(const void *bytes, size_t size) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const char *then = kinds[i].then;
    if (size < kinds[i].at + kinds[i].size || (then && size < kinds[i].then_at + 4)) continue;
    if (memcmp((const char *)bytes + kinds[i].at, kinds[i].bytes, kinds[i].size) != 0) continue;
    if (!then || memcmp((const char *)bytes + kinds[i].then_at, then, 4) == 0) return kinds[i].kind;
  }
  return is_utf16(bytes, size, 0) || is_utf16(bytes, size, 1) ? content_format_utf16 : NULL;
}

Status content_expect_text(const char *name, const void *bytes, size_t size, bool may_have_nul,
                           Status refused, Error *err) {
  const char *kind = content_format(bytes, size);
  if (!kind) return STATUS_OK;
  const size_t looked_at = size < 1 << 16 ? size : 1 << 16, valid = utf8_valid_prefix(bytes, looked_at);
  const bool is_text = valid + 3 >= looked_at && (valid == looked_at || looked_at < size) &&
                       (may_have_nul || !memchr(bytes, 0, looked_at));
  if (is_text && (size < 5 || memcmp(bytes, "%PDF-", 5) != 0)) return STATUS_OK;
  if (kind == content_format_utf16)
    return error_set(err, refused, "%s is %s, expected UTF-8 (iconv -f utf-16 -t utf-8 converts it)", name,
                     kind);
  return error_set(err, refused, "%s is %s, expected text", name, kind);
}

Status content_expect_no_pointer(const char *name, const void *bytes, size_t size, Error *err) {
  static const char lfs[] = "version https://git-lfs";
  if (size < sizeof lfs - 1 || memcmp(bytes, lfs, sizeof lfs - 1) != 0) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "%s is a Git LFS pointer, not the file itself; `git lfs pull` fetches it", name);
}
