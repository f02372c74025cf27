/* model_flags.h - the model that a command's flags name: where it lies, opened, and what belongs to it.
 *
 * Environment: AUK_MODEL is the model where no flag names one. */
#ifndef AUK_COMMANDS_MODEL_FLAGS_H
#define AUK_COMMANDS_MODEL_FLAGS_H

#include "base/status.h"
#include "commands/flags.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* -m, --rope-theta, --norm-eps, --tokenizer. Zero-initialise it. */
typedef struct {
  const char *path;
  ModelOverrides overrides;
} ModelFlags;
extern const Flag model_flags[4];
#define MODEL_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Model", model_flags, Struct, member, ModelFlags)

/* A model that is named without -m; NULL: none is. Two are STATUS_USAGE. */
Status model_flags_take_operand(ModelFlags *values, const char *operand, Error *err);

/* Whether a checkpoint lies at the path, or in the Hugging Face cache under the name. */
bool model_is_there(const char *name);

/* Where the model lies that the flags name, else the environment: the path itself, or the place in the
 * Hugging Face cache that the name stands for (hub.h). free() it; NULL after a failure. STATUS_USAGE where
 * none is named. */
Status model_flags_path(const ModelFlags *values, char **path, Error *err);
/* Refuses such a path where nothing is there, saying where the name was looked for, as model_flags_open()
 * does. */
Status model_flags_check(const ModelFlags *values, const char *path, Error *err);
Status model_flags_open(const ModelFlags *values, Model **model, Error *err); /* model_close() it */
/* The same for commands that compute: refused where model_check_known() does, and where Qwen3's rope_theta or
 * epsilon is assumed, one line on standard error says so. */
Status model_flags_open_known(const ModelFlags *values, Model **model, Error *err);

/* The model's name in results, in new memory; `path` is model_flags_path()'s. It is the given name in the
 * Hugging Face cache, else the last part of the path, without the folders above it. */
Status model_flags_name(const ModelFlags *values, const char *path, char **name, Error *err);

/* The tokenizer that belongs to an open model, refused with what to do where it has none. */
Status model_tokenizer_check(const Model *model, const char *model_path, Error *err);
Status model_tokenizer_open(const Model *model, const char *model_path, Tokenizer **tokenizer, Error *err);

/* Refuses ids that the model has no embedding for: a tokenizer that makes them belongs to another model
 * (STATUS_MODEL), a person who gives them is told (STATUS_USAGE). */
typedef enum { IDS_ENCODED, IDS_GIVEN } IdSource;
Status ids_check(const Model *model, const int32_t *ids, size_t n, const char *source, IdSource from,
                 Error *err);

#endif
