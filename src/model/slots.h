/* slots.h - an index for each tensor of a layer, from tensors.def. A struct with something for each tensor
 * has an array by this index, whose elements also have the tensors' names:
 *
 *   layer->linear[LAYER_Q] and layer->q,  layer->vector[LAYER_Q_NORM] and layer->q_norm */
#pragma once

#include "model/config/config.h"

enum {
#define LINEAR(SLOT, ...) LAYER_##SLOT,
#include "model/tensors.def"
  N_LAYER_LINEARS,
  N_PACKED_LINEARS = LAYER_UP + 1, /* the linear layers of an ak48 file come first */
};

/* The linear layer of a layer's own MLP that corresponds to an expert's linear layer `part`. */
static inline int mlp_linear(int part) {
  static const int linears[] = {
#define EXPERT_LINEAR(SLOT, ...) LAYER_##SLOT,
#include "model/tensors.def"
  };
  return linears[part];
}

enum {
#define VECTOR(SLOT, ...) LAYER_##SLOT,
#include "model/tensors.def"
  N_LAYER_VECTORS
};

/* The tensors outside the layers; some are arrays: model->linear[MODEL_STREAMS_IN + 2]. */
enum {
#define ONE                                    1
#define MANY(n)                                n
#define MODEL_LINEAR(SLOT, member, count, ...) MODEL_##SLOT, MODEL_##SLOT##_LAST = MODEL_##SLOT + (count)-1,
#include "model/tensors.def"
  N_MODEL_LINEARS
};

enum {
#define MODEL_TABLE(SLOT, ...) MODEL_##SLOT,
#include "model/tensors.def"
  N_MODEL_TABLES
};

enum {
#define ONE                                    1
#define MANY(n)                                n
#define MODEL_VECTOR(SLOT, member, count, ...) MODEL_##SLOT, MODEL_##SLOT##_LAST = MODEL_##SLOT + (count)-1,
#include "model/tensors.def"
  N_MODEL_VECTORS
};
