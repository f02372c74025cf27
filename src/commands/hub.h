/* hub.h - models by the names that Hugging Face's site gives them, found in its local cache. No network.
 *
 * A name is ORG/NAME or ORG/NAME@REVISION. The cache is laid out as huggingface_hub does it:
 *     HUB/models--ORG--NAME/refs/main                 the revision (40 hex digits) that "main" stood for
 *     HUB/models--ORG--NAME/snapshots/REVISION/...    the checkpoint: links into blobs/
 * HUB: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub: the first that the environment sets, as huggingface_hub has it. */
#ifndef AUK_COMMANDS_HUB_H
#define AUK_COMMANDS_HUB_H

#include "base/status.h"

/* Where the model called `name` lies, in new memory: `name` itself where something is there, else the snapshot
 * in the cache. Refused (STATUS_MODEL): a name that is found in neither place, with where it was looked for
 * and how to fetch it; a download that is not complete, with what is missing. */
Status hub_find(const char *name, char **path, Error *err);

#endif
