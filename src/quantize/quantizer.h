/* quantizer.h - the device that computes statistics of inputs and rounds matrices: a table of functions, as
 * engine/backend.h has them for the forward pass. cpu_quantizer.c has the CPU's; a GPU's is in cuda/quantize.
 *
 * Weights, sums and moments lie in the device's memory, which only the functions here read. `square` is the
 * [n][n] matrix of second moments of inputs. Rows, scales and codes lie in the host's memory. The same calls
 * give the same bits. */
#pragma once

#include <stdint.h>

#include "cpu/kernels.h"

typedef struct QuantizerState QuantizerState; /* an open device */

/* Rows of floats in memory, `stride` floats apart. */
typedef struct {
  float *at;
  size_t stride;
} Rows;

/* Options of the quantisation method. */
typedef struct {
  bool scales;      /* scales of inputs (scales.h) */
  bool compensates; /* rounding errors are compensated in later inputs (GPTQ) */
  double drift;     /* fraction of earlier rounding's errors that weights make up for (target.h) */
  double damp;      /* fraction of the mean of the moments' diagonal that is added to that diagonal */
  int refinements;  /* passes over codes and scales afterwards (refine.h) */
  /* Candidates for a group's zero point and scale. search: when codes are made; trial: in scales_search(). */
  GroupSearch search, trial;
} Recipe;

/* A matrix W [n_out][n_in] in the device's memory; n_in % group == 0. */
typedef struct {
  int n_out, n_in, group;
  float *w;
} Weights;

/* The gains of a matrix's outputs (target.h). drifts, changes and lower lie in the device's memory, scales in
 * the host's. */
typedef struct {
  /* share: Recipe.drift / LayerInput.weight, the factor of the gains (drifts and changes are sums, not
   * means); residual: factor of drifts in a gain. */
  double share, residual;
  const float *drifts;  /* [n_out][n_in] sums of drift_o a_i; NULL: no output has a drift */
  const float *changes; /* [n_in][n_in] sums of a_i d_j; NULL: d is 0, or not known */
  const float *scales;  /* [n_in] W and `changes` are for the inputs a / scales; NULL: for the inputs a */
  const float *lower;   /* [n_in][n_in] factor_make() of the moments of W's inputs */
} Target;

/* w[o][i] is replaced by (codes[o][i] - zeros[i / group][o]) * scales[i / group][o]. Rows of scales and zeros
 * have rounded_row() floats; scales are numbers of fp16. */
typedef struct {
  uint8_t *codes;        /* [n_out][n_in] 0 .. 15 */
  float *scales, *zeros; /* [n_in / group][rounded_row()] */
} Rounded;

/* n_out, rounded up to a multiple of ROUND_OUTPUTS. */
static inline size_t rounded_row(int n_out) {
  return ((size_t)n_out + ROUND_OUTPUTS - 1) / ROUND_OUTPUTS * ROUND_OUTPUTS;
}

/* Writes a row of a matrix. Called by several threads at once. */
typedef void FillRow(const void *user, int row, float *to);

extern const Recipe usual_recipe;
extern const GroupSearch plain_rounding; /* one candidate: codes span a group's range */

typedef struct Quantizer {
  const char *name; /* hashed into Checkpoint.run: devices sum in different orders, so results differ */
  Status (*open)(const BackendOptions *options, QuantizerState **state, Error *err);
  void (*close)(QuantizerState *state); /* NULL is fine */

  /* Allocates n zeros in device memory; `name` is for the message if memory runs out. */
  Status (*make)(const QuantizerState *state, size_t n, const char *name, float **there, Error *err);
  void (*release)(const QuantizerState *state, float *there); /* NULL is fine */
  /* Allocates weights->w with the sizes in `weights`; fill() writes its rows. */
  Status (*load)(const QuantizerState *state, FillRow *fill, const void *user, const char *name,
                 Weights *weights, Error *err);

  /* sums[n_a][n_b]: sums[i][j] += the sum over rows of a[r][i] b[r][j]. If b is a, only the lower triangle is
   * computed: finish() mirrors it. a and b lie in the host's memory. */
  Status (*add)(const QuantizerState *state, int n_a, Rows a, int n_b, Rows b, int n_rows, float *sums,
                Error *err);
  /* Multiplies the lower triangle of the matrix `square` by the number `factor`, and mirrors it above the
   * diagonal. */
  Status (*finish)(const QuantizerState *state, float factor, int n, float *square, Error *err);
  /* here[n], in the host's memory, = the diagonal of `square`. */
  Status (*diagonal)(const QuantizerState *state, int n, const float *square, float *here, Error *err);
  /* Adds `more` to each number on the diagonal of `square`. */
  Status (*dampen)(const QuantizerState *state, float more, int n, float *square, Error *err);
  /* square[i][j] /= scales[i] scales[j]: the moments become those of the inputs divided by scales. If `lower`
   * is not NULL, it is the factor of `square` (factor.h) and is adapted: lower[i][j] *= scales[i]. */
  Status (*rescale)(const QuantizerState *state, const float *scales, int n, float *square, float *lower,
                    Error *err);
  Status (*factor)(const QuantizerState *state, const float *h, int n, float *lower,
                   Error *err); /* factor.h */

  /* target_correct() of target.h: W becomes the target of rounding. */
  Status (*correct)(const QuantizerState *state, const Target *target, const Weights *weights, Error *err);
  /* trial, round, loss: matrix_trial(), matrix_round(), matrix_loss() of matrix.h */
  Status (*trial)(const QuantizerState *state, const GroupSearch *search, const Weights *weights,
                  const float *h, const float *factors, double *loss, Error *err);
  Status (*round)(const QuantizerState *state, const Recipe *recipe, const Weights *weights, const float *h,
                  const float *lower, const Rounded *rounded, Error *err);
  Status (*loss)(const QuantizerState *state, const Weights *weights, const float *h, const Rounded *rounded,
                 double *loss, Error *err);

  /* Products of the forward pass. *done stays false if the CPU is to compute them, since it is faster or the
   * device cannot read one of the matrices. The device keeps the weights until forget(). NULL: the CPU
   * computes all. */
  Status (*multiply)(const QuantizerState *state, OtherProduct *products, int n, bool *done, Error *err);
  void (*forget)(const QuantizerState *state); /* NULL where multiply is */
} Quantizer;

extern const Quantizer cpu_quantizer;
