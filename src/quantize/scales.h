/* scales.h - scales of inputs before rounding: W diag(s) reads inputs that are divided by s. */
#pragma once

#include "quantize/quantizer.h"

/* Which inputs share a scale: input i has that of sources[i], of n_sources. NULL: each has its own. */
typedef struct {
  const int *sources;
  int n_sources;
} SharedScales;

/* scales[n_in] = the scales of the inputs that all n matrices read: (mean square of the input)^(alpha / 2),
 * times a constant, alpha being the one of 0, 0.1 .. 0.9 with the least sum of losses in matrix_trial().
 * *left = that sum divided by the sum for alpha 0, without scales. h: as in matrix_trial(). */
Status scales_search(const Quantizer *quantizer, const QuantizerState *state, const GroupSearch *trial,
                     const Weights *weights, int n, const float *h, SharedScales shared, float *scales,
                     double *left, Error *err);
