/* hf_layer.h - a quantised linear layer of a Hugging Face directory while its tensors are found. Private to
 * src/model; used by hf_quantised.c, hf_float.c and hf_order.c. */
#pragma once

#include "model/files/hf_tensors.h"

/* A layer, and the stored matrix that it is, or is a part of. */
typedef struct {
  HfLoader *loader;
  Linear *linear;
  int first_out; /* the Linear's first output in the stored matrix */
  QuantScheme scheme;
  int group;                     /* > 0 */
  int64_t n_in, n_out, n_groups; /* of the stored matrix */
  int per_word;                  /* weights per 32-bit word */
} QuantLayer;

/* *out: the layer's tensor with this suffix, [rows][columns], of this dtype (DTYPE_OTHER: F32, F16 or BF16).
 * Refuses a checkpoint without it; `why` ends messages about its shape and dtype. */
Status hf_take_part(const QuantLayer *layer, const char *suffix, Dtype dtype, int64_t rows, int64_t columns,
                    const char *why, const StoredTensor **out);

/* The layout of FP8 or FP4 weights, known by their tensors; QUANT_NONE for other weights (hf_float.c). */
QuantMethod hf_float_method(const HfLoader *loader, const char *name, const StoredTensor *weights);

/* Reads the tensor that names the group of each input (g_idx). If inputs are permuted, sets the Linear's
 * order and stored->places. The tensor may be missing unless `required` (hf_order.c). */
Status hf_order_take(const QuantLayer *layer, const char *suffix, bool required, StoredWeights *stored);

/* Takes weights and scales in FP8 or FP4 and sets the Linear's fields about them (hf_float.c). */
Status hf_float_take(const QuantLayer *layer, StoredWeights *stored);
