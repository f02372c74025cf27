/* target.h - the weights that a matrix is rounded towards, where it makes up for earlier errors. */
#pragma once

#include "quantize/matrix.h"

/* Adds share E[g a^T] H^-1 to W, a being the inputs and H = E[a a^T]: the least squares change of W that adds
 * share times the gains g to the outputs. The gain of output o is residual * drift_o + (W d)_o. d is the
 * original model's inputs minus those of the quantised one; drift is the same difference of the residual
 * stream to which the outputs are added. */
Status target_correct(const Products *products, const Target *target, const Weights *weights, Error *err);
