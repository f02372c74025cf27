/* calibration.h - the samples' rows within two models, the original one and the one that is being quantised,
 * and passes of parts of a layer over them. */
#pragma once

#include "engine/forward.h"
#include "quantize/quantize.h"

/* One of the two models. */
typedef struct {
  Model *model;
  BackendModel *loaded;
  BackendState *state;
  float *rows;        /* [n_samples][length][carried] before operation `at` */
  int at;             /* of the program */
  unsigned char **kv; /* [n_layers] what later layers share: [n_samples][kv_bytes]; NULL: nothing */
} CalibrationModel;

typedef struct {
  const Backend *backend;
  const QuantizeOptions *options;
  InputSink sink;
  Program program;
  size_t carried; /* floats of a row; x comes first */
  CalibrationModel original, quantised;
  OriginalInputs originals; /* of the part that original has computed last */
  float *before;  /* [n_samples][length][hidden] the original model's x one part before original.rows */
  float *weights; /* [n_samples][length] of tokens in the statistics */
} Calibration;

/* work: gets the inputs of matrices (LayerWork.stage). */
Status calibration_open(const Backend *backend, Model *model, const QuantizeOptions *options, LayerWork *work,
                        Calibration *c, Error *err);
void calibration_close(Calibration *c);
/* Loads the quantised model again, whose norms, biases or matrices have changed. */
Status calibration_reload(Calibration *c, Error *err);
/* Computes all samples up to the matrices of a stage of the layer, whose inputs `work` gets, and those of the
 * original model's before them. */
Status calibration_collect(Calibration *c, LayerWork *work, int stage, Error *err);
/* Computes the rest of a layer for all samples, in both models. */
Status calibration_finish_layer(Calibration *c, int layer, Error *err);
/* Gives the quantised model a layer's own weights back. */
void calibration_restore(const Calibration *c, int layer);
