/* weight_files.c - see weight_files.h.
 *
 * Always true after weight_files_open(): every tensor of the index is in its shard; shards are files of the
 * index's directory. As in transformers, model.safetensors takes precedence over an index. */
#include "model/files/weight_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"

typedef struct {
  const char *directory;
  WeightFiles *files;
  size_t shard_capacity, index_capacity;
  Error *err;
} Opener;

static Status open_shard(Opener *opener, const char *path, Safetensors **out) {
  WeightFiles *files = opener->files;
  TRY(mem_grow(&files->shards, &opener->shard_capacity, files->n_shards + 1, sizeof *files->shards, "shards",
               opener->err));
  Safetensors *shard;
  TRY(NEW(shard, 1, "a shard", opener->err));
  files->shards[files->n_shards++] = shard;
  *out = shard;
  return safetensors_open(path, shard, opener->err);
}

/* The shard of this name, opened at its first use. An index lists thousands of tensors of a shard in a row,
 * so the shard found last is moved to the end, where the search begins. */
static Status shard_named(Opener *opener, const char *name, const char *tensor, Safetensors **out) {
  WeightFiles *files = opener->files;
  if (name[0] == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/'))
    return error_set(opener->err, STATUS_MODEL,
                     "%s: tensor %s is in \"%.200s\", expected the name of a file in the same directory",
                     files->path, tensor, name);
  for (size_t i = files->n_shards; i-- > 0;) {
    const char *path = files->shards[i]->file.path, *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, name) != 0) continue;
    *out = files->shards[i];
    files->shards[i] = files->shards[files->n_shards - 1];
    files->shards[files->n_shards - 1] = *out;
    return STATUS_OK;
  }
  OWNED(mem_release) char *path = path_join(opener->directory, name, opener->err);
  if (!path) return STATUS_FAILED;
  if (!file_is_named(path))
    return error_set(opener->err, STATUS_MODEL, "%s is missing; %s names it for tensor %s", path, INDEX_NAME,
                     tensor);
  return open_shard(opener, path, out);
}

static Status add_entry(Opener *opener, const char *name, const char *shard_name) {
  WeightFiles *files = opener->files;
  Safetensors *shard = NULL;
  TRY(shard_named(opener, shard_name, name, &shard));
  StoredTensor *tensor = safetensors_find(shard, name);
  if (!tensor)
    return error_set(opener->err, STATUS_MODEL, "%s: tensor %s is missing; %s says it is here",
                     shard->file.path, name, INDEX_NAME);
  return APPEND(files->indexed, files->n_indexed, opener->index_capacity, "tensor index", opener->err,
                tensor);
}

static Status read_weight_map(Opener *opener, JsonSpan map) {
  JsonCursor cursor = json_cursor(map);
  char found[64];
  if (!map.text || !json_cursor_enter(&cursor, '{'))
    return error_set(opener->err, STATUS_MODEL, "%s: weight_map is %s, expected an object",
                     opener->files->path, json_cursor_describe(cursor, found));
  OWNED(buffer_release) Buffer name = {0}, shard = {0};
  for (bool first = true; json_cursor_next(&cursor, &first);) {
    bool is_string;
    name.size = shard.size = 0;
    TRY(json_cursor_string(&cursor, &name, &is_string, opener->err));
    TRY(buffer_append(&name, "", 1, opener->err));
    const JsonCursor at = cursor;
    TRY(json_cursor_string(&cursor, &shard, &is_string, opener->err));
    TRY(buffer_append(&shard, "", 1, opener->err));
    if (!is_string || strlen(shard.data) + 1 != shard.size || strlen(name.data) + 1 != name.size)
      return error_set(opener->err, STATUS_MODEL, "%s: tensor %s: its file is %s, expected a plain name",
                       opener->files->path, name.data, json_cursor_describe(at, found));
    TRY(add_entry(opener, name.data, shard.data));
  }
  return STATUS_OK;
}

static int compare_tensors(const void *a, const void *b) {
  return strcmp((*(StoredTensor *const *)a)->name, (*(StoredTensor *const *)b)->name);
}

/* `auk inspect` lists shards by name. */
static int compare_shards(const void *a, const void *b) {
  return strcmp((*(Safetensors *const *)a)->file.path, (*(Safetensors *const *)b)->file.path);
}

static Status open_index(Opener *opener) {
  WeightFiles *files = opener->files;
  OWNED(file_unmap) MappedFile file = {0};
  TRY(file_map(files->path, STATUS_MODEL, &file, opener->err));
  JsonSkip map = {.path = "weight_map"};
  TRY(content_expect_no_pointer(files->path, file.data, file.size, opener->err));
  TRY(json_parse(files->path, STATUS_MODEL, (const char *)file.data, file.size, &map, 1, NULL, opener->err));
  TRY(read_weight_map(opener, map.span));
  if (files->n_indexed > 0) {
    qsort(files->indexed, files->n_indexed, sizeof *files->indexed, compare_tensors);
    qsort(files->shards, files->n_shards, sizeof(Safetensors *), compare_shards);
  }
  return STATUS_OK;
}

/* Files of other formats, in order of precedence, with advice. */
static const struct {
  const char *prefix, *suffix, *advice;
  bool without_config; /* `advice` also explains a missing config.json */
} instead[] = {
    {"pytorch_model", ".bin",
     "a PyTorch pickle, which can run code when it is loaded; convert it once, in that directory, with:  "
     "python3 -c \"import glob, torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for f "
     "in glob.glob('pytorch_model*.bin') for k, v in torch.load(f, map_location='cpu', "
     "weights_only=True).items()}, 'model.safetensors')\"",
     false},
    {"", ".pt",
     "a PyTorch pickle, which can run code when it is loaded; convert it to model.safetensors (models.md)",
     true},
    {"", ".pth",
     "a PyTorch pickle, which can run code when it is loaded; convert it to model.safetensors (models.md)",
     true},
    {"consolidated", ".safetensors",
     "weights under Mistral's own names; expected Hugging Face's layout of them", true},
    {"adapter_model", ".safetensors",
     "an adapter (LoRA); merge it into the model that it was made for, and save that", true},
    {"", ".safetensors", "expected it under the name " SINGLE_NAME ", or with a " INDEX_NAME " that names it",
     false},
    {"", ".ak48", "a packed file, which is a model by its own name (-m FILE.ak48)", true},
    {"", ".gguf", "a GGUF file; expected the Hugging Face checkpoint that it was made from", true},
    {"", ".onnx", "an ONNX model; expected the Hugging Face checkpoint that it was made from", true},
};
#define N_INSTEAD (sizeof instead / sizeof *instead)

/* Index of the format of a file, or N_INSTEAD. */
static size_t kind_of(const char *name) {
  for (size_t kind = 0; kind < N_INSTEAD; kind++)
    if (strstr(name, instead[kind].prefix) == name && name_ends_with(name, instead[kind].suffix)) return kind;
  return N_INSTEAD;
}

/* Index of the first format with a file in the directory, or N_INSTEAD; `found` is the first such file by
 * name. */
static size_t find_instead(const char *directory, char found[256]) {
  size_t best = N_INSTEAD;
  found[0] = 0;
  OWNED(listing_release) DIR *listing = opendir(directory);
  for (struct dirent *entry; listing && (entry = readdir(listing));) {
    size_t kind = kind_of(entry->d_name);
    if (kind == N_INSTEAD || kind > best || (kind == best && strcmp(entry->d_name, found) > 0)) continue;
    best = kind;
    snprintf(found, 256, "%s", entry->d_name);
  }
  return best;
}

Status weight_files_refuse(const char *directory, bool without_config, Error *err) {
  char found[256];
  const size_t kind = find_instead(directory, found);
  if (kind < N_INSTEAD && (!without_config || instead[kind].without_config))
    return error_set(err, STATUS_MODEL, "%s has no %s, only %s: %s", directory,
                     without_config ? "config.json" : SINGLE_NAME, found, instead[kind].advice);
  return without_config ? STATUS_OK
                        : error_set(err, STATUS_MODEL,
                                    "%s has no weights: expected " SINGLE_NAME " or " INDEX_NAME, directory);
}

Status weight_files_open(const char *directory, WeightFiles *files, Error *err) {
  *files = (WeightFiles){0};
  Opener opener = {.directory = directory, .files = files, .err = err};
  if (!(files->path = path_join(directory, SINGLE_NAME, err))) return STATUS_FAILED;
  if (file_is_named(files->path)) {
    Safetensors *single;
    return open_shard(&opener, files->path, &single);
  }
  free(files->path);
  if (!(files->path = path_join(directory, INDEX_NAME, err))) return STATUS_FAILED;
  if (file_is_named(files->path)) return open_index(&opener);
  return weight_files_refuse(directory, false, err);
}

void weight_files_close(WeightFiles *files) {
  for (size_t i = 0; i < files->n_shards; i++) {
    safetensors_close(files->shards[i]);
    free(files->shards[i]);
  }
  free(files->shards);
  free(files->indexed);
  free(files->path);
  *files = (WeightFiles){0};
}

static int compare_name(const void *name, const void *tensor) {
  return strcmp(name, (*(StoredTensor *const *)tensor)->name);
}

StoredTensor *weight_files_find(const WeightFiles *files, const char *name) {
  if (!files->indexed) return files->n_shards > 0 ? safetensors_find(files->shards[0], name) : NULL;
  StoredTensor **tensor =
      bsearch(name, files->indexed, files->n_indexed, sizeof *files->indexed, compare_name);
  return tensor ? *tensor : NULL;
}
