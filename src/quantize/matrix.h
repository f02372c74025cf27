/* matrix.h - one matrix to 4 bits: from its weights and the second moments of its inputs to codes, scales and
 * zero points. */
#pragma once

#include <stdint.h>

#include "base/status.h"
#include "quantize/products.h"

/* Each part of the method as a choice. */
typedef struct {
  bool scales;      /* scales of inputs (scales.h) */
  bool compensates; /* rounding errors are compensated in later inputs (GPTQ) */
  double corrects;  /* share of the change of inputs that weights make up for (target.h) */
  double damp;      /* share of the mean second moment that is added to all of them */
  int refinements;  /* passes over codes and scales afterwards (refine.h) */
  GroupSearch search,
      trial; /* of a group's zero point and scale: at last, and within the search for scales */
} Recipe;
extern const Recipe usual_recipe;

/* A matrix W [n_out][n_in]; n_in % group == 0. */
typedef struct {
  int n_out, n_in, group;
  const float *w;
} Weights;

/* w[o][i] is replaced by (codes[o][i] - zeros[i / group][o]) * scales[i / group][o]. Rows of scales and zeros
 * have rounded_row() floats; scales are numbers of fp16. */
typedef struct {
  uint8_t *codes;        /* [n_out][n_in] 0 .. 15 */
  float *scales, *zeros; /* [n_in / group][rounded_row()] */
} Rounded;
size_t rounded_row(int n_out); /* n_out, or the next multiple of ROUND_OUTPUTS */
Status rounded_make(int n_out, int n_in, int group, Rounded *rounded, Error *err);
void rounded_release(Rounded *rounded);

/* Rounds W. h[n_in][n_in]: mean products of its inputs; lower: factor_make() of h, NULL: errors are not
 * compensated. */
Status matrix_round(const Products *products, const Recipe *recipe, const Weights *weights, const float *h,
                    const float *lower, const Rounded *rounded, Error *err);

/* *loss = the mean square of what rounding changes in W's outputs: the sum over outputs of d H d^T, d being
 * the change of a row. rounded NULL: of W itself, so that loss over loss is relative. */
Status matrix_loss(const Products *products, const Weights *weights, const float *h, const Rounded *rounded,
                   double *loss, Error *err);
/* The loss after plain rounding by each group's smallest and largest weight, with the inputs (and h) scaled:
 * of W diag(factors), whose inputs are divided by factors; `search` chooses the groups' parameters. */
Status matrix_trial(const Products *products, const GroupSearch *search, const Weights *weights,
                    const float *h, const float *factors, double *loss, Error *err);
extern const GroupSearch plain_rounding; /* from a group's smallest to its largest weight */
