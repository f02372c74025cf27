/* stored_weights.h - a quantised linear layer as it lies in a checkpoint's files: what hf_quantised.c finds
 * and prepare.c turns into a Linear. Private to src/model. */
#ifndef AUK_MODEL_STORED_WEIGHTS_H
#define AUK_MODEL_STORED_WEIGHTS_H

#include "model/model.h"
#include "model/tensors.h"

/* The layouts to the byte: models.md, under the names of quant_method_name(). Shapes were checked. */
typedef struct {
  Linear *linear; /* what becomes of it; its kind, sizes, bits and group are set */
  QuantMethod method;
  bool zeros_less_one;         /* GPTQ, version 1 */
  const StoredTensor *weights; /* qweight, weight_packed or an I8 weight */
  const StoredTensor *zeros;   /* qzeros or weight_zero_point, NULL: all are the middle of the range */
  const StoredTensor *scales;  /* scales or weight_scale */
  int n_out;                   /* outputs of what is stored, of which the layer is */
  int first_out;               /* [first_out, first_out + linear->n_out) */
} StoredWeights;

/* Of one of its parts, whether it is used in place. */
bool stored_weights_are_canonical(const StoredWeights *stored);
bool stored_groups_are_canonical(const StoredWeights *stored);

/* Bytes that prepare.c needs for it, where scales are F16 numbers (2 more for each that is not). */
size_t stored_made_bytes(const StoredWeights *stored);
size_t stored_replaced_bytes(const StoredWeights *stored); /* of the files, that are not needed after it */

#endif
