/* calibration.h - runs the calibration samples through two models: the original one, and the one that is
 * being quantised. It runs a part of a layer at a time, and stores the samples' rows between parts. */
#pragma once

#include "engine/forward.h"
#include "quantize/quantize.h"

/* One of the two models. */
typedef struct {
  Model *model;
  BackendModel *loaded;
  BackendState *state;
  float *rows;        /* [n_samples][length][carried] before operation `at` */
  int at;             /* index in Calibration.program */
  unsigned char **kv; /* [n_layers] NULL, or keys and values for later layers: [n_samples][kv_bytes()] */
} CalibrationModel;

typedef struct {
  const Backend *backend;
  const QuantizeOptions *options;
  InputSink sink;
  Program program;
  size_t carried; /* floats per token between operations; x comes first */
  CalibrationModel original, quantised;
  OriginalInputs originals; /* of the part that the original model has computed last */
  float *before;  /* [n_samples][length][hidden] the original model's x before the part it computed last */
  float *weights; /* [n_samples][length] each token's weight in the statistics */
} Calibration;

/* work: gets the inputs of matrices (LayerWork.stage). Call calibration_close() also after a failure. */
Status calibration_open(const Backend *backend, Model *model, const QuantizeOptions *options, LayerWork *work,
                        Calibration *c, Error *err);
void calibration_close(Calibration *c);
/* Loads the quantised model again, after its norms, biases or matrices have changed. */
Status calibration_reload(Calibration *c, Error *err);
/* For all samples, runs the original model over the part of the layer that has this stage. Runs the quantised
 * model up to the stage's matrices; `work` gets their inputs. */
Status calibration_collect(Calibration *c, LayerWork *work, int stage, Error *err);
/* Computes the rest of a layer for all samples, in both models. */
Status calibration_finish_layer(Calibration *c, int layer, Error *err);
/* Resets a layer of the quantised model to the original weights. */
void calibration_restore(const Calibration *c, int layer);
