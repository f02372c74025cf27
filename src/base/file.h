/* file.h - files that are mapped or read, and files written atomically. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <dirent.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/owned.h"
#include "base/status.h"

/* For OWNED: an open stream or directory, or NULL; a descriptor, or -1. */
RELEASE_BY(stream_release, FILE, fclose)
RELEASE_BY(listing_release, DIR, closedir)
static inline void descriptor_release(const int *descriptor) {
  if (*descriptor >= 0) close(*descriptor);
}

/* Identity and time of change of a file. Writing to it, or replacing it, gives another stamp, as far as the
 * resolution of the file system's clock goes. */
typedef struct {
  uint64_t device, inode, size;
  int64_t changed_ns, status_changed_ns; /* since 1970 */
} FileStamp;

typedef struct {
  char *path;                /* as given to file_map(); for messages */
  const unsigned char *data; /* [size], read-only; NULL for an empty file */
  size_t size;               /* bytes */
  FileStamp stamp;           /* of the file, at the time of mapping */
} MappedFile;

/* Maps a regular file; the message for anything else says what kind of file it is. `refused` is the status
 * of failures: STATUS_MODEL for parts of a checkpoint, STATUS_FAILED otherwise. */
Status file_map(const char *path, Status refused, MappedFile *file, Error *err);
void file_unmap(MappedFile *file);
/* Drops mapped pages from resident memory: those that lie wholly in the `bytes` bytes at `data`. Reading
 * brings them back. */
void file_drop_pages(const void *data, size_t bytes);
/* The stamp of the file at `path`. */
Status file_stamp(const char *path, FileStamp *stamp, Error *err);
/* Appends a stamp as text: two stamps are equal exactly if their texts are. */
Status file_stamp_write(const FileStamp *stamp, Buffer *out, Error *err);
/* True if the file at `path` now has this stamp. */
bool file_has_stamp(const char *path, const FileStamp *stamp);
/* True if the file was written to in place since it had this stamp: a mapping of it now holds other bytes.
 * False for a file that was replaced, renamed or removed: its mapping stays as it was. */
bool file_was_overwritten(const char *path, const FileStamp *stamp);

/* Appends a whole file, or the rest of `stream` (`name` is for messages), to a buffer. Meant for texts: parts
 * of a checkpoint are mapped. Reads fifos, and refuses directories. Refuses more than `limit` bytes
 * (STATUS_USAGE): a device may never end. Waits for input in non-blocking mode. A signal whose handler was
 * installed without SA_RESTART gives STATUS_INTERRUPTED. */
Status file_read(const char *path, size_t limit, Buffer *out, Error *err);
Status stream_read(FILE *stream, const char *name, size_t limit, Buffer *out, Error *err);
/* Replaces `line` by the next line without its newline; *found is false at the end of the stream. `limit` is
 * for the line; failures are those of stream_read(). */
Status stream_read_line(FILE *stream, const char *name, size_t limit, Buffer *line, bool *found, Error *err);

/* Refuses (STATUS_USAGE) a URL where a file is meant, if no file has this name. file_read() does this too. */
Status file_refuse_url(const char *path, Error *err);

bool file_exists(const char *path);   /* of any kind; false for a link that leads nowhere */
bool file_is_named(const char *path); /* of any kind, also a link that leads nowhere: opening it fails */
bool file_is_directory(const char *path);
/* The kind of the file with this name, for messages: "a fifo", "a symbolic link to nothing"; NULL: no such
 * file. */
const char *file_kind_of(const char *path);

/* Refuses (STATUS_USAGE) fifos, devices and sockets, on which a read or a write could wait without end.
 * Files, directories and missing files pass: opening them reports any other failure. */
Status file_refuse_waiting(const char *path, Error *err);

bool name_ends_with(const char *name, const char *end);

/* "directory/name" in new memory, NULL with err set when out of memory. */
char *path_join(const char *directory, const char *name, Error *err);
/* The part of `path` before its last component, or ".", likewise in new memory. */
char *path_directory(const char *path, Error *err);

/* Writes all bytes, despite short writes, signals and non-blocking mode. A closed pipe gives STATUS_PIPE with
 * an empty message. Any other failure gives STATUS_FAILED; its message has `name`. */
Status descriptor_write(int descriptor, const char *name, const void *bytes, size_t size, Error *err);

/* A file that appears at `path` complete or not at all: it is written without a name in its directory (if
 * O_TMPFILE or /proc is missing, under a temporary name), then synced and named. After a failure or
 * atomic_file_abort() `path` is untouched and no temporary file is left. A killed process leaves
 * `.auk-PID-N.tmp` in two cases: an incomplete file if O_TMPFILE or /proc is missing; the complete file if
 * the process was replacing an older one and died between linkat() and rename(). A character device or fifo
 * (/dev/stdout, /dev/full), or the file that standard output or error is redirected to, is written directly.
 * A symbolic link is followed. Writes are not buffered: hand over large pieces. */
typedef struct {
  char *path;      /* NULL when nothing is open */
  char *temporary; /* the name until the file is complete; NULL: no name yet, or written directly */
  bool unnamed;    /* has no name yet */
  bool fleeting;   /* set by the caller: skip fsync; losing the file in a power failure does no harm */
  int descriptor;
} AtomicFile;

Status atomic_file_open(const char *path, AtomicFile *file, Error *err);
Status atomic_file_hide(AtomicFile *file, Error *err); /* its mode will be 0600, whatever the umask is */
/* True if a new file will be at `path`; false for a device, a fifo or a redirection, written directly. */
bool atomic_file_is_new(const AtomicFile *file);
Status atomic_file_write(AtomicFile *file, const void *bytes, size_t size, Error *err);
/* Syncs the data written so far to the disk. Little more than the naming is then left to
 * atomic_file_commit(). */
Status atomic_file_sync(AtomicFile *file, Error *err);
Status atomic_file_commit(AtomicFile *file, Error *err); /* releases the file, also on failure */
/* Commits without replacing: *placed is false if `path` exists already, and the new file is then dropped. */
Status atomic_file_place(AtomicFile *file, bool *placed, Error *err);
void atomic_file_abort(AtomicFile *file); /* does nothing to a zeroed or committed AtomicFile */

/* The format of a file that begins with bytes[0..size), such as "a PNG image"; NULL: none is recognised. A
 * text may begin like some formats ("ID3", "RIFF"). So call this for a file that should be a model, or has
 * turned out not to be text. content_expect_text() examines a file that may be text. */
const char *content_format(const void *bytes, size_t size);

/* Two results of content_format(), for which callers have advice. */
extern const char content_format_gguf[], content_format_utf16[];
/* Refuses, with status `refused`, a file that has a known format and is no text: its first 64 KiB have
 * invalid UTF-8 or a NUL (unless may_have_nul), or it is a PDF. The message names the format. Broken text of
 * no known format passes: the caller reports where it breaks. */
Status content_expect_text(const char *name, const void *bytes, size_t size, bool may_have_nul,
                           Status refused, Error *err);
/* Refuses (STATUS_MODEL) a Git LFS pointer: what `git clone` leaves in place of a file without git-lfs. */
Status content_expect_no_pointer(const char *name, const void *bytes, size_t size, Error *err);
