/* scales.c - see scales.h. Called by: layer.c.
 *
 * AWQ (Lin et al., arXiv:2306.00978) with two changes. The loss of a trial is exact for the calibration
 * inputs, from their second moments. The trial also searches the scale of each group of weights. */
#include "quantize/scales.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALPHAS = 10 };

/* sizes[i] = the root of the mean square of the inputs that share scale i; squares[n_in]: the inputs' mean
 * squares. */
static void input_sizes(const float *squares, int n_in, SharedScales shared, int *counts, float *sizes) {
  memset(counts, 0, (size_t)shared.n_sources * sizeof *counts);
  memset(sizes, 0, (size_t)shared.n_sources * sizeof *sizes);
  for (int i = 0; i < n_in; i++) {
    const int source = shared.sources ? shared.sources[i] : i;
    sizes[source] += fmaxf(squares[i], 1e-12f);
    counts[source]++;
  }
  for (int i = 0; i < shared.n_sources; i++) sizes[i] = sqrtf(sizes[i] / (float)(counts[i] ? counts[i] : 1));
}

/* scales[n_in] = sizes^alpha, at least 1e-4, divided by a constant so that the largest scale times the
 * smallest is 1. */
static void raise(const float *sizes, double alpha, int n_in, SharedScales shared, float *scales) {
  double low = INFINITY, high = 0;
  for (int i = 0; i < n_in; i++) {
    const double scale = fmax(pow((double)sizes[shared.sources ? shared.sources[i] : i], alpha), 1e-4);
    low = fmin(low, scale), high = fmax(high, scale);
    scales[i] = (float)scale;
  }
  for (int i = 0; i < n_in; i++) scales[i] = (float)((double)scales[i] / sqrt(low * high));
}

Status scales_search(const Quantizer *quantizer, const QuantizerState *state, const GroupSearch *trial,
                     const Weights *weights, int n, const float *h, SharedScales shared, float *scales,
                     Error *err) {
  const int n_in = weights[0].n_in;
  if (!shared.sources) shared.n_sources = n_in;
  OWNED(mem_release) float *sizes = NULL, *tried = NULL; /* tried: at first the diagonal of h */
  OWNED(mem_release) int *counts = NULL;
  TRY(NEW(sizes, (size_t)shared.n_sources, "scales", err));
  TRY(NEW(tried, (size_t)n_in, "scales", err));
  TRY(NEW(counts, (size_t)shared.n_sources, "scales", err));
  TRY(quantizer->diagonal(state, n_in, h, tried, err));
  input_sizes(tried, n_in, shared, counts, sizes);
  double least = 0;
  for (int i = 0; i < ALPHAS; i++) {
    double loss = 0, own;
    raise(sizes, (double)i / ALPHAS, n_in, shared, tried);
    for (int m = 0; m < n; m++, loss += own)
      TRY(quantizer->trial(state, trial, &weights[m], h, tried, &own, err));
    if (i > 0 && !(loss < least)) continue;
    least = loss;
    memcpy(scales, tried, (size_t)n_in * sizeof *scales);
  }
  return STATUS_OK;
}
