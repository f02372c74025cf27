/* slots.h - the numbers of a layer's tensors, from tensors.def. Structs that hold something for each of them
 * are arrays by these numbers, whose elements have the members' names as well:
 *
 *   layer->linear[LAYER_Q] and layer->q,  layer->vector[LAYER_Q_NORM] and layer->q_norm */
#pragma once

enum {
#define LINEAR(SLOT, ...) LAYER_##SLOT,
#include "model/tensors.def"
  N_LAYER_LINEARS,
  N_PACKED_LINEARS = LAYER_UP + 1, /* those of an ak48 file come first */
};

enum {
#define VECTOR(SLOT, ...) LAYER_##SLOT,
#include "model/tensors.def"
  N_LAYER_VECTORS
};
