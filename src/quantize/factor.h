/* factor.h - the triangular factor by which rounding errors are compensated. */
#pragma once

#include "base/status.h"
#include "quantize/products.h"

/* lower[n][n] = the transposed upper triangular U with U^T U = H^-1, zeros above its diagonal; h[n][n] is
 * symmetric. Where rounding makes H indefinite, a growing number is added to its diagonal. Fails if there is
 * no memory. */
Status factor_make(const Products *products, const float *h, int n, float *lower, Error *err);
