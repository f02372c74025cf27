/* weight_files.h - the .safetensors files of a directory as one set of named tensors: model.safetensors, or
 * the shards that model.safetensors.index.json names. */
#ifndef AUK_MODEL_WEIGHT_FILES_H
#define AUK_MODEL_WEIGHT_FILES_H

#include "model/safetensors.h"

/* One line of the index's weight_map. */
typedef struct {
  const char *name; /* of the tensor, in the shard's names */
  StoredTensor *tensor;
} WeightEntry;

typedef struct {
  Safetensors **shards; /* [n_shards], each allocated by itself so that it never moves */
  size_t n_shards;
  char *path;           /* of model.safetensors or of the index: what messages about missing tensors name */
  WeightEntry *entries; /* [n_entries] by ascending name; NULL where there is no index */
  size_t n_entries;
} WeightFiles;

/* Opens what is there. A directory without safetensors is refused with what to do about what it has instead.
 * Release with weight_files_close(), also after a failure. */
Status weight_files_open(const char *directory, WeightFiles *files, Error *err);
void weight_files_close(WeightFiles *files);

/* A directory without a config.json: refuses it with what to do about what it has instead, where its files'
 * names tell what that is. */
Status weight_files_refuse_without_config(const char *directory, Error *err);

StoredTensor *weight_files_find(const WeightFiles *files, const char *name); /* NULL: there is none */

#endif
