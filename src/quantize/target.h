/* target.h - the weights that a matrix is rounded towards, where it makes up for earlier errors. */
#pragma once

#include "quantize/matrix.h"

/* Adds share E[g a^T] H^-1 to W: the least squares change that adds share times the gains g to the outputs.
 * a: the inputs; H = E[a a^T]. The gain of output o is residual * drift_o + (W d)_o. d: the original model's
 * inputs minus those of the quantised one. drift: the same difference of the residual stream to which the
 * outputs are added. */
Status target_correct(const Products *products, const Target *target, const Weights *weights, Error *err);
