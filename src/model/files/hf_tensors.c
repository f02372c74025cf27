/* hf_tensors.c - see hf_tensors.h. */
#include "model/files/hf_tensors.h"

#include <string.h>

/* The name that the file has for a tensor. */
static void stored_name(const HfLoader *loader, const char *base, const char *suffix, char name[NAME_SIZE]) {
  static const char first[] = "layers.0.";
  const bool renamed = loader->midlayer && strncmp(base, first, sizeof first - 1) == 0;
  snprintf(name, NAME_SIZE, "%s%s%s", renamed ? "midlayer." : "", renamed ? base + sizeof first - 1 : base,
           suffix);
}

StoredTensor *hf_find(const HfLoader *loader, const char *base, const char *suffix) {
  char name[NAME_SIZE];
  if (loader->views) return hf_view(loader, suffix);
  stored_name(loader, base, suffix, name);
  return weight_files_find(loader->files, name);
}

const void *hf_use(HfLoader *loader, StoredTensor *tensor) {
  if (!tensor->used) {
    tensor->used = true;
    loader->model->weight_bytes += tensor->bytes;
    loader->model->unused_tensors--;
  }
  return tensor->data;
}

Status hf_missing(const HfLoader *loader, const char *base, const char *suffix, const char *why) {
  char name[NAME_SIZE];
  stored_name(loader, base, suffix, name);
  return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is missing%s", loader->files->path, name, why);
}

Status hf_check_shape(const HfLoader *loader, const StoredTensor *tensor, int rank, const int64_t *shape,
                      const char *why) {
  if (tensor->rank == rank && memcmp(tensor->shape, shape, (size_t)rank * sizeof *shape) == 0)
    return STATUS_OK;
  return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is %s, expected %s%s", tensor->file,
                   tensor->name, shape_text(tensor->rank, tensor->shape).text, shape_text(rank, shape).text,
                   why);
}

Status hf_check_float(const HfLoader *loader, const StoredTensor *tensor) {
  if (tensor->dtype == DTYPE_F32 || tensor->dtype == DTYPE_F16 || tensor->dtype == DTYPE_BF16)
    return STATUS_OK;
  const char *hint = strncmp(tensor->dtype_name, "F8", 2) == 0
                         ? " (FP8 is supported for weights of linear layers alone, as E4M3 with scales of "
                           "which config.json says)"
                         : "";
  return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is %s, expected F16, BF16 or F32%s",
                   tensor->file, tensor->name, tensor->dtype_name, hint);
}
