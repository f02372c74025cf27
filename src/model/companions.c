/* companions.c - the files beside a checkpoint's weights, and whether a file belongs to a checkpoint.
 *
 * The names are those that config.c, tokenizer/load/declared.c and tokenizer/chat/chat_open.c read, and
 * tokenizer.json. */
#include <stdlib.h>
#include <sys/stat.h>

#include "model/loaders.h"

const char *const model_companions[N_MODEL_COMPANIONS] = {
    "config.json",           "generation_config.json", "quant_config.json",
    "quantize_config.json",  "hf_quant_config.json",   "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja",    "special_tokens_map.json",
    "chat_template.json",    "added_tokens.json",
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

/* True if `id` is that of a mapped file (whose path may name another file by now) or of the index of
 * shards. */
static bool is_weights(const Model *model, const FileId *id) {
  const MappedFile *file;
  for (size_t i = 0; (file = model_file(model, i)); i++)
    if (file->stamp.device == id->device && file->stamp.inode == id->inode) return true;
  return has_id(model->files->weights.path, id);
}

Status model_has_file(const Model *model, uint64_t device, uint64_t inode, bool *has, Error *err) {
  const FileId id = {device, inode};
  *has = is_weights(model, &id) || has_id(model->tokenizer_path, &id);
  OWNED(mem_release) char *directory = model_directory(model, err);
  if (!directory) return STATUS_FAILED;
  for (int i = 0; i < N_MODEL_COMPANIONS && !*has; i++) {
    OWNED(mem_release) char *path = path_join(directory, model_companions[i], err);
    if (!path) return STATUS_FAILED;
    *has = has_id(path, &id);
  }
  return STATUS_OK;
}

/* --- the tokenizer */

Status find_tokenizer(Model *model, const char *directory, const ModelOverrides *overrides, Error *err) {
  char *path = overrides->tokenizer ? path_join("", overrides->tokenizer, err)
                                    : path_join(directory, "tokenizer.json", err);
  if (!path) return STATUS_FAILED;
  if (overrides->tokenizer || file_is_named(path))
    model->tokenizer_path = path;
  else
    free(path);
  return STATUS_OK;
}

#define CONVERT                                                                                              \
  "make it once with:  python3 -c \"import transformers as t; "                                              \
  "t.AutoTokenizer.from_pretrained('.').save_pretrained('.')\"  or name another with --tokenizer"

/* Tokenizers in other formats, and what to do about them. */
static const struct {
  const char *name, *what, *advice;
} other_tokenizers[] = {
    {"tokenizer.model", "SentencePiece", CONVERT},
    {"merges.txt", "GPT-2's way to store it", CONVERT},
    {"tiktoken.model", "tiktoken's ranks", "name the same family's tokenizer.json with --tokenizer"},
    {"tekken.json", "Mistral's own", "name one of the same family with --tokenizer"},
};

static Status look_for(const char *directory, const char *name, bool *found, Error *err) {
  char *path = path_join(directory, name, err);
  if (!path) return STATUS_FAILED;
  *found = file_is_named(path);
  free(path);
  return STATUS_OK;
}

Status other_tokenizer_refuse(const char *directory, Error *err) {
  bool found;
  TRY(look_for(directory, "tokenizer.json", &found, err));
  for (size_t i = 0; !found && i < sizeof other_tokenizers / sizeof *other_tokenizers; i++) {
    TRY(look_for(directory, other_tokenizers[i].name, &found, err));
    if (found)
      return error_set(err, STATUS_MODEL, "%s has only %s (%s), expected tokenizer.json; %s", directory,
                       other_tokenizers[i].name, other_tokenizers[i].what, other_tokenizers[i].advice);
  }
  return STATUS_OK;
}
