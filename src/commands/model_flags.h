/* model_flags.h - the model that a command's flags name: its path, opening it, its tokenizer. Environment:
 * AUK_MODEL names the model if neither a flag nor the file of settings does. */
#pragma once

#include "base/status.h"
#include "commands/flags.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* -m, --rope-theta, --norm-eps, --tokenizer. Zero-initialise it. */
typedef struct {
  const char *path;
  const char *usual; /* the model of the file of settings; taken if `path` is NULL, before AUK_MODEL */
  ModelOverrides overrides;
} ModelFlags;
extern const Flag model_flags[4];
#define MODEL_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Model", model_flags, Struct, member, ModelFlags)

/* Where a command's model is. */
typedef struct {
  char *given; /* the full name, or the path */
  char *path;  /* the checkpoint: `given`, or the snapshot of this name in the Hugging Face cache (hub.h) */
  char *name;  /* for results: the name in the cache, else the last part of the path, without /config.json */
} ModelPlace;  /* starts zeroed */

/* Finds the place of the model. The flags name the model, else the settings, else AUK_MODEL; it need not
 * exist. STATUS_USAGE if none is named. Release the place also after a failure. */
Status model_place_find(const ModelFlags *values, ModelPlace *place, Error *err);
void model_place_release(ModelPlace *place);
/* A name of the model for any working directory: the name in the cache, else the absolute path. In new
 * memory. */
char *model_place_lasting(const ModelPlace *place, Error *err);
/* Refuses a path where nothing exists, and says where the name was looked for. Also refuses a folder that is
 * no checkpoint but has checkpoints directly below it. */
Status model_place_check(const ModelPlace *place, Error *err);
/* Opens the model. Refuses what model_place_check() refuses, and an incomplete download. model_close() it. */
Status model_place_open(const ModelPlace *place, const ModelFlags *values, Model **model, Error *err);
/* model_place_open() for commands that compute: also refuses what model_check_known() refuses, and prints a
 * note if Qwen3's rope_theta or epsilon is assumed. */
Status model_place_open_known(const ModelPlace *place, const ModelFlags *values, Model **model, Error *err);

/* True if the two names lead to the same model, perhaps by a link or another spelling. */
bool model_is_same(const char *one, const char *other);
/* True if `name` is a directory, a packed file, or the name of a snapshot in the Hugging Face cache. */
bool model_is_there(const char *name);

/* model_tokenizer_check() refuses, with advice, an open model without a tokenizer.json.
 * model_tokenizer_open() does the same, and opens the tokenizer. */
Status model_tokenizer_check(const Model *model, const char *model_path, Error *err);
Status model_tokenizer_open(const Model *model, const char *model_path, Tokenizer **tokenizer, Error *err);

/* Opens the tokenizer that the flags name, without a model: --tokenizer, the tokenizer.json in the model's
 * directory or beside its packed file, or the path itself. */
Status tokenizer_place_open(const ModelFlags *values, Tokenizer **tokenizer, Error *err);

typedef enum { IDS_ENCODED, IDS_GIVEN } IdSource;
/* Refuses ids without an embedding in the model. Such ids from a tokenizer are STATUS_MODEL, since the
 * tokenizer is another model's; ids from the user are STATUS_USAGE. */
Status ids_check(const Model *model, const int32_t *ids, size_t n, const char *source, IdSource from,
                 Error *err);
