/* hub.h - models by the names that Hugging Face's site gives them, found in its local cache. No network.
 *
 * A name is ORG/NAME or NAME, and @REVISION behind it or not. The cache is laid out as huggingface_hub does
 * it (its guide "Understand caching"):
 *     HUB/models--ORG--NAME/refs/main                   the commit that "main" stood for, 40 hex digits
 *     HUB/models--ORG--NAME/snapshots/COMMIT/FILE       the checkpoint, each file a link into blobs/
 *     HUB/models--ORG--NAME/blobs/HASH(.incomplete)     contents; what is still being downloaded
 * HUB is $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub: the first of them that the environment sets. */
#ifndef AUK_COMMANDS_MODELS_HUB_H
#define AUK_COMMANDS_MODELS_HUB_H

#include "base/status.h"

/* A model that most can run, for what says how to fetch one. */
#define HUB_EXAMPLE "Qwen/Qwen3-8B-AWQ"

/* HUB in new memory; NULL in *path where the environment names no place. */
Status hub_directory(char **path, Error *err);

/* Where the model called `name` lies, in new memory: `name` itself where something is there, else the
 * snapshot in the cache: the revision's, main's, or where there is no refs/main the newest complete one.
 * Where it is nowhere, it is `name` too, for what comes then to refuse. NULL after a failure. */
Status hub_find(const char *name, char **path, Error *err);

/* Refuses (STATUS_MODEL) a name that hub_find() found nowhere, with where it was looked for and how to fetch
 * it. A path that could be no name is not looked at. */
Status hub_check_found(const char *name, const char *path, Error *err);

/* Refuses that, and a snapshot that is not completely there: says which file is missing. */
Status hub_check(const char *name, const char *path, Error *err);

typedef struct {
  char *name, *path; /* "Qwen/Qwen3-8B-AWQ" and its snapshot */
} HubModel;
typedef struct {
  HubModel *models; /* [count], by name */
  size_t count, capacity;
  char *directory; /* HUB, or NULL */
  int error;       /* errno where it could not be read, else 0 */
} HubModels;

/* Appends what is in the cache, complete or not, whose snapshot hub_find() would give. Nothing where there is
 * no cache. Release it also after a failure. */
Status hub_list(HubModels *list, Error *err);
void hub_models_release(HubModels *list);

#endif
