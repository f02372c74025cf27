/* stored.h - a Linear of the checkpoint as the GPU's loader sees it: its type of weights, its sizes in
 * bytes, and which other Linears can share a matrix with it. */
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

static inline bool has_groups(const Linear *linear) {
  return linear->kind == LINEAR_AWQ || linear->kind == LINEAR_GROUPED;
}

static inline int linear_group(const Linear *linear) {
  return weight_is_quantised(weight_type(linear)) ? linear->group : 0;
}

/* row_bytes(): bytes of a row of weights; row_step(): bytes from a row to the next row of the layer. */
static inline size_t row_bytes(const Linear *linear) {
  return linear_input_bytes(linear, (size_t)linear->n_in);
}
static inline size_t row_step(const Linear *linear) {
  return row_bytes(linear) * (1 + (size_t)linear->row_skip) +
         linear_input_bytes(linear, (size_t)linear->input_skip);
}

/* FP8: a block of outputs by a group of inputs shares a scale; FP4: an output by a group of inputs.
 * scale_blocks(): number of blocks of outputs (FP8); scale_groups(): number of groups of inputs. */
static inline size_t scale_blocks(const Linear *linear) {
  return (size_t)((linear->block_first + linear->n_out - 1) / linear->block + 1);
}

static inline size_t scale_groups(const Linear *linear) {
  return (size_t)((linear->n_in - 1) / linear->group + 1);
}

/* FP8 and FP4: number of scales from one row to the next. */
static inline size_t scale_step(const Linear *linear) {
  return scale_groups(linear) * (1 + (size_t)linear->row_skip) + (size_t)linear->scale_skip;
}

/* Bytes of n zero points, and of n scales, in a Linear's layout. */
static inline size_t zero_bytes(const Linear *linear, size_t n) {
  return linear->kind == LINEAR_AWQ ? n / 2 : n;
}

static inline size_t scale_bytes(const Linear *linear, size_t n) {
  return linear->kind == LINEAR_AWQ ? n * 2 : n * 4;
}

/* True if two Linears can be stacked in one matrix: they have the same type and group (the layout of FP4 has
 * one group size), the same permutation of inputs (GPTQ's act-order), and outputs in whole slabs of 8. */
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
