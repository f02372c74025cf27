/* layer.h - the matrices of one layer while they are quantised: their inputs' statistics, their scales, their
 * codes.
 *
 * A layer is made in stages, in the order of its operations: the matrices whose inputs are known once all
 * earlier ones are rounded. Rounded matrices replace the model's own at once, so that later inputs are those
 * that the quantised layer computes. */
#pragma once

#include "engine/backend.h"
#include "quantize/quantizer.h"
#include "quantize/tensors.h"

/* The matrix of one stored tensor; several Linears (q, k and v) may be views of it. */
enum { MAX_VIEWS = 6 };
typedef struct {
  const char *name; /* "model.layers.3.self_attn.qkv_proj"; belongs to the model */
  Linear *views[MAX_VIEWS];
  int n_views, n_in, n_out;
  int *order; /* [n_out] for each stored output the views' one, as they follow one another; NULL: the same */
  int which, widest;    /* the linear layer of the widest view, and its outputs */
  const char *kept;     /* why it stays as it is; NULL: it is quantised */
  int stage;            /* ascending: STAGE_PARTS times the operation that reads it, plus its turn there */
  int input;            /* index in LayerWork.inputs; -1: nothing has read it */
  Rounded rounded;      /* set by layer_round() */
  double before, after; /* losses relative to the outputs' mean square: plain rounding's and these codes' */
  double seconds;
} LayerMatrix;

enum { STAGE_PARTS = 4 };

/* An input that several matrices read. */
typedef struct {
  int n_in;
  double weight;  /* of all rows that were taken */
  float *moments; /* [n_in][n_in] there: sums of products of inputs, later their means */
  float *drifts;  /* [hidden][n_in] there: sums of products of the stream's drift and inputs, or NULL */
  float *changes; /* [n_in][n_in] there: sums of products of inputs and of what they lack of the original
                   * model's, or NULL */
  float *scales;  /* [n_in] the matrices' factors of inputs, or NULL */
  bool others;    /* a matrix that is not quantised reads it, too */
} LayerInput;

/* The rows of an input in the original model, for all samples. */
typedef struct {
  const char *reader; /* the name of its first matrix that is quantised */
  float *rows;        /* [n_samples][n][n_in] */
  size_t capacity;
} OriginalInput;

/* The inputs of the part of a layer that is computed. The memory serves all parts. */
enum { MAX_ORIGINALS = 16 };
typedef struct {
  OriginalInput items[MAX_ORIGINALS];
  int n;
} OriginalInputs;

/* The tokens of the sample that is computed. */
typedef struct {
  int sample, n_samples;
  bool keeps;                  /* the original model is computed: its inputs are kept */
  const float *weights;        /* [n] of a token in the statistics */
  const float *original, *own; /* [n][hidden] x before the operation, in the original model and in this one;
                                * original NULL: the operation's part of the layer adds other terms to x */
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
  int stage;       /* the one whose inputs layer_take() takes; -1: none */
  int first_input; /* of this stage */
  SampleTokens tokens;
  OriginalInputs *originals;
  Tensors out;    /* tensors of the checkpoint that replace the model's own */
  Tensors made;   /* what the model's layer reads in place of its own matrices */
  float *scratch; /* weighted rows */
  size_t scratch_floats;
  Status status; /* of layer_take() */
  Error *err;
} LayerWork;

/* Lists the layer's matrices; keeps(user, name) true: a matrix stays as it is. PRECOND model_prepare().
 * Release it also after a failure. */
typedef bool KeepMatrix(void *user, const char *name);
Status layer_begin(Model *model, int index, int group, KeepMatrix *keeps, void *user, LayerWork *work,
                   Error *err);
void layer_release(LayerWork *work);
/* The stage after `stage` (-1: the first) with a matrix that is quantised; -1: there is none. */
int layer_next_stage(const LayerWork *work, int stage);
/* InputSink.take(), `user` being a LayerWork. */
bool layer_take(void *user, const Linear *const *linears, int n, const float *x, size_t stride, int n_rows);
/* InputSink.multiply(), likewise. */
bool layer_multiply(void *user, OtherProduct *products, int n);
/* To be called when a matrix of the model's layer has other weights: makes what the layer computes with in
 * its place. */
Status layer_adopt(LayerWork *work, const LayerMatrix *m, Error *err);
/* Chooses scales of the stage's inputs, rounds its matrices, and makes the model's layer use what is made.
 * Refuses (STATUS_MODEL) weights and inputs that are not finite, by name. */
Status layer_round(LayerWork *work, Error *err);

/* Row o of a matrix as fp32: of its views, one after another. PRECOND as for linear_read_row() */
void matrix_read_row(const LayerMatrix *m, int o, float *row);
/* Row o of a Linear as fp32: the weights of its output o. PRECOND it is LINEAR_DENSE, LINEAR_FP8 or
 * LINEAR_AWQ */
void linear_read_row(const Linear *linear, int o, float *row);
