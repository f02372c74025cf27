/* ak48_write.c - writes a Model as a packed file.
 *
 * Called by: commands/models/pack.c.
 * Two passes over the model: the first refuses by name what the format cannot express, before anything is
 * written; the second writes. Every weight reads back to the same number. Memory: one small buffer. */
#include <inttypes.h>

#include "base/half.h"
#include "model/files/ak48.h"
#include "model/loaders.h"

typedef struct {
  const Model *model;
  AtomicFile *file; /* NULL: the first pass, which only looks */
  const volatile int *interrupted;
} BodyWriter;

/* --- what the format cannot express */

static Status check_positions(const Model *model, const char *path, Error *err) {
  const ModelConfig *config = &model->config;
  if (config->rope.kind != ROPE_PLAIN)
    return error_set(err, STATUS_MODEL, "%s: rope scaling \"%s\" cannot be written into a packed file", path,
                     rope_kind_name(config->rope.kind));
  for (int i = 0; i < config->n_layers; i++) {
    /* A window of max_position or more never cuts anything off. */
    const int window = config_layer(config, i).window;
    if (window > 0 && window < config->max_position)
      return error_set(
          err, STATUS_MODEL,
          "%s: the sliding window of %d positions (layer %d) cannot be written into a packed file", path,
          window, i);
  }
  return STATUS_OK;
}

/* How a layer differs from AutoAWQ's 4-bit layout, for the message. */
static const char *other_weights(const Linear *linear) {
  if (linear->kind == LINEAR_DENSE) return "is not quantised";
  if (linear->kind == LINEAR_INT8) return "multiplies int8 activations";
  if (linear->kind == LINEAR_FP4) return "has weights in FP4";
  if (linear->kind == LINEAR_FP8) return "has weights in FP8";
  if (linear->bits == 8) return "has weights of 8 bits";
  return "has scales or zero points that AutoAWQ's layout cannot hold";
}

static Status check_linear(const Linear *linear, int group, const char *path, Error *err) {
  if (linear->kind != LINEAR_AWQ)
    return error_set(err, STATUS_MODEL,
                     "%s: %s %s; a packed file holds only 4-bit layers as AutoAWQ has them", path,
                     linear->name, other_weights(linear));
  if (linear->order)
    return error_set(err, STATUS_MODEL,
                     "%s: %s has inputs in the order of activations, which a packed file cannot hold", path,
                     linear->name);
  if (linear->bias.data)
    return error_set(err, STATUS_MODEL, "%s: %s has a bias, which a packed file cannot hold", path,
                     linear->name);
  if (linear->group != group)
    return error_set(err, STATUS_MODEL,
                     "%s: %s has groups of %d, others have groups of %d; a packed file holds one size", path,
                     linear->name, linear->group, group);
  return STATUS_OK;
}

static Status check_layers(const Model *model, const char *path, Error *err) {
  int group = model->layers[0].q.group;
  for (int i = 0; i < model->config.n_layers; i++)
    for (int which = 0; which < N_PACKED_LINEARS; which++)
      TRY(check_linear(layer_linear(&model->layers[i], which), group, path, err));
  if (model->head.kind == LINEAR_DENSE) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: %s is quantised, which a packed file cannot hold", path,
                   model->head.name);
}

/* --- numbers as fp16 */

/* Converts elements [from, from + n) to fp16; refuses the first that fp16 cannot hold exactly. */
static Status to_f16(const void *data, Dtype dtype, size_t from, size_t n, uint16_t *out, const char *path,
                     const char *name, Error *err) {
  for (size_t i = 0; i < n; i++) {
    float value = stored_float(data, dtype, from + i);
    out[i] = float_to_f16(value);
    if (float_bits(f16_to_float(out[i])) != float_bits(value))
      return error_set(
          err, STATUS_MODEL,
          "%s: tensor %s is %s and its element %zu, %.9g, is no fp16 number; a packed file holds only those",
          path, name, dtype_name(dtype), from + i, (double)value);
  }
  return STATUS_OK;
}

static Status write_f16(BodyWriter *writer, const void *data, Dtype dtype, size_t n, const char *path,
                        const char *name, Error *err) {
  enum { CHUNK = 8192 };
  uint16_t halves[CHUNK];
  if (dtype == DTYPE_F16) return writer->file ? atomic_file_write(writer->file, data, n * 2, err) : STATUS_OK;
  for (size_t from = 0; from < n; from += CHUNK) {
    size_t some = n - from < CHUNK ? n - from : CHUNK;
    TRY(to_f16(data, dtype, from, some, halves, path, name, err));
    if (writer->file) TRY(atomic_file_write(writer->file, halves, some * sizeof *halves, err));
  }
  return STATUS_OK;
}

/* The model's data for one tensor of the body. Parts of quantised layers have the file's dtype already. */
static const void *data_of(const Model *model, const Ak48Tensor *tensor, Dtype *dtype) {
  const Linear *linear = layer_linear(&model->layers[tensor->layer], tensor->which);
  const Vector *norm = ak48_norm((Model *)model, tensor);
  if (norm) {
    *dtype = norm->dtype;
    return norm->data;
  }
  *dtype = tensor->stored.dtype;
  switch (tensor->part) {
  case AK48_EMBEDDING: *dtype = model->embedding.dtype; return model->embedding.data;
  case AK48_HEAD: *dtype = model->head.dtype; return model->head.weight;
  case AK48_QZEROS: return linear->qzeros;
  case AK48_SCALES: return linear->scales;
  default: return linear->qweight;
  }
}

static Status visit(void *user, const Ak48Tensor *tensor, Error *err) {
  BodyWriter *writer = user;
  if (writer->interrupted && *writer->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  Dtype dtype;
  const void *data = data_of(writer->model, tensor, &dtype);
  if (dtype == DTYPE_I32)
    return writer->file ? atomic_file_write(writer->file, data, tensor->stored.bytes, err) : STATUS_OK;
  char name[AK48_NAME_SIZE];
  ak48_tensor_name(tensor, name);
  return write_f16(writer, data, dtype, tensor->stored.bytes / 2, writer->model->files->path, name, err);
}

/* --- all of it */

/* The config with the group size that all layers have. */
static ModelConfig header_of(const Model *model) {
  ModelConfig header = model->config;
  header.quant.scheme.group = model->layers[0].q.group;
  return header;
}

Status ak48_check_fits(const Model *model, const volatile int *interrupted, Error *err) {
  const char *source = model->files->path;
  char beyond[FORM_WORDS];
  TRY(ak48_cannot_hold(&model->config, beyond, err));
  if (*beyond)
    return error_set(err, STATUS_MODEL, "%s: %s has %s, which cannot be written into a packed file", source,
                     model->config.architecture, beyond);
  TRY(check_positions(model, source, err));
  TRY(check_layers(model, source, err));
  const ModelConfig header = header_of(model);
  ModelConfig decoded = {0};
  unsigned char bytes[AK48_HEADER_SIZE];
  ak48_header_encode(&header, bytes);
  TRY(ak48_header_decode(source, bytes, sizeof bytes, &decoded, err)); /* refuse what could not be read */
  BodyWriter writer = {.model = model, .interrupted = interrupted};
  uint64_t end;
  return ak48_walk(&header, model->config.qk_norm, visit, &writer, &end, err);
}

Status ak48_write(const Model *model, AtomicFile *file, const volatile int *interrupted, Error *err) {
  const ModelConfig header = header_of(model);
  unsigned char bytes[AK48_HEADER_SIZE];
  ak48_header_encode(&header, bytes);
  TRY(atomic_file_write(file, bytes, sizeof bytes, err));
  BodyWriter writer = {.model = model, .file = file, .interrupted = interrupted};
  uint64_t end;
  return ak48_walk(&header, model->config.qk_norm, visit, &writer, &end, err);
}
