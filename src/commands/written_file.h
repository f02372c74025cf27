/* written_file.h - a file that a command is about to write, which must be none of those that it reads: they
 * would be lost, and what is mapped of them with them.
 *
 * Files are told apart by device and inode, so that links of both kinds are seen. Each check passes where
 * nothing is at the path yet, and where a pipe, a terminal or a device is. */
#ifndef AUK_COMMANDS_WRITTEN_FILE_H
#define AUK_COMMANDS_WRITTEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/model.h"

typedef struct {
  const char *flag, *path; /* "-o", "answer.txt": for messages */
  bool is_regular;         /* a regular file is there, of this device and inode */
  uint64_t device, inode;
} WrittenFile;

/* A file that a flag names; NULL and "-" are none. To be looked at before it is opened. */
WrittenFile written_file(const char *flag, const char *path);
WrittenFile written_standard_output(void);

/* Refuses (STATUS_USAGE) one that `flag` reads at `path`; "-" is standard input, NULL no file. */
Status written_file_is_not(const WrittenFile *file, const char *flag, const char *path, Error *err);
/* Refuses one that the model is read from (model_has_file()). */
Status written_file_is_not_model(const WrittenFile *file, const Model *model, Error *err);

#endif
