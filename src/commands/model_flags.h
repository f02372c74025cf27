/* model_flags.h - the model that a command's flags name: its path, opening it, its tokenizer. Environment:
 * AUK_MODEL names the model if no flag does. */
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

/* Takes a model that is named without -m (NULL: none). Two models are STATUS_USAGE. */
Status model_flags_take_operand(ModelFlags *values, const char *operand, Error *err);

/* Whether a checkpoint is at the path, or in the Hugging Face cache under the name. */
bool model_is_there(const char *name);

/* The path of the model that the flags, else the environment, name: the name itself if it is a path, or its
 * place in the Hugging Face cache (hub.h). The caller frees it; NULL after a failure. STATUS_USAGE if no
 * model is named. */
Status model_flags_path(const ModelFlags *values, char **path, Error *err);
/* Refuses a path with nothing there, and says where the name was looked for, as model_flags_open() does. */
Status model_flags_check(const ModelFlags *values, const char *path, Error *err);
Status model_flags_open(const ModelFlags *values, Model **model, Error *err); /* model_close() it */
/* The same for commands that compute: also refuses what model_check_known() refuses, and prints a note if
 * Qwen3's rope_theta or epsilon is assumed. */
Status model_flags_open_known(const ModelFlags *values, Model **model, Error *err);

/* The model's name in results, in new memory; `path` is model_flags_path()'s. It is the name in the Hugging
 * Face cache, else the last part of the path. */
Status model_flags_name(const ModelFlags *values, const char *path, char **name, Error *err);

/* Opens the tokenizer of an open model, or refuses with advice if it has none. */
Status model_tokenizer_check(const Model *model, const char *model_path, Error *err);
Status model_tokenizer_open(const Model *model, const char *model_path, Tokenizer **tokenizer, Error *err);

/* Refuses ids without an embedding in the model. Ids from a tokenizer are STATUS_MODEL, as it belongs to
 * another model; ids from the user are STATUS_USAGE. */
typedef enum { IDS_ENCODED, IDS_GIVEN } IdSource;
Status ids_check(const Model *model, const int32_t *ids, size_t n, const char *source, IdSource from,
                 Error *err);

#endif
