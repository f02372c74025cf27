/* matrix.h - one matrix to 4 bits: from its weights and the second moments of its inputs to codes, scales and
 * zero points. */
#pragma once

#include "quantize/products.h"

Status rounded_make(int n_out, int n_in, int group, Rounded *rounded, Error *err);
void rounded_release(Rounded *rounded);

/* Rounds W into *rounded, which rounded_make() has made. h[n_in][n_in]: mean products of W's inputs; lower:
 * factor_make() of h, or NULL: errors are not compensated. */
Status matrix_round(const Products *products, const Recipe *recipe, const Weights *weights, const float *h,
                    const float *lower, const Rounded *rounded, Error *err);

/* *loss = the mean square of what rounding changes in W's outputs: the sum over outputs of d H d^T; d is the
 * change of a row of W. rounded NULL: all of W is lost, d = -W (the divisor of a relative loss). */
Status matrix_loss(const Products *products, const Weights *weights, const float *h, const Rounded *rounded,
                   double *loss, Error *err);
/* *loss = what matrix_loss() finds if W diag(factors) is rounded without compensation and the inputs are
 * divided by `factors`. search: the candidates for each group's zero point and scale. h: mean products of the
 * inputs before the division. */
Status matrix_trial(const Products *products, const GroupSearch *search, const Weights *weights,
                    const float *h, const float *factors, double *loss, Error *err);
