/* parts.h - which matrices multiply a layer's input, and in which order. Called by: weights.c. */
#pragma once

#include "cuda/device_model.h"

/* Lists the layers that multiply the input of attention, delta rule or convolution, and returns their number.
 * b and a come first, since kernels of few tokens multiply them themselves if they are a matrix of their own
 * (delta.h). */
int parts_inputs(const ModelConfig *config, int layer, const ModelLayer *from,
                 const Linear *out[MAX_PROJECTIONS]);
