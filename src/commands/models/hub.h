/* hub.h - finds models by their Hugging Face names in the local cache. No network.
 *
 * A name is ORG/NAME or NAME, optionally followed by @REVISION. The cache has huggingface_hub's layout (see
 * its guide "Understand caching"):
 *     HUB/models--ORG--NAME/refs/main                   the commit of "main", 40 hex digits
 *     HUB/models--ORG--NAME/snapshots/COMMIT/FILE       the checkpoint, each file a link into blobs/
 *     HUB/models--ORG--NAME/blobs/HASH(.incomplete)     contents; incomplete downloads
 * HUB is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else
 * $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub: the first whose variable is set. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* A model that runs on most machines, for messages about fetching one. */
#define HUB_EXAMPLE "Qwen/Qwen3-8B-AWQ"

/* True if the text is a name as above, with parts that huggingface.co allows. */
bool hub_is_name(const char *text);

/* HUB in new memory; *path is NULL if the environment names no place. */
Status hub_directory(char **path, Error *err);

/* *path, in new memory: `name` itself if that path exists, else the cached snapshot of the given revision
 * (default: main). Without refs/main it is the newest complete snapshot, or the newest if none is complete.
 * If nothing is found, it is `name` again, for the caller to refuse. NULL after a failure. */
Status hub_find(const char *name, char **path, Error *err);

/* Refuses (STATUS_MODEL) a name that hub_find() did not find, and says where it looked and how to fetch the
 * model. Refuses URLs, too. Accepts any other path that cannot be a name: opening it gives the reason. */
Status hub_check_found(const char *name, const char *path, Error *err);

/* Refuses what hub_check_found() refuses, and an incomplete snapshot, naming the missing file. */
Status hub_check(const char *name, const char *path, Error *err);

/* The name of the model in a directory of HUB, "Qwen/Qwen3-8B-AWQ", and the snapshot that hub_find() would
 * choose, complete or not. Both are in new memory; *path is NULL if the directory has no model. Free both
 * also after a failure. */
Status hub_model(const char *hub, const char *directory, char **name, char **path, Error *err);
