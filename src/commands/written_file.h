/* written_file.h - checks that a file about to be written is none that the command reads: writing it would
 * destroy the input and its mappings. Files are compared by device and inode, so links are recognised. Each
 * check passes if the path does not exist, or is a pipe, terminal or device. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/model.h"

typedef struct {
  const char *flag, *path; /* "-o", "answer.txt", for messages */
  bool is_regular;         /* a regular file exists, with this device and inode */
  uint64_t device, inode;
} WrittenFile;

/* The file that a flag names, examined before it is opened; NULL and "-" are no file. */
WrittenFile written_file(const char *flag, const char *path);
WrittenFile written_standard_output(void);

/* Refuses (STATUS_USAGE) if `file` is what `flag` reads at `path`; "-" is standard input, NULL no file. */
Status written_file_is_not(const WrittenFile *file, const char *flag, const char *path, Error *err);
/* Refuses if `file` is one of the model's files (model_has_file()). */
Status written_file_is_not_model(const WrittenFile *file, const Model *model, Error *err);
