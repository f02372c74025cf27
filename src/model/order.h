/* order.h - the order of a matrix's inputs, which GPTQ's "order of activations" leaves (hf_order.c).
 *
 * Called by: src/model, src/cpu/linear.c, cuda/one. Row i of qweight multiplies input order[i] of x, so that
 * the inputs of a group are contiguous. */
#pragma once

#include "model/model.h"

/* [n_in] or NULL: row i multiplies input i. Equal orders of matrices that read the same x are the same
 * memory. */
static inline const int32_t *linear_order(const Linear *linear) {
  const bool by_inputs = linear->kind == LINEAR_AWQ || linear->kind == LINEAR_GROUPED;
  return by_inputs ? (const int32_t *)linear->weight : NULL; /* these forms have no other use of `weight` */
}
