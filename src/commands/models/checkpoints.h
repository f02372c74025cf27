/* checkpoints.h - what looks like a checkpoint below a directory or in the Hugging Face cache. */
#ifndef AUK_COMMANDS_MODELS_CHECKPOINTS_H
#define AUK_COMMANDS_MODELS_CHECKPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"
#include "commands/models/names.h"

typedef struct {
  char *name; /* what -m takes: a name of the site, or the path */
  char *path;
  bool from_hub, is_default; /* is_default: AUK_MODEL names it */
} Checkpoint;

typedef struct {
  Checkpoint *items; /* [count] the cache's by name, then each directory's by path */
  size_t count, capacity;
  struct {
    dev_t device;
    ino_t inode;
  } * seen; /* [n_seen] directories that were looked at: links lead to none of them twice */
  size_t n_seen, seen_capacity;
  Names unreadable; /* "PATH: why" of directories that could not be looked into */
  bool cut; /* a limit ended the search: CHECKPOINTS_MAX_DEPTH levels, CHECKPOINTS_MAX_DIRECTORIES in all */
} Checkpoints; /* starts zeroed */

#define CHECKPOINTS_HERE "models" /* the folder that is looked into where none is named */
enum { CHECKPOINTS_MAX_DEPTH = 12, CHECKPOINTS_MAX_DIRECTORIES = 10000 };

/* Those in the Hugging Face cache. */
Status checkpoints_add_hub(Checkpoints *list, Error *err);

/* Those below a directory, itself included, or the one file: directories with a config.json and a file of
 * weights, of whatever kind, and packed files. Names beginning with a dot and links that lead nowhere are
 * passed over; directories that cannot be read are noted. STATUS_FAILED where `path` itself cannot be. */
Status checkpoints_add_below(Checkpoints *list, const char *path, Error *err);

/* Marks the checkpoint that AUK_MODEL names as the default, and appends it where the list lacks it; does
 * nothing where it is not here. `path` is where it lies (hub_find()). */
Status checkpoints_mark_default(Checkpoints *list, const char *name, const char *path, Error *err);

/* Adds the checkpoints that -m knows by name: those in the cache, and those below ./models where that is. */
Status checkpoints_add_known(Checkpoints *list, Error *err);

void checkpoints_release(Checkpoints *list);

/* Which of a checkpoint's files are weights, by their names: 0 are the best, others beside them the same in
 * another form; -1: no weights. */
enum { CHECKPOINTS_WEIGHT_RANKS = 4 };
int checkpoints_weight_rank(const char *name);

#endif
