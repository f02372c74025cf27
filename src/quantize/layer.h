/* layer.h - the matrices of one layer while they are quantised: their inputs' statistics, their scales, their
 * codes.
 *
 * A layer is quantised in stages, in the order of its operations: a stage is the matrices whose inputs can be
 * computed when all earlier stages are rounded. Rounded matrices replace the model's own at once, so that
 * later inputs are those that the quantised layer computes. */
#pragma once

#include "engine/backend.h"
#include "quantize/quantizer.h"
#include "quantize/tensors.h"

enum { MAX_VIEWS = 6 };
/* The matrix of one stored tensor; several Linears (q, k and v) may be views of it. */
typedef struct {
  const char *name; /* "model.layers.3.self_attn.qkv_proj"; belongs to the model */
  Linear *views[MAX_VIEWS];
  int n_views, n_in, n_out;
  int *order; /* [n_out] the output, counted through all views, that is stored as row i; NULL: output i */
  int which, widest;    /* which: the widest view's number (model/layers.h); widest: its n_out */
  const char *kept;     /* why it stays as it is; NULL: it is quantised */
  int stage;            /* STAGE_PARTS * the OpKind that multiplies by it + the stage within that operation */
  int input;            /* index in LayerWork.inputs; -1: it has had no input rows yet */
  Rounded rounded;      /* set by layer_round() */
  double before, after; /* relative losses (matrix_loss()) of plain rounding and of `rounded` */
  double seconds;
} LayerMatrix;

enum { STAGE_PARTS = 4 }; /* largest number of stages of an operation */

/* An input that several matrices read. */
typedef struct {
  int n_in;
  double weight;  /* sum of SampleTokens.weights over all rows so far */
  float *squares; /* [n_in] the inputs' mean squares, set by layer_round(); NULL before */
  float *moments; /* [n_in][n_in] device memory: sums of products of inputs a_i a_j, later their means */
  float *drifts;  /* [hidden][n_in] device memory, or NULL: sums of products drift_o a_i (target.h) */
  float *changes; /* [n_in][n_in] device memory, or NULL: sums of products a_i d_j; d is the original
                   * model's inputs minus a */
  float *scales;  /* [n_in] factors of W's columns and divisors of the inputs; NULL: no scales */
  bool others;    /* a matrix that is not quantised reads this input, too */
} LayerInput;

/* The rows of an input in the original model, for all samples. */
typedef struct {
  const char *reader; /* the name of its first matrix that is quantised */
  float *rows;        /* [n_samples][n][n_in] */
  size_t capacity;
} OriginalInput;

enum { MAX_ORIGINALS = 16 };
/* The original model's inputs in the part of a layer that is being computed, up to MAX_ORIGINALS. The next
 * part reuses the memory. */
typedef struct {
  OriginalInput items[MAX_ORIGINALS];
  int n;
} OriginalInputs;

/* The tokens of the sample that is computed. */
typedef struct {
  int sample, n_samples;
  bool keeps;                  /* the original model is being computed: its inputs are stored */
  const float *weights;        /* [n] each token's weight in the statistics */
  const float *original, *own; /* [n][hidden] x before the operation, in the original and the quantised model;
                                * `original` is NULL if another operation of the same part of the layer
                                * changes x, too, or if x is not the whole residual stream */
  int n;
} SampleTokens;

typedef struct {
  Model *model;
  const Quantizer *quantizer;
  const QuantizerState *state;
  const Recipe *recipe;
  int index, group, n_threads;
  LayerMatrix *matrices;
  LayerInput *inputs;
  int n_matrices, n_inputs;
  int stage;       /* the stage whose inputs layer_take() adds to the statistics; -1: none */
  int first_input; /* the first of `inputs` that belongs to this stage */
  SampleTokens tokens;
  OriginalInputs *originals;
  Tensors out;    /* written to the checkpoint in place of the original's tensors */
  Tensors made;   /* what the model's layer reads in place of its own matrices */
  float *scratch; /* weighted rows */
  size_t scratch_floats;
  Status status; /* the first failure in layer_take() or layer_multiply() */
  Error *err;
} LayerWork;

typedef bool KeepMatrix(void *user, const char *name);
/* Lists the layer's matrices. keeps(user, name) is true for a matrix that must not be quantised; with keeps
 * NULL there is no such matrix. Call layer_release() also after a failure. PRECOND model_prepare() */
Status layer_begin(Model *model, int index, int group, KeepMatrix *keeps, void *user, LayerWork *work,
                   Error *err);
void layer_release(LayerWork *work);
/* Returns the next stage after `stage` that has a matrix to quantise, or -1. With `stage` -1 the search
 * begins at the first stage. */
int layer_next_stage(const LayerWork *work, int stage);
/* InputSink.take(), `user` being a LayerWork. */
bool layer_take(void *user, const Linear *const *linears, int n, const float *x, size_t stride, int n_rows);
/* InputSink.multiply(), `user` being a LayerWork. */
bool layer_multiply(void *user, OtherProduct *products, int n);
/* Renews the weights that are derived from matrix m of the model's layer (the heads of latent attention's
 * kv_b). To be called when the weights of m have changed. */
Status layer_adopt(LayerWork *work, const LayerMatrix *m, Error *err);
/* Chooses scales of the stage's inputs, rounds its matrices, and makes the model's layer use the results.
 * Refuses (STATUS_MODEL) inputs that are not finite, by name. PRECOND the weights passed
 * finite_check_layer() */
Status layer_round(LayerWork *work, Error *err);

/* Row o of a matrix as fp32; rows are counted through all views. */
void matrix_read_row(const LayerMatrix *m, int o, float *row);
