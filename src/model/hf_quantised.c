/* hf_quantised.c - the quantised linear layers of a Hugging Face directory. Called by: hf_directory.c. */
#include <string.h>

#include "model/hf_tensors.h"

/* One part of a quantised layer: of this dtype, [rows][columns]. */
static Status take_part(Loader *loader, const char *base, const char *suffix, Dtype dtype, int64_t rows,
                        int64_t columns, const char *why, const void **out) {
  StoredTensor *tensor = hf_find(loader, base, suffix);
  if (!tensor) return hf_missing(loader, base, suffix, ", although its qweight is there");
  if (tensor->dtype != dtype)
    return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is %s, expected %s", tensor->file,
                     tensor->name, tensor->dtype_name, dtype_name(dtype));
  TRY(hf_check_shape(loader, tensor, 2, (int64_t[]){rows, columns}, why));
  *out = hf_use(loader, tensor);
  return STATUS_OK;
}

/* Packed 4-bit weights whose shape is another format's are told apart by it; "" for no idea. */
static const char *other_packing(const StoredTensor *qweight, int64_t n_in, int64_t n_out) {
  if (qweight->rank != 2) return "";
  int64_t rows = qweight->shape[0], columns = qweight->shape[1];
  if (rows == n_in / 8 && columns == n_out) return " (packed along the input, as GPTQ does)";
  if (rows == n_out && columns == n_in / 8)
    return " (packed as AutoAWQ's \"gemv\" version does, not \"gemm\")";
  if (rows == n_out / 4 && columns == n_in)
    return " (packed as AutoAWQ's \"gemv_fast\" version does, not \"gemm\")";
  if (rows == n_in && columns == n_out / 4) return " (8 bits a weight, expected 4)";
  return "";
}

Status hf_quantised_take(Loader *loader, StoredTensor *qweight, Linear *linear) {
  const ModelConfig *config = &loader->model->config;
  const StoredTensor *g_idx = hf_find(loader, linear->name, ".g_idx");
  if (g_idx)
    return error_set(loader->err, STATUS_MODEL,
                     "%s: tensor %s: this layer is quantised as GPTQ does, expected AWQ", g_idx->file,
                     g_idx->name);
  if (config->quant != QUANT_AWQ)
    return error_set(loader->err, STATUS_MODEL,
                     "%s: tensor %s is quantised, but %s has no quantization_config that says how",
                     qweight->file, qweight->name, loader->config_path);
  const int group = config->quant_group == -1 ? linear->n_in : config->quant_group;
  TRY(check_groups(linear, group, qweight->file, qweight->name, loader->err));
  linear->kind = LINEAR_AWQ;
  linear->group = group;
  int64_t groups = linear->n_in / group, words = linear->n_out / 8;
  char why[64];
  snprintf(why, sizeof why, " for groups of %d", group);
  TRY(take_part(loader, linear->name, ".qweight", DTYPE_I32, linear->n_in, words,
                other_packing(qweight, linear->n_in, linear->n_out), &linear->qweight));
  TRY(take_part(loader, linear->name, ".qzeros", DTYPE_I32, groups, words, why, &linear->qzeros));
  return take_part(loader, linear->name, ".scales", DTYPE_F16, groups, linear->n_out, why, &linear->scales);
}
