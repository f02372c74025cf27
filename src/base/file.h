/* file.h - files read by mapping, and files written whole or not at all. */
#ifndef AUK_BASE_FILE_H
#define AUK_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/status.h"

/* Which file it is and since when it holds what it holds: writing to it, or putting another in its place,
 * makes another stamp, as far as the file system's clock tells times apart. */
typedef struct {
  uint64_t device, inode, size;
  int64_t changed_ns, status_changed_ns; /* since 1970 */
} FileStamp;

typedef struct {
  char *path;                /* as it was given; for messages */
  const unsigned char *data; /* [size], read-only; NULL for an empty file */
  size_t size;               /* bytes */
  FileStamp stamp;           /* when it was mapped */
} MappedFile;

/* Maps a regular file. Directories, fifos and devices are refused by kind. `refused` is the status of such
 * failures: STATUS_MODEL for parts of a checkpoint, STATUS_FAILED otherwise. */
Status file_map(const char *path, Status refused, MappedFile *file, Error *err);
void file_unmap(MappedFile *file);
/* Whether what is at `path` now has this stamp. */
bool file_has_stamp(const char *path, const FileStamp *stamp);
/* Whether the very file was written to since it had this stamp, so that a mapping of it has other bytes now.
 * A file that was replaced, renamed or removed is none: its mapping stays as it was. */
bool file_was_overwritten(const char *path, const FileStamp *stamp);

/* Appends a whole file, or everything from `stream` (name is then for messages), to a buffer. For texts of
 * people; parts of a checkpoint are mapped. Fifos are fine here, directories are not. More than `limit` bytes
 * are refused (STATUS_USAGE): a device may never end. Input that does not block is waited for. A signal that
 * does not restart reads gives STATUS_INTERRUPTED. */
Status file_read(const char *path, size_t limit, Buffer *out, Error *err);
Status stream_read(FILE *stream, const char *name, size_t limit, Buffer *out, Error *err);
/* One line, without its newline, in place of what `line` held; *found is false where nothing is left. Limit
 * and failures as above. */
Status stream_read_line(FILE *stream, const char *name, size_t limit, Buffer *line, bool *found, Error *err);

bool file_exists(const char *path);   /* something is there, whatever it is, and a link leads to something */
bool file_is_named(const char *path); /* likewise, or a link that leads nowhere: opening it says so */
bool file_is_directory(const char *path);

/* Refuses (STATUS_USAGE) what a read or a write could wait for without end: a fifo, a device. Files and
 * directories pass, and so does what is not there: opening it says the rest. */
Status file_refuse_waiting(const char *path, Error *err);

/* "directory/name" in new memory, NULL with err set when out of memory. */
char *path_join(const char *directory, const char *name, Error *err);
/* The part of `path` before its last component, "." where there is none; likewise. */
char *path_directory(const char *path, Error *err);

/* Writes all of it: after short writes, interruptions by signals, and waiting where the descriptor does not
 * block. A closed pipe gives STATUS_PIPE with an empty message, any other failure STATUS_FAILED naming
 * `name`. */
Status descriptor_write(int descriptor, const char *name, const void *bytes, size_t size, Error *err);

/* A file that appears at `path` complete or not at all: written in its directory without a name (under a
 * temporary one where the file system cannot do that), then fsync and rename. After any failure (and by
 * atomic_file_abort) `path` is untouched and nothing else is there. If `path` is a character device or fifo
 * (/dev/stdout, /dev/full), or the file that standard output or error is redirected to, it is written
 * directly. A symbolic link is followed. Writes are not buffered: hand over large pieces. */
typedef struct {
  char *path;      /* NULL when nothing is open */
  char *temporary; /* the name it has until it is complete; NULL: none yet, or it is written directly */
  bool unnamed;    /* it has no name yet */
  bool fleeting;   /* for the caller to set: losing it with the machine's power is no loss, so no fsync */
  int descriptor;
} AtomicFile;

Status atomic_file_open(const char *path, AtomicFile *file, Error *err);
Status atomic_file_hide(AtomicFile *file, Error *err); /* its mode will be 0600, whatever the umask is */
/* Whether a new file will be at `path`; false: what is there (a device, a fifo, the file of a redirection) is
 * written to. */
bool atomic_file_is_new(const AtomicFile *file);
Status atomic_file_write(AtomicFile *file, const void *bytes, size_t size, Error *err);
/* Writes what there is to the disk, so that a commit has only the name left to give. */
Status atomic_file_sync(AtomicFile *file, Error *err);
Status atomic_file_commit(AtomicFile *file, Error *err); /* releases the file, also on failure */
/* The same for a new file, but nothing is replaced: *placed is false where something has the name already. */
Status atomic_file_place(AtomicFile *file, bool *placed, Error *err);
void atomic_file_abort(AtomicFile *file); /* nothing happens on a zeroed or committed one */

#endif
