/* target.h - the weights that a matrix is rounded towards, where it makes up for earlier errors. */
#pragma once

#include "quantize/matrix.h"

/* Adds to W what adds to its outputs a share of gains g, as far as the inputs a determine them:
 * share E[g a^T] H^-1 with H = E[a a^T]. The gain of output o is residual * drift_o + (W d)_o: d is what
 * earlier rounding has taken from the inputs, drift what it has taken from the sum that the outputs are
 * added to. */
Status target_correct(const Products *products, const Target *target, const Weights *weights, Error *err);
