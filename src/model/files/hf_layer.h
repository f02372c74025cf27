/* hf_layer.h - a quantised linear layer of a Hugging Face directory while its tensors are found. Private to
 * src/model; used by hf_quantised.c and hf_float.c. */
#pragma once

#include "model/files/hf_tensors.h"

/* The layer that is being taken. */
typedef struct {
  HfLoader *loader;
  Linear *linear;
  int first_out; /* the Linear's first output in the stored matrix */
  QuantScheme scheme;
  int group; /* > 0 */
  int64_t n_in, n_out, n_groups;
  int per_word; /* weights per 32-bit word */
} QuantLayer;

/* Takes the tensor of this name, [rows][columns], of this dtype or, with DTYPE_OTHER, of any float type. */
Status hf_take_part(const QuantLayer *layer, const char *suffix, Dtype dtype, int64_t rows, int64_t columns,
                    const char *why, const StoredTensor **out);

/* The layout of floating-point weights by their tensors, or QUANT_NONE for others (hf_float.c). */
QuantMethod hf_float_method(const HfLoader *loader, const char *name, const StoredTensor *weights);

/* Takes the tensor that names the group of each input, and sets the Linear's order if it is not that of
 * inputs (hf_order.c). */
Status hf_order_take(const QuantLayer *layer, const char *suffix, bool required, StoredWeights *stored);

/* Takes weights and scales in FP8 or FP4 and sets the Linear's fields about them (hf_float.c). */
Status hf_float_take(const QuantLayer *layer, StoredWeights *stored);
