/* scales.h - scales of inputs before rounding: W diag(s) reads inputs that are divided by s. */
#pragma once

#include "quantize/quantizer.h"

/* Inputs i with the same sources[i] (0 .. n_sources - 1) share a scale. sources NULL: each has its own. */
typedef struct {
  const int *sources;
  int n_sources;
} SharedScales;

/* scales[n_in] = the scales of the inputs that all n matrices read. A scale is s^(alpha / 2) times a
 * constant; s is the mean square of the inputs that share the scale. The chosen alpha of 0, 0.1 .. 0.9 has
 * the least sum of the matrices' losses in matrix_trial(); with alpha 0 all scales are 1. h: as in
 * matrix_trial(). */
Status scales_search(const Quantizer *quantizer, const QuantizerState *state, const GroupSearch *trial,
                     const Weights *weights, int n, const float *h, SharedScales shared, float *scales,
                     Error *err);
