/* companions.h - the files that a packed file needs beside it, copied there: config.json, the tokenizer and
 * all else of model_companions[]. They appear with it or not at all. */
#ifndef AUK_COMMANDS_MODELS_COMPANIONS_H
#define AUK_COMMANDS_MODELS_COMPANIONS_H

#include <sys/types.h>

#include "base/file.h"
#include "model/model.h"

typedef struct {
  char *path; /* NULL: none was put there */
  dev_t device;
  ino_t inode;
} PlacedFile;

typedef struct {
  AtomicFile files[N_MODEL_COMPANIONS];  /* what is not to be copied is zeroed */
  PlacedFile placed[N_MODEL_COMPANIONS]; /* by companions_commit() */
} Companions;                            /* starts zeroed */

/* Copies the model's companions into the directory of `output`, but for companions_commit(). Those that are
 * there already stay: the same bytes are fine, and other bytes refuse the packing (STATUS_USAGE), as the file
 * would be run with another model's. One that the model does not have is told on standard error. */
Status companions_copy(const Model *model, const char *output, Companions *copies, Error *err);
/* Puts the copies in place. Where another process has put a file there since companions_copy(), that one
 * stays, and other bytes refuse the packing as above. */
Status companions_commit(const Model *model, Companions *copies, Error *err);
/* Keeps what is in place; what is not, is gone. */
void companions_release(Companions *copies);
/* Removes also what companions_commit() has put in place, as far as it is still there. */
void companions_undo(Companions *copies);

/* Appends the names of those that the model has, with commas between them. */
Status companions_list(const Model *model, Buffer *names, Error *err);

#endif
