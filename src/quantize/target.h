/* target.h - the weights that a matrix is rounded towards, where its inputs have changed. */
#pragma once

#include "quantize/matrix.h"

/* Adds to w[n_out][n_in] what makes up for a share of the change of the outputs: share W D^T H^-1,
 * D[n_in][n_in] being the means of a_i (original a_j - a_j), by the factor of H: lower as of factor_make(),
 * upper its transpose. */
Status target_correct(const Products *products, double share, int n_out, int n_in, const float *changes,
                      const float *lower, const float *upper, float *w, Error *err);
