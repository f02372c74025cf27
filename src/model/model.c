/* model.c - opens and closes checkpoints of either layout, and lists the tensors of their files.
 *
 * Called by: src/commands, src/cpu (floats_read), the loaders.   Calls: hf_directory.c, ak48_read.c. */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/half.h"
#include "model/loaders.h"

static const struct {
  const char *name;
  size_t bytes;
} dtypes[] = {
    [DTYPE_F32] = {"F32", 4}, [DTYPE_F16] = {"F16", 2}, [DTYPE_BF16] = {"BF16", 2},
    [DTYPE_I32] = {"I32", 4}, [DTYPE_I16] = {"I16", 2}, [DTYPE_I8] = {"I8", 1},
    [DTYPE_U8] = {"U8", 1},   [DTYPE_I64] = {"I64", 8}, [DTYPE_OTHER] = {"another dtype", 0},
};

size_t dtype_bytes(Dtype dtype) {
  return dtypes[dtype].bytes;
}

const char *dtype_name(Dtype dtype) {
  return dtypes[dtype].name;
}

static Status check_overrides(const ModelOverrides *overrides, Error *err) {
  if (overrides->rope_theta != 0 && !(isfinite(overrides->rope_theta) && overrides->rope_theta > 0))
    return error_set(err, STATUS_USAGE, "--rope-theta is %g, expected a number above 0",
                     overrides->rope_theta);
  if (overrides->norm_eps != 0 && !(isfinite(overrides->norm_eps) && overrides->norm_eps > 0))
    return error_set(err, STATUS_USAGE, "--norm-eps is %g, expected a number above 0", overrides->norm_eps);
  return STATUS_OK;
}

static Status open_layout(const char *path, const ModelOverrides *overrides, Model *model, Error *err) {
  if (!(model->files = mem_alloc(1, sizeof *model->files, "a model", err))) return STATUS_FAILED;
  if (!(model->files->path = path_join("", path, err))) return STATUS_FAILED; /* a copy */
  TRY(check_overrides(overrides, err));
  if (file_is_directory(path)) return hf_directory_open(path, overrides, model, err);
  return ak48_open(path, overrides, model, err);
}

Status model_open(const char *path, const ModelOverrides *overrides, Model **model, Error *err) {
  static const ModelOverrides none = {0};
  if (!(*model = mem_alloc(1, sizeof **model, "a model", err))) return STATUS_FAILED;
  return open_layout(path, overrides ? overrides : &none, *model, err);
}

Status model_check_known(const Model *model, Error *err) {
  if (!model->assumed || model->config.qk_norm) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "%s: without q and k norms this is no Qwen3: give --rope-theta and --norm-eps, or put "
                   "config.json beside the file",
                   model->files->path);
}

void model_close(Model *model) {
  if (!model) return;
  if (model->files) {
    weight_files_close(&model->files->weights);
    file_unmap(&model->files->packed);
    if (model->files->reserved) munmap(model->files->reserved, model->files->reserved_bytes);
    free(model->files->packed_tensors);
    for (size_t i = 0; i < model->files->n_made; i++) free(model->files->made[i]);
    free(model->files->made);
    free(model->files->stored);
    free(model->files->packed_names);
    free(model->files->names);
    free(model->files->path);
    free(model->files);
  }
  config_release(&model->config);
  free(model->layers);
  free(model->tokenizer_path);
  free(model);
}

Status model_make_layers(Model *model, const char *body, Error *err) {
  size_t n_layers = (size_t)model->config.n_layers;
  ModelFiles *files = model->files;
  model->layers = mem_alloc(n_layers, sizeof *model->layers, "layers", err);
  files->names = mem_alloc(n_layers, N_LAYER_LINEARS * sizeof *files->names, "layer names", err);
  if (!model->layers || !files->names) return STATUS_FAILED;
  for (size_t i = 0; i < n_layers; i++) {
    for (int which = 0; which < N_LAYER_LINEARS; which++) {
      char *name = files->names[i * N_LAYER_LINEARS + (size_t)which];
      layer_linear_full_name(&model->config, body, (int)i, which, name);
      layer_linear(&model->layers[i], which)->name = name;
    }
  }
  return STATUS_OK;
}

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
    {"tekken.json", "Mistral's own", "name one of the same family with --tokenizer"},
};

/* Whether `name` lies in the directory. */
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

void floats_read(const void *data, Dtype dtype, size_t first, size_t n, float *out) {
  if (dtype == DTYPE_F32) {
    memcpy(out, (const char *)data + first * 4, n * 4);
    return;
  }
  const char *from = (const char *)data + first * 2;
  for (size_t i = 0; i < n; i++, from += 2) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    out[i] = dtype == DTYPE_F16 ? f16_to_float(half) : bf16_to_float(half);
  }
}

float stored_float(const void *data, Dtype dtype, size_t index) {
  float value;
  floats_read(data, dtype, index, 1, &value);
  return value;
}

Status check_norm(const Vector *norm, const char *name, const char *file, Error *err) {
  for (int i = 0; i < norm->n; i++) {
    float value = stored_float(norm->data, norm->dtype, (size_t)i);
    if (!isfinite(value))
      return error_set(err, STATUS_MODEL, "%s: tensor %s: element %d is %f, expected a finite number", file,
                       name, i, (double)value);
  }
  return STATUS_OK;
}

Status check_groups(const Linear *linear, int group, const char *file, const char *what, Error *err) {
  if (linear->n_in % group == 0 && linear->n_out % 8 == 0) return STATUS_OK;
  return error_set(
      err, STATUS_MODEL,
      "%s: %s: a layer of %d inputs and %d outputs cannot be quantised in groups of %d: expected "
      "inputs in whole groups and outputs in eights",
      file, what, linear->n_in, linear->n_out, group);
}

Status linear_cut(Linear *linear, int first, int n_out, const char *file, Error *err) {
  const size_t at = (size_t)first;
  if (linear->kind == LINEAR_AWQ || linear->kind == LINEAR_GROUPED) {
    if (first % 8 != 0 || n_out % 8 != 0)
      return error_set(err, STATUS_MODEL,
                       "%s: %s holds several layers, of which one has the outputs %d to %d, expected eights",
                       file, linear->name, first, first + n_out - 1);
    const bool bytes = linear->kind == LINEAR_GROUPED;
    linear->qweight = (const char *)linear->qweight + at * (size_t)linear->bits / 8;
    linear->qzeros = (const char *)linear->qzeros + (bytes ? at : at / 2);
    linear->scales = (const char *)linear->scales + at * (bytes ? 4 : 2);
    linear->skip = linear->n_out - n_out;
  } else if (linear->kind == LINEAR_INT8) {
    linear->weight = (const char *)linear->weight + at * (size_t)linear->n_in;
    linear->scales = (const char *)linear->scales + at * 4;
  } else {
    linear->weight = (const char *)linear->weight + at * (size_t)linear->n_in * dtype_bytes(linear->dtype);
  }
  linear->n_out = n_out;
  return STATUS_OK;
}

/* --- tensors of the files */

size_t model_tensor_count(const Model *model) {
  size_t n = model->files->n_packed_tensors;
  for (size_t i = 0; i < model->files->weights.n_shards; i++) n += model->files->weights.shards[i]->n_tensors;
  return n;
}

const StoredTensor *model_tensor(const Model *model, size_t index) {
  if (index < model->files->n_packed_tensors) return &model->files->packed_tensors[index];
  const WeightFiles *weights = &model->files->weights;
  size_t shard = 0;
  while (index >= weights->shards[shard]->n_tensors) index -= weights->shards[shard++]->n_tensors;
  return &weights->shards[shard]->tensors[index];
}

ShapeText shape_text(int rank, const int64_t *shape) {
  ShapeText out;
  size_t at = 0;
  out.text[at++] = '[';
  for (int i = 0; i < rank; i++)
    at += (size_t)snprintf(out.text + at, sizeof out.text - at, i ? ", %lld" : "%lld", (long long)shape[i]);
  out.text[at++] = ']';
  out.text[at] = 0;
  return out;
}
