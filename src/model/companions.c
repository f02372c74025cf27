/* companions.c - the files beside a checkpoint's weights, and whether a file belongs to a checkpoint.
 *
 * Called by: commands (pack, and every command that writes a file).   Calls: base/file.h.
 * The names are those of config.c, model.c (tokenizer.json) and tokenizer/chat_open.c. */
#include <stdlib.h>
#include <sys/stat.h>

#include "model/loaders.h"

const char *const model_companions[N_MODEL_COMPANIONS] = {
    "config.json",          "generation_config.json",  "quant_config.json",
    "quantize_config.json", "tokenizer.json",          "tokenizer_config.json",
    "chat_template.jinja",  "special_tokens_map.json", "chat_template.json",
};

const char *model_path(const Model *model) {
  return model->files->path;
}

char *model_directory(const Model *model, Error *err) {
  const char *path = model->files->path;
  return model->layout == LAYOUT_AK48 ? path_directory(path, err) : path_join("", path, err);
}

typedef struct {
  uint64_t device, inode;
} FileId;

static bool has_id(const char *path, const FileId *id) {
  struct stat info;
  return path && stat(path, &info) == 0 && info.st_dev == id->device && info.st_ino == id->inode;
}

/* Compares the identity of the mapped files: their paths may name other files by now. */
static bool is_weights(const ModelFiles *files, const FileId *id) {
  const FileStamp *stamp = &files->packed.stamp;
  if (files->packed.path && stamp->device == id->device && stamp->inode == id->inode) return true;
  for (size_t i = 0; i < files->weights.n_shards; i++) {
    stamp = &files->weights.shards[i]->file.stamp;
    if (stamp->device == id->device && stamp->inode == id->inode) return true;
  }
  return has_id(files->weights.path, id); /* the index */
}

Status model_has_file(const Model *model, uint64_t device, uint64_t inode, bool *has, Error *err) {
  const FileId id = {device, inode};
  *has = is_weights(model->files, &id) || has_id(model->tokenizer_path, &id);
  char *directory = model_directory(model, err);
  Status status = directory ? STATUS_OK : STATUS_FAILED;
  for (int i = 0; i < N_MODEL_COMPANIONS && status == STATUS_OK && !*has; i++) {
    char *path = path_join(directory, model_companions[i], err);
    status = path ? STATUS_OK : STATUS_FAILED;
    *has = has_id(path, &id);
    free(path);
  }
  free(directory);
  return status;
}
