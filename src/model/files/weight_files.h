/* weight_files.h - all tensors of a directory by name: those of model.safetensors, or of the shards that
 * model.safetensors.index.json names. */
#ifndef AUK_MODEL_FILES_WEIGHT_FILES_H
#define AUK_MODEL_FILES_WEIGHT_FILES_H

#include "model/files/safetensors.h"

typedef struct {
  Safetensors **shards; /* [n_shards], each allocated separately so that it never moves */
  size_t n_shards;
  char *path;             /* of model.safetensors or of the index, for messages about missing tensors */
  StoredTensor **indexed; /* [n_indexed] tensors of the index's weight_map by ascending name, or NULL */
  size_t n_indexed;
} WeightFiles;

/* Opens model.safetensors, else the index and its shards. Without either, the refusal advises about the other
 * formats in the directory. Release with weight_files_close(), also after a failure. */
Status weight_files_open(const char *directory, WeightFiles *files, Error *err);
void weight_files_close(WeightFiles *files);

/* For a directory without config.json: refuses it with advice if its files' names show another format. */
Status weight_files_refuse_without_config(const char *directory, Error *err);

StoredTensor *weight_files_find(const WeightFiles *files, const char *name); /* or NULL */

#endif
