/* target.h - the weights that a matrix is rounded towards, where its inputs have changed. */
#pragma once

#include "quantize/matrix.h"

/* Adds to W what makes up for a share of the change of the outputs: share W D^T H^-1, D[n_in][n_in] being the
 * means of a_i (original a_j - a_j), by the factor of H, lower as of factor_make(). */
Status target_correct(const Products *products, double share, const float *changes, const float *lower,
                      const Weights *weights, Error *err);
