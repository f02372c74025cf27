/* hf_float.c - finds the weights and scales of a linear layer in FP8 or FP4 and checks their shapes against
 * the config's scheme. Called by: hf_quantised.c.
 *
 * Weights are used in place; float_scales.c checks and converts the scales. Scales of activations and of the
 * KV cache (input_scale, input_global_scale, activation_scale, k_scale, v_scale) are not used. */

#include "model/files/hf_layer.h"

QuantMethod hf_float_method(const HfLoader *loader, const char *name, const StoredTensor *weights) {
  if (weights == hf_find(loader, name, ".weight_packed")) {
    if (weights->dtype != DTYPE_U8) return QUANT_NONE;
    const StoredTensor *scales = hf_find(loader, name, ".weight_scale");
    const bool e8m0 = scales && (scales->dtype == DTYPE_U8 || scales->dtype == DTYPE_F8_E8M0);
    return e8m0 && !hf_find(loader, name, ".weight_global_scale") ? QUANT_MXFP4_PACKED : QUANT_NVFP4_PACKED;
  }
  if (weights->dtype == DTYPE_F8_E4M3) return QUANT_FP8;
  const bool scaled = hf_find(loader, name, ".weight_scale") || hf_find(loader, name, ".weight_scale_2");
  return weights->dtype == DTYPE_U8 && scaled ? QUANT_NVFP4 : QUANT_NONE;
}

/* Refuses tensors that change what the weights compute. */
static Status refuse_additions(const QuantLayer *layer) {
  static const char *const suffixes[] = {".pre_quant_scale", ".svdquant_lora_a", ".weight_zero_point"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    const StoredTensor *tensor = hf_find(layer->loader, layer->linear->name, suffixes[i]);
    if (tensor)
      return error_set(layer->loader->err, STATUS_MODEL,
                       "%s: tensor %s: FP8 and FP4 layers with such a tensor are not supported; take a "
                       "checkpoint without it",
                       tensor->file, tensor->name);
  }
  return STATUS_OK;
}

/* --- FP8 */

static int64_t blocks(int64_t n, int64_t size) {
  return (n - 1) / size + 1;
}

static bool is_one_number(const StoredTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->shape[i] == 1 ? 1 : 0;
  return n == 1;
}

/* True if there is one scale for each output: [n_out] or [n_out][1]. */
static bool is_a_channel_each(const QuantLayer *layer, const StoredTensor *tensor) {
  return tensor->rank >= 1 && tensor->rank <= 2 && tensor->shape[0] == layer->n_out &&
         (tensor->rank == 1 || tensor->shape[1] == 1);
}

/* Finds weight_scale_inv, which despite its name multiplies, or weight_scale. */
static Status find_scales(const QuantLayer *layer, StoredTensor **scales) {
  const HfLoader *loader = layer->loader;
  const char *name = layer->linear->name;
  StoredTensor *inverse = hf_find(loader, name, ".weight_scale_inv"),
               *plain = hf_find(loader, name, ".weight_scale");
  if (inverse && plain)
    return error_set(loader->err, STATUS_MODEL,
                     "%s: %s has a weight_scale_inv and a weight_scale, expected one of them", inverse->file,
                     name);
  *scales = inverse ? inverse : plain;
  if (!*scales)
    return hf_missing(loader, name, ".weight_scale",
                      " (and so is its weight_scale_inv), although its weights are there");
  return (*scales)->dtype == DTYPE_F8_E8M0 ? STATUS_OK : hf_check_float(loader, *scales);
}

/* Sets the Linear's group (at most n_in) and its block; if the config gives no block, the scales' shape does.
 * Refuses scales of another shape. */
static Status set_blocks(const QuantLayer *layer, const StoredTensor *scales) {
  Linear *linear = layer->linear;
  const int n_out = (int)layer->n_out;
  int block = layer->scheme.block;
  char why[64] = "";
  if (block == 0) {
    block = !is_one_number(scales) && is_a_channel_each(layer, scales) ? 1 : -1;
    snprintf(why, sizeof why, ": the config has no weight_block_size");
  }
  linear->group = layer->group < linear->n_in ? layer->group : linear->n_in;
  linear->block = block == -1 || block > n_out ? n_out : block;
  if (block == -1 && is_one_number(scales)) return STATUS_OK;
  if (block == 1 && linear->group == linear->n_in && is_a_channel_each(layer, scales)) return STATUS_OK;
  if (block > 0) snprintf(why, sizeof why, " for blocks of %d outputs and %d inputs", block, linear->group);
  const int64_t expected[2] = {blocks(n_out, linear->block), blocks(linear->n_in, linear->group)};
  return hf_check_shape(layer->loader, scales, 2, expected, why);
}

static Status take_fp8(const QuantLayer *layer, StoredWeights *stored) {
  StoredTensor *scales = NULL;
  TRY(hf_take_part(layer, ".weight", DTYPE_F8_E4M3, layer->n_out, layer->n_in, "", &stored->weights));
  TRY(find_scales(layer, &scales));
  TRY(set_blocks(layer, scales));
  hf_use(layer->loader, scales);
  stored->scales = scales;
  layer->linear->block_first = layer->first_out % layer->linear->block;
  return STATUS_OK;
}

/* --- FP4 */

/* Takes the one number by which all scales of a matrix are multiplied or divided. */
static Status take_factor(const QuantLayer *layer, const char *suffix, StoredWeights *stored) {
  HfLoader *loader = layer->loader;
  StoredTensor *factor = hf_find(loader, layer->linear->name, suffix);
  if (!factor) return hf_missing(loader, layer->linear->name, suffix, ", although its weights are there");
  TRY(hf_check_float(loader, factor));
  if (!is_one_number(factor)) TRY(hf_check_shape(loader, factor, 1, (int64_t[]){1}, ""));
  hf_use(loader, factor);
  stored->factor = factor;
  return STATUS_OK;
}

static Status take_fp4(const QuantLayer *layer, StoredWeights *stored) {
  const QuantMethod method = layer->scheme.method;
  const char *name = method == QUANT_NVFP4 ? ".weight" : ".weight_packed";
  const StoredTensor *weights = hf_find(layer->loader, layer->linear->name, name);
  if (layer->n_in % layer->group != 0)
    return error_set(layer->loader->err, STATUS_MODEL,
                     "%s: %s: a layer of %lld inputs cannot be quantised in groups of %d: expected inputs in "
                     "whole groups",
                     weights->file, weights->name, (long long)layer->n_in, layer->group);
  TRY(hf_take_part(layer, name, DTYPE_U8, layer->n_out, layer->n_in / 2, " (two weights a byte)",
                   &stored->weights));
  const StoredTensor *scales = hf_find(layer->loader, layer->linear->name, ".weight_scale");
  Dtype dtype = DTYPE_F8_E4M3;
  if (method == QUANT_MXFP4_PACKED)
    dtype = scales && scales->dtype == DTYPE_F8_E8M0 ? DTYPE_F8_E8M0 : DTYPE_U8;
  char why[64];
  snprintf(why, sizeof why, " for groups of %d", layer->group);
  TRY(hf_take_part(layer, ".weight_scale", dtype, layer->n_out, layer->n_groups, why, &stored->scales));
  if (method == QUANT_MXFP4_PACKED) return STATUS_OK;
  return take_factor(layer, method == QUANT_NVFP4 ? ".weight_scale_2" : ".weight_global_scale", stored);
}

/* --- both formats */

Status hf_float_take(const QuantLayer *layer, StoredWeights *stored) {
  Linear *linear = layer->linear;
  TRY(refuse_additions(layer));
  const bool fp8 = layer->scheme.method == QUANT_FP8;
  linear->kind = fp8 ? LINEAR_FP8 : LINEAR_FP4;
  TRY(fp8 ? take_fp8(layer, stored) : take_fp4(layer, stored));
  const size_t first = (size_t)layer->first_out, n_in = (size_t)layer->n_in;
  linear->weight = stored->weights->data + first * (fp8 ? n_in : n_in / 2);
  if (!fp8) linear->scales = stored->scales->data + first * (size_t)layer->n_groups;
  return STATUS_OK;
}
