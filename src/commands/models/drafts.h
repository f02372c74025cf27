/* drafts.h - which checkpoints are drafters, and which models they are for, by their configs alone. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"
#include "base/status.h"
#include "commands/models/checkpoints.h"
#include "model/model.h"

/* True if the directory's config.json is that of a drafter that auk knows; false if it cannot be read. */
bool drafts_is_drafter(const char *path);
/* Reads a drafter's config without its target. Release it with config_release(), also after a failure. */
Status drafts_read(const char *path, ModelConfig *config, Error *err);
/* Adds to `names` the names of the checkpoints in the list that the drafter fits. */
Status drafts_targets(const char *path, const Checkpoints *list, Names *names, Error *err);
/* Appends what the drafter is for: "models of hidden_size 4096 with 151936 tokens and 36 layers". */
Status drafts_describe(const ModelConfig *config, Buffer *out, Error *err);

/* The report of `auk inspect` on a drafter, as lines or as JSON. */
Status drafts_inspect(const char *path, bool json, Buffer *out, Error *err);
