/* checkpoints.h - finds checkpoints below a directory and in the Hugging Face cache. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"
#include "commands/names.h"

typedef struct {
  char *name; /* the name for -m: a Hugging Face name, or the path */
  char *path;
  bool from_hub, is_default; /* is_default: the model that commands take without -m */
} Checkpoint;

typedef struct {
  /* [count] First the checkpoints of the cache by name, then those of each directory by path. The default
   * comes last if it is in neither. */
  Checkpoint *items;
  size_t count, capacity;
  struct {
    dev_t device;
    ino_t inode;
  } * seen; /* [n_seen] visited directories: none is visited twice, whatever links exist */
  size_t n_seen, seen_capacity;
  Names unreadable; /* "PATH: why" for unreadable directories */
  bool cut;         /* the search hit CHECKPOINTS_MAX_DEPTH levels or CHECKPOINTS_MAX_DIRECTORIES in total */
} Checkpoints;      /* starts zeroed */

#define CHECKPOINTS_HERE "models" /* the default folder, below the working directory */
enum { CHECKPOINTS_MAX_DEPTH = 12, CHECKPOINTS_MAX_DIRECTORIES = 10000 };

Status checkpoints_add_hub(Checkpoints *list, Error *err);

/* Adds `path` if it is a checkpoint, else the checkpoints below it. A checkpoint is a packed file, or a
 * directory with a config.json and any kind of weight file; such a directory is not searched further. Skips
 * dot names and dangling links, notes unreadable directories. STATUS_FAILED if `path` itself cannot be
 * read. */
Status checkpoints_add_below(Checkpoints *list, const char *path, Error *err);

/* Marks the checkpoint at `path` as the default. Appends it as `name` if it is not in the list. Does nothing
 * if `path` does not exist. */
Status checkpoints_mark_default(Checkpoints *list, const char *name, const char *path, Error *err);

/* Adds the checkpoints that -m knows by name: in the cache, and below ./models if that exists. */
Status checkpoints_add_known(Checkpoints *list, Error *err);

void checkpoints_release(Checkpoints *list);

enum { CHECKPOINTS_WEIGHT_RANKS = 4 };
/* Ranks a checkpoint's files by name: 0 is the preferred form of weights, higher ranks are other forms of the
 * same weights, -1 is not a weight file. */
int checkpoints_weight_rank(const char *name);
