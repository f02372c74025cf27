/* hf_quantised.c - finds the weights of one linear layer of a Hugging Face directory, dense or quantised,
 * and checks their shapes against the config's scheme.
 *
 * The tensors decide whether a layer is quantised, the config decides how; contradictions are refused by
 * name. Only the data of weight_shape, of the zero points of symmetric layers and of g_idx (hf_order.c) are
 * read here. Quantised layers that are stored in a Linear's form get their data here, the other quantised
 * layers from model_prepare(). */
#include <string.h>

#include "model/files/hf_layer.h"

static Status take_dense(HfLoader *loader, int n_out, int first_out, StoredTensor *tensor, Linear *linear) {
  TRY(hf_check_float(loader, tensor));
  TRY(hf_check_shape(loader, tensor, 2, (int64_t[]){n_out, linear->n_in}, ""));
  linear->kind = LINEAR_DENSE;
  linear->dtype = tensor->dtype;
  const size_t row = (size_t)linear->n_in * dtype_bytes(tensor->dtype);
  linear->weight = (const char *)hf_use(loader, tensor) + (size_t)first_out * row;
  return STATUS_OK;
}

static Status add_stored(HfLoader *loader, const StoredWeights *stored) {
  ModelFiles *files = loader->model->files;
  TRY(APPEND(files->stored, files->n_stored, files->stored_capacity, "quantised layers", loader->err,
             *stored));
  loader->model->made_bytes += stored_made_bytes(stored);
  loader->model->replaced_bytes += stored_replaced_bytes(stored);
  return STATUS_OK;
}

Status hf_transposed_take(HfLoader *loader, int n_out, int first_out, int step, StoredTensor *tensor,
                          Linear *linear) {
  TRY(hf_check_float(loader, tensor));
  TRY(hf_check_shape(loader, tensor, 2, (int64_t[]){linear->n_in, n_out}, ""));
  hf_use(loader, tensor);
  linear->kind = LINEAR_DENSE;
  linear->dtype = tensor->dtype;
  const StoredWeights stored = {.linear = linear,
                                .method = QUANT_NONE,
                                .weights = tensor,
                                .n_out = n_out,
                                .first_out = first_out,
                                .step = step};
  return add_stored(loader, &stored);
}

/* --- parts of a quantised layer */

Status hf_take_part(const QuantLayer *layer, const char *suffix, Dtype dtype, int64_t rows, int64_t columns,
                    const char *why, const StoredTensor **out) {
  HfLoader *loader = layer->loader;
  StoredTensor *tensor = hf_find(loader, layer->linear->name, suffix);
  if (!tensor) return hf_missing(loader, layer->linear->name, suffix, ", although its weights are there");
  if (dtype == DTYPE_OTHER) TRY(hf_check_float(loader, tensor));
  if (dtype != DTYPE_OTHER && tensor->dtype != dtype)
    return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is %s, expected %s%s", tensor->file,
                     tensor->name, tensor->dtype_name, dtype_name(dtype), why);
  TRY(hf_check_shape(loader, tensor, 2, (int64_t[]){rows, columns}, why));
  hf_use(loader, tensor);
  *out = tensor;
  return STATUS_OK;
}

/* Takes scales or zero points, which have a row or column for each group. */
static Status take_groups(const QuantLayer *layer, const char *suffix, Dtype dtype, int64_t rows,
                          int64_t columns, const StoredTensor **out) {
  char why[64];
  snprintf(why, sizeof why, " for groups of %d", layer->group);
  return hf_take_part(layer, suffix, dtype, rows, columns, why, out);
}

#define SAVE_AGAIN ": save the model again with AutoAWQ and \"version\": \"GEMM\")"

/* The bits per weight that give packed words of this shape in the layer's layout, or 0. */
static int bits_by_shape(const QuantLayer *layer, int64_t rows, int64_t columns) {
  for (int bits = 2; bits <= 8; bits++) {
    const int64_t of_inputs = layer->n_in * bits / 32, of_outputs = layer->n_out * bits / 32;
    bool fits = rows == layer->n_in && columns == of_outputs;
    if (layer->scheme.method == QUANT_GPTQ) fits = rows == of_inputs && columns == layer->n_out;
    if (layer->scheme.method == QUANT_PACKED) fits = rows == layer->n_out && columns == of_inputs;
    if (fits) return bits;
  }
  return 0;
}

/* Names the layout that gives packed weights this shape, for the message; an empty text if unknown. */
static void other_packing(const QuantLayer *layer, const StoredTensor *tensor, char *out, size_t size) {
  const int64_t in = layer->n_in, n_out = layer->n_out;
  *out = 0;
  if (tensor->rank != 2) return;
  const int64_t rows = tensor->shape[0], columns = tensor->shape[1];
  const int bits = bits_by_shape(layer, rows, columns);
  if (bits)
    snprintf(out, size, " (%d bits a weight)", bits);
  else if (rows == in && columns == n_out / 8)
    snprintf(out, size, " (packed along the output, as AWQ does)");
  else if (rows == in / 8 && columns == n_out)
    snprintf(out, size, " (packed along the input, as GPTQ does)");
  else if (rows == n_out && columns == in / 8)
    snprintf(out, size, " (packed as AutoAWQ's \"gemv\" version does" SAVE_AGAIN);
  else if (rows == n_out / 4 && columns == in)
    snprintf(out, size, " (packed as AutoAWQ's \"gemv_fast\" version or llm-awq does" SAVE_AGAIN);
}

static Status take_packed(const QuantLayer *layer, const char *suffix, int64_t rows, int64_t columns,
                          const StoredTensor **out) {
  const StoredTensor *tensor = hf_find(layer->loader, layer->linear->name, suffix);
  char why[160] = "";
  if (tensor) other_packing(layer, tensor, why, sizeof why);
  return hf_take_part(layer, suffix, DTYPE_I32, rows, columns, why, out);
}

/* Takes zero points, which are optional if the scheme is symmetric. */
static Status take_zeros(const QuantLayer *layer, const char *suffix, int64_t rows, int64_t columns,
                         const StoredTensor **out) {
  if (layer->scheme.symmetric && !hf_find(layer->loader, layer->linear->name, suffix)) return STATUS_OK;
  return take_groups(layer, suffix, DTYPE_I32, rows, columns, out);
}

/* --- the layouts */

static Status take_awq(const QuantLayer *layer, StoredWeights *stored) {
  const StoredTensor *g_idx = hf_find(layer->loader, layer->linear->name, ".g_idx");
  if (g_idx)
    return error_set(layer->loader->err, STATUS_MODEL,
                     "%s: tensor %s: this layer is quantised as GPTQ does, but %s says AWQ", g_idx->file,
                     g_idx->name, layer->loader->config_path);
  TRY(take_packed(layer, ".qweight", layer->n_in, layer->n_out / 8, &stored->weights));
  TRY(take_zeros(layer, ".qzeros", layer->n_groups, layer->n_out / 8, &stored->zeros));
  return take_groups(layer, ".scales", DTYPE_OTHER, layer->n_groups, layer->n_out, &stored->scales);
}

static Status take_gptq(const QuantLayer *layer, StoredWeights *stored) {
  TRY(take_packed(layer, ".qweight", layer->n_in / layer->per_word, layer->n_out, &stored->weights));
  TRY(take_zeros(layer, ".qzeros", layer->n_groups, layer->n_out / layer->per_word, &stored->zeros));
  TRY(take_groups(layer, ".scales", DTYPE_OTHER, layer->n_groups, layer->n_out, &stored->scales));
  stored->zeros_less_one = layer->loader->model->config.quant.zeros_less_one;
  return hf_order_take(layer, ".g_idx", layer->loader->model->config.quant.ordered, stored);
}

/* Refuses a weight_shape that contradicts the layer's shape. */
static Status check_stated_shape(const QuantLayer *layer) {
  StoredTensor *tensor = hf_find(layer->loader, layer->linear->name, ".weight_shape");
  if (!tensor) return STATUS_OK;
  const int64_t two = 2;
  TRY(hf_check_shape(layer->loader, tensor, 1, &two, ""));
  if (tensor->dtype != DTYPE_I64 && tensor->dtype != DTYPE_I32)
    return error_set(layer->loader->err, STATUS_MODEL, "%s: tensor %s is %s, expected I64", tensor->file,
                     tensor->name, tensor->dtype_name);
  hf_use(layer->loader, tensor);
  int64_t shape[2] = {0};
  const size_t size = dtype_bytes(tensor->dtype); /* I32 fills the lower half: the host is little-endian */
  for (size_t i = 0; i < 2; i++) memcpy(&shape[i], tensor->data + i * size, size);
  if (shape[0] == layer->n_out && shape[1] == layer->n_in) return STATUS_OK;
  return error_set(layer->loader->err, STATUS_MODEL, "%s: tensor %s says [%lld, %lld], expected [%lld, %lld]",
                   tensor->file, tensor->name, (long long)shape[0], (long long)shape[1],
                   (long long)layer->n_out, (long long)layer->n_in);
}

/* Refuses zero points other than zero in a layer that the config calls symmetric. In packed words (I32),
 * zero can be stored as 8 with 4 bits and as 128 with 8. */
static Status check_no_zeros(const QuantLayer *layer) {
  StoredTensor *tensor = hf_find(layer->loader, layer->linear->name, ".weight_zero_point");
  if (!tensor) return STATUS_OK;
  const unsigned char none = tensor->dtype != DTYPE_I32 ? 0 : layer->scheme.bits == 4 ? 0x88 : 0x80;
  hf_use(layer->loader, tensor);
  for (size_t i = 0; i < tensor->bytes; i++)
    if (tensor->data[i] != none && tensor->data[i] != 0)
      return error_set(layer->loader->err, STATUS_MODEL,
                       "%s: tensor %s has zero points that are not 0, although %s says symmetric",
                       tensor->file, tensor->name, layer->loader->config_path);
  return STATUS_OK;
}

static Status take_compressed(const QuantLayer *layer, StoredWeights *stored) {
  TRY(check_stated_shape(layer));
  TRY(take_packed(layer, ".weight_packed", layer->n_out, layer->n_in / layer->per_word, &stored->weights));
  if (layer->scheme.symmetric)
    TRY(check_no_zeros(layer));
  else
    TRY(take_zeros(layer, ".weight_zero_point", layer->n_out / layer->per_word, layer->n_groups,
                   &stored->zeros));
  TRY(take_groups(layer, ".weight_scale", DTYPE_OTHER, layer->n_out, layer->n_groups, &stored->scales));
  return hf_order_take(layer, ".weight_g_idx", false, stored);
}

/* A sum of this many int8 products, each at most 2^14, fits an int32: one more could make 2^31. */
enum { MAX_INT8_INPUTS = (1 << 17) - 1 };

static Status take_bytes(const QuantLayer *layer, StoredWeights *stored) {
  TRY(hf_take_part(layer, ".weight", DTYPE_I8, layer->n_out, layer->n_in, "", &stored->weights));
  TRY(check_no_zeros(layer));
  TRY(take_groups(layer, ".weight_scale", DTYPE_OTHER, layer->n_out, layer->n_groups, &stored->scales));
  if (stored->method == QUANT_INT8 && layer->n_in > MAX_INT8_INPUTS)
    return error_set(layer->loader->err, STATUS_MODEL,
                     "%s: tensor %s: int8 products of %lld inputs are not supported, expected at most %d",
                     stored->weights->file, stored->weights->name, (long long)layer->n_in, MAX_INT8_INPUTS);
  return hf_order_take(layer, ".weight_g_idx", false, stored);
}

/* --- any quantised layer */

/* The layer's layout, by the names and dtypes of its tensors and the method that the config gives it. */
static QuantMethod method_of(const HfLoader *loader, const char *name, const StoredTensor *weights,
                             QuantMethod configured) {
  const QuantMethod method = hf_float_method(loader, name, weights);
  if (method != QUANT_NONE) return method;
  if (weights == hf_find(loader, name, ".weight_packed")) return QUANT_PACKED;
  if (weights == hf_find(loader, name, ".qweight")) return configured == QUANT_GPTQ ? QUANT_GPTQ : QUANT_AWQ;
  return configured == QUANT_INT8 ? QUANT_INT8 : QUANT_BYTES;
}

/* The config's scheme for the layer. A quantised layer that the config calls dense gets the model's
 * scheme. */
static Status find_scheme(const HfLoader *loader, const char *name, const StoredTensor *weights,
                          QuantScheme *scheme) {
  const QuantConfig *quant = &loader->model->config.quant;
  TRY(quantization_of(quant, name, loader->config_path, scheme, loader->err));
  if (scheme->method == QUANT_NONE) *scheme = quant->scheme;
  if (scheme->method == QUANT_NONE)
    return error_set(loader->err, STATUS_MODEL,
                     "%s: tensor %s is quantised, but %s has no quantization_config that says how",
                     weights->file, weights->name, loader->config_path);
  const QuantMethod method = method_of(loader, name, weights, scheme->method);
  if (method == scheme->method) return STATUS_OK;
  return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is stored as %s has it, but %s says %s",
                   weights->file, weights->name, quant_method_name(method), loader->config_path,
                   quant_method_name(scheme->method));
}

/* Refuses wrong groups (check_groups()), an n_out or first_out that is no multiple of 8, and inputs that do
 * not fill the words that pack them. */
static Status check_words(const QuantLayer *layer, const StoredTensor *weights) {
  TRY(check_groups(layer->linear, layer->group, weights->file, weights->name, layer->loader->err));
  const bool parts = layer->n_out % 8 == 0 && layer->first_out % 8 == 0;
  if (parts && layer->n_in % (layer->scheme.method == QUANT_AWQ ? 1 : layer->per_word) == 0) return STATUS_OK;
  return error_set(layer->loader->err, STATUS_MODEL,
                   "%s: %s: a layer of %lld inputs and %lld outputs cannot be stored in words of %d weights",
                   weights->file, weights->name, (long long)layer->n_in, (long long)layer->n_out,
                   layer->per_word);
}

/* Sets the data that are stored in a Linear's form; model_prepare() makes the other data. */
static void set_canonical(const StoredWeights *stored) {
  Linear *linear = stored->linear;
  const size_t first = (size_t)stored->first_out;
  if (!stored_weights_are_canonical(stored)) return;
  if (linear->kind == LINEAR_FP8 || linear->kind == LINEAR_FP4) return; /* hf_float_take() has set the data */
  if (linear->kind == LINEAR_INT8) {
    linear->weight = stored->weights->data + first * (size_t)linear->n_in;
    return;
  }
  linear->skip = stored->n_out - linear->n_out;
  linear->qweight = stored->weights->data + first / 2;
  if (!stored_groups_are_canonical(stored)) return;
  linear->qzeros = stored->zeros->data + first / 2;
  linear->scales = stored->scales->data + first * 2;
}

static Status take_quantised(HfLoader *loader, int n_out, int first_out, const StoredTensor *weights,
                             Linear *linear) {
  QuantScheme scheme;
  TRY(find_scheme(loader, linear->name, weights, &scheme));
  const int group = scheme.group == -1 ? linear->n_in : scheme.group;
  linear->kind = scheme.method == QUANT_INT8 ? LINEAR_INT8 : scheme.bits == 8 ? LINEAR_GROUPED : LINEAR_AWQ;
  linear->bits = scheme.bits;
  linear->group = group;
  const QuantLayer layer = {
      loader, linear, first_out, scheme, group, linear->n_in, n_out, linear->n_in / group, 32 / scheme.bits};
  const bool words = scheme.method != QUANT_INT8 && scheme.method < QUANT_FP8;
  if (words) TRY(check_words(&layer, weights));
  StoredWeights stored = {.linear = linear, .method = scheme.method, .n_out = n_out, .first_out = first_out};
  switch (scheme.method) {
  case QUANT_AWQ: TRY(take_awq(&layer, &stored)); break;
  case QUANT_GPTQ: TRY(take_gptq(&layer, &stored)); break;
  case QUANT_PACKED: TRY(take_compressed(&layer, &stored)); break;
  case QUANT_FP8:
  case QUANT_NVFP4:
  case QUANT_NVFP4_PACKED:
  case QUANT_MXFP4_PACKED: TRY(hf_float_take(&layer, &stored)); break;
  default: TRY(take_bytes(&layer, &stored)); break;
  }
  if (linear->kind == LINEAR_AWQ && stored.scales->dtype == DTYPE_F32) linear->kind = LINEAR_GROUPED;
  set_canonical(&stored);
  return add_stored(loader, &stored);
}

/* --- unsupported layouts */

/* For the message: tensors that show the layout of a layer without weights of a known name. */
static const struct {
  const char *suffix, *what;
} foreign[] = {
    {".B", "Marlin"},       {".W_q", "HQQ"},
    {".codebooks", "AQLM"}, {".codes", "AQLM"},
    {".q_weight", "EXL2"},  {".trellis", "EXL3"},
    {".Qidxs", "QuIP#"},    {".centroids", "VPTQ"},
    {".g_idx", "GPTQ"},     {".weight_blocks", "MXFP4"},
};

/* Tensors beside `.weight` which show that `.weight` is quantised: in an unsupported layout, or in one that
 * the config does not name. */
static const struct {
  const char *suffix, *what;
} scaled[] = {
    {".weight_scale_inv", "FP8 in blocks"},
    {".weight_scale_2", "NVFP4"},
    {".weight_scale", "FP8 or INT8 with a scale"},
    {".weight.absmax", "bitsandbytes in 4 bits (NF4 or FP4)"},
    {".SCB", "bitsandbytes in 8 bits"},
    {".biases", "MLX"},
};

static Status refuse_by(const HfLoader *loader, const StoredTensor *tensor, const char *what) {
  return error_set(
      loader->err, STATUS_MODEL,
      "%s: tensor %s: this layer looks like %s, expected AWQ, GPTQ, compressed-tensors, a dense weight, or "
      "FP8 or NVFP4 of which config.json says so: take such a checkpoint of the same model",
      tensor->file, tensor->name, what);
}

static Status refuse_foreign(const HfLoader *loader, const char *name) {
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    const StoredTensor *tensor = hf_find(loader, name, foreign[i].suffix);
    if (tensor) return refuse_by(loader, tensor, foreign[i].what);
  }
  char why[512] = " (and so is its qweight)";
  if (strcmp(name, "lm_head") == 0)
    snprintf(why, sizeof why, ", and %.400s does not say tie_word_embeddings: true", loader->config_path);
  return hf_missing(loader, name, ".weight", why);
}

/* True if the config has a scheme and `weight` is quantised: compressed-tensors' int-quantized, FP8 or NVFP4;
 * find_scheme() checks that the config agrees. */
static bool is_quantised(const HfLoader *loader, const char *name, const StoredTensor *weight) {
  if (loader->model->config.quant.scheme.method == QUANT_NONE) return false;
  return hf_float_method(loader, name, weight) != QUANT_NONE ||
         (weight->dtype == DTYPE_I8 && hf_find(loader, name, ".weight_scale"));
}

Status hf_weights_take(HfLoader *loader, int n_out, int first_out, Linear *linear) {
  const char *name = linear->name;
  StoredTensor *weight = hf_find(loader, name, ".weight"), *packed = hf_find(loader, name, ".weight_packed"),
               *qweight = hf_find(loader, name, ".qweight");
  StoredTensor *found[] = {qweight, packed, weight}, *first = NULL;
  for (int i = 0; i < 3; i++) {
    if (first && found[i])
      return error_set(loader->err, STATUS_MODEL, "%s: %s has a %s and a %s, expected one of them",
                       first->file, name, strrchr(first->name, '.') + 1, strrchr(found[i]->name, '.') + 1);
    if (!first) first = found[i];
  }
  if (!first) return refuse_foreign(loader, name);
  if (first != weight || is_quantised(loader, name, weight))
    return take_quantised(loader, n_out, first_out, first, linear);
  for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
    const StoredTensor *tensor = hf_find(loader, name, scaled[i].suffix);
    if (tensor) return refuse_by(loader, tensor, scaled[i].what);
  }
  return take_dense(loader, n_out, first_out, weight, linear);
}
