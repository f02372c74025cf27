/* scales.h - scales of inputs before rounding: W diag(s) reads inputs that are divided by s. */
#pragma once

#include "quantize/quantizer.h"

/* Which inputs share a scale: input i has that of sources[i], of n_sources. NULL: each has its own. */
typedef struct {
  const int *sources;
  int n_sources;
} SharedScales;

/* scales[n_in] = the scales of the inputs that all n matrices read, of the form (mean square of the input)^
 * (alpha / 2), alpha being the one of ALPHAS in [0, 1) with the least loss after plain rounding. `left`: that
 * loss over the one without scales. */
Status scales_search(const Quantizer *quantizer, const QuantizerState *state, const GroupSearch *trial,
                     const Weights *weights, int n, const float *h, SharedScales shared, float *scales,
                     double *left, Error *err);
