/* stored.h - a Linear of the checkpoint as the GPU's loader sees it: its type of weights, and which other
 * Linears can share a matrix with it. */
#pragma once

#include "cuda/kernels/linear/dispatch.h"
#include "model/model.h"

/* LINEAR_GROUPED of 4 bits becomes 8 bits: AutoAWQ's layout cannot hold its zero points or scales. */
static inline WeightType weight_type(const Linear *linear) {
  switch (linear->kind) {
  case LINEAR_AWQ: return WEIGHT_AWQ4;
  case LINEAR_GROUPED: return WEIGHT_AWQ8;
  case LINEAR_INT8: return WEIGHT_INT8;
  case LINEAR_FP8: return WEIGHT_FP8;
  case LINEAR_FP4: return WEIGHT_FP4;
  case LINEAR_DENSE: break;
  }
  return linear->dtype == DTYPE_F16 ? WEIGHT_F16 : linear->dtype == DTYPE_BF16 ? WEIGHT_BF16 : WEIGHT_F32;
}

static inline int linear_group(const Linear *linear) {
  return weight_is_quantised(weight_type(linear)) ? linear->group : 0;
}

/* True if two Linears can be stacked in one matrix. They then have the same type and group (the layout of FP4
 * has one group size), the same permutation of inputs (GPTQ's act-order), and outputs in whole slabs of 8. */
static inline bool can_join(const Linear *a, const Linear *b) {
  const bool groups_fit = a->kind == LINEAR_FP4 || linear_group(a) == linear_group(b);
  return weight_type(a) == weight_type(b) && groups_fit && a->order == b->order && a->n_out % 8 == 0 &&
         b->n_out % 8 == 0;
}

/* True if two Linears can be experts of one matrix. */
static inline bool are_alike(const Linear *a, const Linear *b) {
  return weight_type(a) == weight_type(b) && a->n_in == b->n_in && a->n_out == b->n_out &&
         linear_group(a) == linear_group(b) && !a->bias.data == !b->bias.data;
}
