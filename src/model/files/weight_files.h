/* weight_files.h - all tensors of a directory by name: those of model.safetensors, or of the shards that
 * model.safetensors.index.json names. */
#pragma once

#include "model/files/safetensors.h"

typedef struct {
  Safetensors **shards; /* [n_shards], each allocated separately */
  size_t n_shards;
  char *path;             /* path of model.safetensors or the index, for messages about missing tensors */
  StoredTensor **indexed; /* [n_indexed] tensors of the index's weight_map by ascending name, or NULL */
  size_t n_indexed;
} WeightFiles;

/* Opens model.safetensors, else the index and its shards. Without either, the refusal advises about the other
 * formats in the directory. Release with weight_files_close(), also after a failure. */
Status weight_files_open(const char *directory, WeightFiles *files, Error *err);
void weight_files_close(WeightFiles *files);

/* Refuses a directory without weights; if its files' names show another format, advises about that format.
 * With without_config there is no config.json either, and only formats whose advice explains that are
 * refused. */
Status weight_files_refuse(const char *directory, bool without_config, Error *err);

StoredTensor *weight_files_find(const WeightFiles *files, const char *name); /* or NULL */
