/* parts.h - where the parts of a model's layer lie in the layer on the device. Called by: weights.c. */
#pragma once

#include "cuda/device_model.h"

/* Lists the layers that multiply the input of attention, delta rule or convolution, and returns their number.
 * b and a come first, since kernels of few tokens multiply them themselves if they are a matrix of their own
 * (delta.h). */
int parts_inputs(const ModelConfig *config, int layer, const ModelLayer *from,
                 const Linear *out[MAX_PROJECTIONS]);

/* The place of a norm (LAYER_ATTN_NORM ..), and of a vector (DELTA_CONV ..), of model/layers.h. */
const float **parts_norm(DeviceLayer *layer, int which);
const float **parts_vector(DeviceLayer *layer, int which);

/* The use of a vector: what is added to its numbers, the range of random ones, and what all are then divided
 * by; 0: 1. */
typedef struct {
  float plus, low, high, divisor;
} VectorUse;
VectorUse parts_vector_use(int which); /* DELTA_CONV .. */
