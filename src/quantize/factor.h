/* factor.h - the triangular factor by which rounding errors are compensated. */
#pragma once

#include "base/status.h"
#include "quantize/products.h"

/* lower[n][n] = the transposed upper triangular U with U^T U = (H + damp mean(diagonal) I)^-1, zeros above
 * its diagonal; H[n][n] is symmetric. Inputs that are always 0 get a diagonal of 1. Where rounding makes H
 * indefinite, damp grows tenfold until it is definite. Fails if there is no memory. */
Status factor_make(const Products *products, const float *h, int n, double damp, float *lower, Error *err);
