/* layer.h - the matrices of one layer while they are quantised: their inputs' statistics, their scales, their
 * codes. */
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
  int which, widest;    /* the linear layer of the widest view, and its outputs */
  const char *kept;     /* why it stays as it is; NULL: it is quantised */
  int input;            /* index in LayerWork.inputs; -1: nothing has read it */
  float *out_scales;    /* [n_out] factors of its outputs, or NULL */
  Rounded rounded;      /* set by layer_round() */
  double before, after; /* losses relative to the outputs' mean square: plain rounding's and these codes' */
  double seconds;
} LayerMatrix;

/* An input that several matrices read. */
typedef struct {
  int n_in;
  size_t n_rows;
  float *moments;   /* [n_in][n_in] there: sums of products of inputs, later their means */
  float *changes;   /* [n_in][n_in] there: the same of inputs and their changes (target.h); NULL: not known */
  float *originals; /* [n_originals][n_in] a sample's inputs in the original model */
  size_t n_originals, originals_capacity;
  float *scales; /* [n_in] the matrices' factors of inputs, or NULL */
  bool others;   /* a matrix that is not quantised reads it, too */
} LayerInput;

typedef struct {
  Model *model;
  const Quantizer *quantizer;
  const QuantizerState *state;
  const Recipe *recipe;
  int index, group;
  LayerMatrix *matrices;
  LayerInput *inputs;
  int n_matrices, n_inputs;
  Tensors out;        /* tensors of the checkpoint that replace the model's own */
  float *differences; /* rows of changes of inputs */
  size_t differences_capacity;
  /* layer_take(): leaves inputs alone, keeps those of the original model, or adds to the statistics. */
  enum { TAKE_NOTHING, TAKE_ORIGINALS, TAKE_MOMENTS } takes;
  Status status; /* of layer_take() */
  Error *err;
} LayerWork;

/* Lists the layer's matrices; keeps(user, name) true: a matrix stays as it is. PRECOND model_prepare().
 * Release it also after a failure. */
typedef bool KeepMatrix(void *user, const char *name);
Status layer_begin(Model *model, int index, int group, KeepMatrix *keeps, void *user, LayerWork *work,
                   Error *err);
void layer_release(LayerWork *work);
/* InputSink.take(), `user` being a LayerWork. */
void layer_take(void *user, const Linear *const *linears, int n, const float *x, size_t stride, int n_rows);
/* Chooses scales, and rounds. Refuses (STATUS_MODEL) weights and inputs that are not finite, by name. */
Status layer_round(LayerWork *work, Error *err);

/* Row o of a Linear as fp32. PRECOND it is LINEAR_DENSE or LINEAR_FP8 */
void linear_read_row(const Linear *linear, int o, float *row);
