/* target.h - the weights that a matrix is rounded towards, where it makes up for earlier errors. */
#pragma once

#include "quantize/matrix.h"

/* Adds to W what adds a share of d to its outputs, as well as its inputs a say it: share E[d a^T] H^-1, by
 * the factor of H = E[a a^T], lower as of factor_make(). cross[n_out][n_in]: E[d a^T] of inputs times
 * scales[n_in]; scales NULL: of the inputs themselves. */
Status target_correct(const Products *products, double share, const float *cross, const float *scales,
                      const float *lower, const Weights *weights, Error *err);
