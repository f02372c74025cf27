/* known_names.h - short model names: the last part of a name that `auk models` lists, if it is unique; and
 * suggestions for names that do not exist. */
#pragma once

#include "base/status.h"

/* *name, in new memory: the full name for a last part ("Qwen3-8B-AWQ": "Qwen/Qwen3-8B-AWQ"). It is `text`
 * itself if that is a path or a full name, or if nothing matches. An ambiguous part is refused with a list of
 * the matches (STATUS_USAGE). NULL after a failure. */
Status known_name(const char *text, char **name, Error *err);

/* Refuses (STATUS_MODEL) a folder above checkpoints, and a name that does not exist but resembles another.
 * Ignores ORG/NAME if ORG is no folder here: that model has to be fetched. */
Status known_name_suggest(const char *text, Error *err);
