/* companions.h - copies the files that a packed file needs (config.json, the tokenizer and the rest of
 * model_companions[]) to its folder. The copies appear together with the packed file or not at all. */
#pragma once

#include <sys/types.h>

#include "base/file.h"
#include "model/model.h"

typedef struct {
  char *path; /* NULL: nothing was placed */
  dev_t device;
  ino_t inode;
} PlacedFile;

typedef struct {
  AtomicFile files[N_MODEL_COMPANIONS];  /* zeroed if not copied */
  PlacedFile placed[N_MODEL_COMPANIONS]; /* set by companions_commit() */
} Companions;                            /* starts zeroed */

/* Prepares copies of the model's companions in the directory of `output`, for companions_commit(). Existing
 * files stay. A file with other bytes is refused (STATUS_USAGE): the packed file would run with another
 * model's files. A companion that the directory has but the model has not is reported on standard error. */
Status companions_copy(const Model *model, const char *output, Companions *copies, Error *err);
/* Moves the copies into place. A file that another process has created there meanwhile stays. If its bytes
 * differ, it is refused as above. */
Status companions_commit(const Model *model, Companions *copies, Error *err);
/* Keeps what is in place and drops the other copies. */
void companions_release(Companions *copies);
/* Removes what companions_commit() has put in place, if it is still there. Then calls
 * companions_release(). */
void companions_undo(Companions *copies);

/* Appends the names of the companions that the model has, separated by commas. */
Status companions_list(const Model *model, Buffer *names, Error *err);
