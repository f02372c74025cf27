/* known_names.h - what -m takes beside paths and whole names: the last part of a name that `auk models`
 * lists, where only one has it; and what a name that is nowhere was probably meant to be. */
#ifndef AUK_COMMANDS_MODELS_KNOWN_NAMES_H
#define AUK_COMMANDS_MODELS_KNOWN_NAMES_H

#include "base/status.h"

/* The whole name that a last part stands for ("Qwen3-8B-AWQ": "Qwen/Qwen3-8B-AWQ"), in new memory; `text`
 * itself where it is a path or a name of its own, or none has it. Several are refused (STATUS_USAGE), with a
 * list of them. NULL after a failure. */
Status known_name(const char *text, char **name, Error *err);

/* Refuses (STATUS_MODEL) what is nowhere, where something is here that was probably meant. A name of another
 * organisation than there are folders is not looked at: it is to be fetched. */
Status known_name_suggest(const char *text, Error *err);

#endif
