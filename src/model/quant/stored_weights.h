/* stored_weights.h - a quantised linear layer as stored in a checkpoint: hf_quantised.c finds it, repack.c
 * makes a Linear of it. Private to src/model. */
#ifndef AUK_MODEL_QUANT_STORED_WEIGHTS_H
#define AUK_MODEL_QUANT_STORED_WEIGHTS_H

#include "model/model.h"
#include "model/tensors.h"

/* The layouts to the byte: models.md, under the names of quant_method_name(). Shapes were checked. */
typedef struct {
  Linear *linear; /* the result; its kind, sizes, bits and group are set */
  QuantMethod method;
  bool zeros_less_one;         /* GPTQ, version 1 */
  const StoredTensor *weights; /* qweight, weight_packed or an I8 weight */
  const StoredTensor *zeros;   /* qzeros or weight_zero_point, NULL: all are the middle of the range */
  const StoredTensor *scales;  /* scales or weight_scale */
  int n_out;                   /* outputs of the stored matrix; the layer is its outputs */
  int first_out;               /* [first_out, first_out + linear->n_out) */
} StoredWeights;

/* Whether the weights, or the zero points and scales, are used in place. */
bool stored_weights_are_canonical(const StoredWeights *stored);
bool stored_groups_are_canonical(const StoredWeights *stored);

/* Bytes that repack.c will allocate if scales fit F16 (2 more per scale if not). */
size_t stored_made_bytes(const StoredWeights *stored);
size_t stored_replaced_bytes(const StoredWeights *stored); /* stored bytes that are not read afterwards */

#endif
