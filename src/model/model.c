/* model.c - what all kinds of checkpoints share: dtypes, checks of tensors, the files of an open model. */
#include "model/model.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "model/loaders.h"

/* All dtypes of safetensors' reference implementation (0.7); those before BOOL are in the order of Dtype. A
 * file may hold tensors of DTYPE_OTHER that are not used. */
static const struct {
  const char *name;
  int bits;
  Dtype dtype;
} dtypes[] = {
    /* clang-format off */
  { "F32",         32, DTYPE_F32   }, { "F16",         16, DTYPE_F16   },  { "BF16",        16, DTYPE_BF16  },
  { "I32",         32, DTYPE_I32   }, { "I16",         16, DTYPE_I16   },  { "I8",           8, DTYPE_I8    },
  { "U8",           8, DTYPE_U8    }, { "I64",         64, DTYPE_I64   },  { "F8_E4M3", 8, DTYPE_F8_E4M3 },
  { "F8_E8M0",  8, DTYPE_F8_E8M0   }, { "BOOL",         8, DTYPE_OTHER },  { "U16",         16, DTYPE_OTHER },
  { "U32",         32, DTYPE_OTHER }, { "U64",         64, DTYPE_OTHER },  { "F64",         64, DTYPE_OTHER },
  { "C64",         64, DTYPE_OTHER }, { "F4",           4, DTYPE_OTHER },  { "F6_E2M3",      6, DTYPE_OTHER },
  { "F6_E3M2",      6, DTYPE_OTHER }, { "F8_E5M2",      8, DTYPE_OTHER },  { "F8_E4M3FNUZ",  8, DTYPE_OTHER },
  { "F8_E5M2FNUZ",  8, DTYPE_OTHER },
    /* clang-format on */
};

size_t dtype_bytes(Dtype dtype) {
  return dtype == DTYPE_OTHER ? 0 : (size_t)dtypes[dtype].bits / 8;
}

const char *dtype_name(Dtype dtype) {
  return dtype == DTYPE_OTHER ? "another dtype" : dtypes[dtype].name;
}

int dtype_find(const char *name, StoredTensor *tensor) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    if (strcmp(name, dtypes[i].name) != 0) continue;
    tensor->dtype = dtypes[i].dtype;
    tensor->dtype_name = dtypes[i].name;
    return dtypes[i].bits;
  }
  return 0;
}

/* Allocates the layers with their experts, and the names of the layers' Linears. */
static Status allocate_layers(Model *model, Error *err) {
  const ModelConfig *config = &model->config;
  ModelFiles *files = model->files;
  size_t n_linears = 0;
  for (int layer = 0; layer < config->n_layers; layer++) {
    files->n_experts += (size_t)config_layer(config, layer).n_experts;
    n_linears += (size_t)layer_linear_count(config, layer);
  }
  TRY(NEW(model->layers, (size_t)config->n_layers, "layers", err));
  TRY(NEW(files->names, n_linears, "layer names", err));
  if (files->n_experts > 0) TRY(NEW(files->experts, files->n_experts, "experts", err));
  Expert *next = files->experts;
  for (int layer = 0; files->experts && layer < config->n_layers; layer++) {
    model->layers[layer].experts = next;
    next += config_layer(config, layer).n_experts;
  }
  return STATUS_OK;
}

Status model_make_layers(Model *model, const char *body, Error *err) {
  const ModelConfig *config = &model->config;
  ModelFiles *files = model->files;
  TRY(allocate_layers(model, err));
  for (int which = 0; which < N_MODEL_LINEARS; which++) {
    Linear *linear = &model->linear[which];
    model_linear_name(config, body, which, files->own_names[which]);
    linear->name = files->own_names[which];
    if (which != MODEL_HEAD) model_linear_sizes(config, which, &linear->n_in, &linear->n_out);
  }
  char(*name)[LINEAR_NAME_SIZE] = files->names, part[LINEAR_NAME_SIZE];
  for (int layer = 0; layer < config->n_layers; layer++)
    for (int which = 0; which < layer_linear_count(config, layer); which++, name++) {
      layer_linear_part(config, layer, which, part);
      layer_full_name(config, body, layer, part, *name, sizeof *name);
      Linear *linear = layer_linear(&model->layers[layer], which);
      linear->name = *name;
      if (layer_linear_exists(config, layer, which))
        layer_linear_sizes(config, layer, which, &linear->n_in, &linear->n_out);
    }
  return STATUS_OK;
}

void model_set_head(Model *model, const char *name, const void *data, Dtype dtype) {
  const bool tied = model->config.tied_embeddings;
  model->head = (Linear){.kind = LINEAR_DENSE,
                         .n_in = model->config.hidden,
                         .n_out = model->config.vocab_size,
                         .weight = tied ? model->embedding.data : data,
                         .dtype = tied ? model->embedding.dtype : dtype,
                         .name = tied ? "model.embed_tokens" : name};
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

enum { FINITE_CHUNK = 1024 };

/* True if numbers [first, first + n) are finite; n <= FINITE_CHUNK. fp32 has its exponent in the upper two
 * bytes, like bf16. */
static bool are_finite(const void *data, Dtype dtype, size_t first, size_t n) {
  const size_t size = dtype_bytes(dtype);
  const char *from = (const char *)data + first * size;
  const uint16_t exponent = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
  uint16_t upper[FINITE_CHUNK] = {0}, special = 0;
  if (size == 2) memcpy(upper, from, n * 2);
  for (size_t i = 0; size == 4 && i < n; i++) memcpy(&upper[i], from + i * 4 + 2, 2);
  for (size_t i = 0; i < FINITE_CHUNK; i++) special |= (upper[i] & exponent) == exponent;
  return !special;
}

Status check_finite(const void *data, Dtype dtype, size_t n, int n_threads, const char *file,
                    const char *name, Error *err) {
  enum { CHUNK = FINITE_CHUNK };
  size_t at = SIZE_MAX;
#pragma omp parallel for reduction(min : at) num_threads(n_threads)
  for (size_t from = 0; from < n; from += CHUNK)
    if (from < at && !are_finite(data, dtype, from, n - from < CHUNK ? n - from : CHUNK)) at = from;
  if (at == SIZE_MAX) return STATUS_OK;
  while (are_finite(data, dtype, at, 1)) at++;
  return error_set(err, STATUS_MODEL, "%s: tensor %s: element %zu is %f, expected a finite number", file,
                   name, at, (double)stored_float(data, dtype, at));
}

Status check_groups(const Linear *linear, int group, const char *file, const char *what, Error *err) {
  if (linear->n_in % group == 0 && linear->n_out % 8 == 0) return STATUS_OK;
  return error_set(
      err, STATUS_MODEL,
      "%s: %s: a layer of %d inputs and %d outputs cannot be quantised in groups of %d: expected "
      "inputs in whole groups and outputs in eights",
      file, what, linear->n_in, linear->n_out, group);
}

const void *moved(const void *data, size_t bytes) {
  return data ? (const char *)data + bytes : NULL;
}

LinearArray linear_array(const Linear *linear, int which) {
  static const int bits[][N_LINEAR_ARRAYS] = {
      [LINEAR_AWQ] = {4, 4, 16}, [LINEAR_GROUPED] = {8, 8, 32}, [LINEAR_INT8] = {8, 0, 32},
      [LINEAR_FP8] = {8, 0, 32}, [LINEAR_FP4] = {4, 0, 8},      [LINEAR_DENSE] = {0, 0, 0}};
  const bool by_inputs = linear_is_by_inputs(linear), weights = which == LINEAR_WEIGHTS;
  Linear *l = (Linear *)linear;
  const void **const data[] = {by_inputs ? &l->qweight : &l->weight, &l->qzeros, &l->scales};
  LinearArray a = {.data = data[which], .bits = bits[l->kind][which]};
  if (weights && l->kind == LINEAR_DENSE) a.bits = 8 * (int)dtype_bytes(l->dtype);
  if (weights && l->kind == LINEAR_GROUPED) a.bits = l->bits;
  if (a.bits == 0) return a;
  size_t inputs = (size_t)l->n_in, outputs = (size_t)l->n_out;
  if (!weights) inputs = l->kind == LINEAR_INT8 ? 1 : (size_t)((l->n_in - 1) / l->group + 1);
  if (!weights && l->kind == LINEAR_FP8) outputs = (size_t)((l->block_first + l->n_out - 1) / l->block + 1);
  const size_t columns = by_inputs ? outputs : inputs,
               skip = by_inputs
                          ? (size_t)l->skip
                          : columns * (size_t)l->row_skip + (size_t)(weights ? l->input_skip : l->scale_skip);
  a.n_rows = by_inputs ? inputs : outputs;
  a.row = columns * (size_t)a.bits / 8;
  a.step = (columns + skip) * (size_t)a.bits / 8;
  return a;
}

size_t linear_array_bytes(const Linear *linear, int which) {
  const LinearArray a = linear_array(linear, which);
  return a.n_rows * a.row;
}

size_t linear_bytes(const Linear *linear) {
  size_t bytes = 0;
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) bytes += linear_array_bytes(linear, which);
  return bytes;
}

Status linear_cut(Linear *linear, int first, int n_out, const char *file, Error *err) {
  const bool by_inputs = linear_is_by_inputs(linear), blocks = linear->kind == LINEAR_FP8;
  if (by_inputs && (first % 8 != 0 || n_out % 8 != 0))
    return error_set(err, STATUS_MODEL,
                     "%s: %s holds several layers, of which one has the outputs %d to %d, expected eights",
                     file, linear->name, first, first + n_out - 1);
  const int in_blocks = linear->block_first + first; /* `first` within FP8's blocks */
  for (int which = 0; which < N_LINEAR_ARRAYS; which++) {
    const LinearArray a = linear_array(linear, which);
    const int row = blocks && which == LINEAR_SCALES ? in_blocks / linear->block : first;
    *a.data = moved(*a.data, by_inputs ? (size_t)first * (size_t)a.bits / 8 : (size_t)row * a.step);
  }
  if (by_inputs) linear->skip += linear->n_out - n_out;
  if (blocks) linear->block_first = in_blocks % linear->block;
  linear->n_out = n_out;
  return STATUS_OK;
}

/* --- files */

const MappedFile *model_file(const Model *model, size_t index) {
  const ModelFiles *files = model->files;
  if (model->layout == LAYOUT_AK48) return index == 0 ? &files->packed : NULL;
  return index < files->weights.n_shards ? &files->weights.shards[index]->file : NULL;
}

size_t model_loaded_bytes(const Model *model) {
  return model->weight_bytes + model->made_bytes - model->replaced_bytes;
}

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
